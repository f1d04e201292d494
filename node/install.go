package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/raftyard/raftyard/group"
	"github.com/raftyard/raftyard/internal/mutant"
	"github.com/raftyard/raftyard/storage"
	"github.com/raftyard/raftyard/transport"
)

// Installing a snapshot goes through these steps, each after the one before:
//
//	stream ──▶ file, synced ──▶ raft accepts ──▶ intent, synced ──▶ state machine
//	restored ──▶ log reset + descriptor + no intent, one synced write ──▶ answer
//
// A crash before the intent leaves the old state and a file to sweep; after it,
// the start restores again from the file and writes the last step.

// stagedSnapshot is a received snapshot that waits for raft to accept it.
type stagedSnapshot struct {
	name  string // of the file in the replica's directory
	check fileCheck
	id    group.CommandID
}

var errSnapshotBusy = errors.New("another snapshot is being installed")

// receiveSnapshot receives a snapshot stream: it stages the stream in a file and
// lets raft decide. It returns when raft has seen the message.
func (n *Node) receiveSnapshot(
	ctx context.Context, peer transport.Identity, env transport.Envelope, body io.Reader,
) error {
	if isOwnState(env.Message) {
		return n.receiveOwn(ctx, env, body)
	}
	r, err := n.replicaFor(ctx, env)
	if err != nil {
		return err
	}
	if n.misplaced(r, &peer, &env) || n.waitsToFound(r) {
		return fmt.Errorf("%w: a snapshot out of, or into, a data directory that is lost",
			ErrInvalid)
	}
	manifest, err := group.DecodeManifest(env.Message.GetSnapshot().GetData())
	if err != nil {
		return fmt.Errorf("snapshot manifest: %w", err)
	}
	if !r.machine.hold() {
		return errNotServing
	}
	defer r.machine.release()
	st := &stagedSnapshot{name: incomingPrefix + n.world.newID().String(), id: manifest.ID}
	dir := r.machine.env.Dir
	st.check, err = writeFileSync(n.world.files, dir, st.name, copier{r.whileHere(body)})
	if err != nil {
		return err
	}
	n.metrics.snapshotsReceived.Add(1)
	verdict := make(chan error, 1)
	posted := r.worker.box.control(func() {
		staged := errNotServing
		r.worker.guard(r, "take a snapshot", func() {
			staged = r.worker.stage(r, st, env.Message)
		})
		verdict <- staged
	})
	if !posted {
		verdict <- ErrClosed
	}
	err, from := await(n.world, verdict, r.gone, nil)
	if from == fromFirst {
		err = r.goneReason()
	}
	if err != nil {
		return joinRemove(n.world.files, err, filepath.Join(dir, st.name))
	}
	return nil
}

// whileHere returns a reader of body that ends when the replica has gone: its files
// cannot be deleted before that.
func (r *replica) whileHere(body io.Reader) io.Reader {
	return readerFunc(func(b []byte) (int, error) {
		if !r.serving() {
			return 0, r.goneReason()
		}
		return body.Read(b)
	})
}

type readerFunc func([]byte) (int, error)

// Read implements io.Reader.
func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// copier makes an io.Reader an io.WriterTo.
type copier struct{ io.Reader }

// WriteTo copies until the reader ends.
func (c copier) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, c.Reader) }

// stage shows raft the snapshot's message. What raft makes of it is in the next
// step: an Install, or nothing.
func (w *worker) stage(r *replica, st *stagedSnapshot, m *raftpb.Message) error {
	if r.staged != nil || r.out.Install != nil {
		return errSnapshotBusy
	}
	if err := r.raft.Step(m); err != nil {
		return err
	}
	r.staged = st
	w.touch(r)
	return nil
}

// discardStaged removes the file of a snapshot that raft did not want.
func (w *worker) discardStaged(r *replica) {
	if r.staged == nil {
		return
	}
	path := filepath.Join(r.machine.env.Dir, r.staged.name)
	r.staged = nil
	w.node.files.start(func() { w.node.removeFile(path) })
}

func (n *Node) removeFile(path string) {
	if err := n.world.files.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		n.logger.Warn("snapshot file stays behind", errAttr(err))
	}
}

