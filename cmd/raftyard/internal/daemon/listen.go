package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"syscall"

	"github.com/raftyard/raftyard/internal/vfs"
	"github.com/raftyard/raftyard/storage"
)

// listen binds both addresses before anything is opened or made: a port that is taken is
// the likeliest reason not to start. Often it is the same node that has it, started twice.
func (d *Daemon) listen(ctx context.Context) error {
	err := d.bindBoth(ctx)
	if errors.Is(err, syscall.EADDRINUSE) {
		if inUse := d.dirInUse(); inUse != nil {
			return inUse
		}
	}
	return err
}

func (d *Daemon) bindBoth(ctx context.Context) error {
	var err error
	if d.opts.HTTP == nil {
		d.opts.HTTP, err = bind(ctx, "listen.http", d.opts.Config.Listen.HTTP)
		if err != nil {
			return err
		}
	}
	if d.opts.Peer == nil {
		d.opts.Peer, err = bind(ctx, "listen.peer", d.opts.Config.Listen.Peer)
	}
	return err
}

func bind(ctx context.Context, key, addr string) (net.Listener, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err == nil {
		return ln, nil
	}
	if errors.Is(err, syscall.EADDRINUSE) {
		_, port, splitErr := net.SplitHostPort(addr)
		if splitErr != nil {
			return nil, errors.Join(err, splitErr)
		}
		return nil, &takenError{key: key, addr: addr, port: port, err: err}
	}
	return nil, fmt.Errorf("%s: cannot listen on %s: %w", key, addr, err)
}

// A takenError says that another process listens on an address, and how to find out which.
type takenError struct {
	key, addr, port string
	err             error
}

func (e *takenError) Error() string {
	return fmt.Sprintf("%s: %s is taken by another process, which `lsof -i :%s` names: stop that "+
		"one, or choose another address", e.key, e.addr, e.port)
}

func (e *takenError) Unwrap() error { return e.err }

// dirInUse returns which process has the data directory, or nil if none has it or nobody can
// tell. It makes and changes nothing.
func (d *Daemon) dirInUse() error {
	cfg := &d.opts.Config
	lock, err := vfs.SharedLock(filepath.Join(cfg.Node.DataDir, storage.LockName))
	if held, ok := errors.AsType[*vfs.LockedError](err); ok {
		return fmt.Errorf("node.data_dir: %s is in use by %s, so that node %d runs already: stop "+
			"that process, or give this one an id, a data directory and addresses of its own",
			cfg.Node.DataDir, held.Holder, cfg.Node.ID)
	}
	if err == nil {
		err = lock.Close()
	}
	if err != nil {
		d.logger.Debug("lock of the data directory not looked at", slog.Any("error", err))
	}
	return nil
}

// lockedOut explains why the node could not lock its directory.
func (d *Daemon) lockedOut(err error) error {
	if inUse := d.dirInUse(); inUse != nil {
		return inUse
	}
	return fmt.Errorf("node.data_dir: %s is in use for the moment, perhaps by raftyard inspect: "+
		"try again: %w", d.opts.Config.Node.DataDir, err)
}