// install starts the installation of the snapshot that raft has accepted.
func (w *worker) install(r *replica) {
	in := r.out.Install
	intent := &installIntent{Index: in.Index, Term: in.Term, Manifest: in.Snapshot.GetData()}
	switch {
	case in.Manifest.Empty:
		w.discardStaged(r)
	case r.staged == nil || r.staged.id != in.Manifest.ID:
		w.node.stopReplica(r, faultyAt(RaftPanicked, in.Index, in.Term, fmt.Errorf(
			"raft accepted a snapshot at index %d whose content is not here", in.Index)))
		return
	default:
		intent.File, intent.Check = r.staged.name, r.staged.check
		r.staged = nil
	}
	first := r.meta.NoMachine && w.node.hasKind(in.Manifest.State.Descriptor.Kind)
	if first { // it must be known before there is something of it
		r.meta.NoMachine = false
	}
	if in.Manifest.Empty && !first || mutant.On(mutant.InstallNoIntent) {
		w.restore(r, intent)
		return
	}
	r.meta.Install = intent
	w.writes = append(w.writes, write{
		group: r.group, update: storage.Update{Meta: r.meta.encode()},
		done: func(err error) {
			if err == nil {
				w.box.control(func() { w.guard(r, "restore", func() { w.restore(r, intent) }) })
			}
		},
	})
}

// restore has the state machine take the snapshot over.
func (w *worker) restore(r *replica, intent *installIntent) {
	state := r.out.Install.Manifest.State
	w.node.appliers.add(r, task{
		run: func(*machine) {
			if !r.serving() {
				return
			}
			fl, err := w.node.take(r, state, intent)
			if err != nil {
				w.node.stopReplica(r, machineFault(intent.Index, intent.Term,
					fmt.Errorf("install snapshot at index %d: %w", intent.Index, err)))
				return
			}
			w.box.control(func() { w.guard(r, "install", func() { w.installed(r, fl) }) })
		},
	})
}

// take opens the state machine if need be and restores it from the intent's
// file. It returns what is known of the state from then on: without a state machine that
// works, that it is in the file.
func (n *Node) take(r *replica, state group.State, in *installIntent) (floor, error) {
	m, fl := r.machine, floor{Index: in.Index, Term: in.Term}
	err := m.fault()
	if err == nil {
		err = m.open(state.Descriptor.Kind)
		if err == nil && in.File != "" && !m.logOnly.Load() {
			err = m.restore(in.File, in.Check)
		}
		if err != nil && (errors.Is(err, errRotten) || !r.mayStandStill(err)) {
			return fl, err
		}
		if err != nil {
			n.standStill(r, machineFault(in.Index, in.Term, err))
		}
	}
	index, durable, err := m.machineApplied()
	if err != nil {
		return fl, err
	}
	fl.Machine = index
	m.lastCommand = index
	if !durable {
		fl.File, fl.Check = in.File, in.Check
	}
	m.position = position{applied: in.Index, term: in.Term, state: state}
	m.expected.pass(in.Index)
	return fl, nil
}

// installed writes the last step: the log begins after the snapshot.
func (w *worker) installed(r *replica, fl floor) {
	save := r.out.Save
	r.obsolete(r.meta.Floor.File)
	if in := r.meta.Install; in != nil && fl.File != in.File {
		r.obsolete(in.File)
	}
	r.meta.Install = nil
	r.meta.Floor, r.meta.Skips = fl, nil
	u := storage.Update{Reset: true, Snapshot: r.out.Install.Snapshot}
	if save != nil {
		u.HardState, u.Entries = save.HardState, save.Entries
		r.meta.SkipAt = max(r.meta.SkipAt, save.SkipAt)
		if save.State != nil {
			r.meta.State = *save.State
		}
	}
	u.Meta = r.meta.encode()
	w.writes = append(w.writes, write{group: r.group, update: u, saved: r})
}

// snapshotInstalled notes a snapshot that is in place.
func (w *worker) snapshotInstalled(r *replica, in *group.Install) {
	r.applied.Store(in.Index)
	r.snap.index, r.snap.passed, r.snap.counted = in.Index, 0, 0
	r.noteSize(in.Snapshot)
	r.own.rotten = false
	r.schedule(true)
	w.node.metrics.snapshotsInstalled.Add(1) // before anybody reads what it has brought
	w.serveReads(r)
	r.note("snapshot of index %d, term %d installed", in.Index, in.Term)
	w.removeObsolete(r)
	if r.machine.fault() != nil {
		r.own.wanted = true // it has come by a newer state
		w.rebuild(r)
	}
}
