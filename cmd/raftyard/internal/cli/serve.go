package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/raftyard/raftyard/cmd/raftyard/internal/daemon"
	"github.com/raftyard/raftyard/internal/config"
)

func (a *app) serveCommand() *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run a node",
		Long: `Run a node. Flags win over the environment, the environment over the file, the
file over the defaults, key by key. SIGTERM, SIGINT and SIGHUP hand leaderships over and
stop it within 10 s; a second signal ends it at once.`,
		Example: `  raftyard config example > node.yaml
  raftyard serve --config node.yaml
  raftyard serve --config cluster.yaml --node-id 2 --data-dir /var/lib/raftyard`,
		Args: serveArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if file == "" {
				file, _ = a.env.LookupEnv("RAFTYARD_CONFIG")
			}
			loaded, err := a.load(cmd, file)
			if err != nil {
				return err
			}
			return a.serve(cmd.Context(), loaded.Config)
		},
	}
	cmd.Flags().StringVarP(&file, "config", "c", "", "the configuration file ($RAFTYARD_CONFIG)")
	settingFlags(cmd)
	completeWords(cmd, "log-level", config.Levels())
	completeWords(cmd, "log-format", config.Formats())
	return cmd
}

// serve runs a node until ctx ends or the node fails.
func (a *app) serve(ctx context.Context, cfg config.Config) error {
	logger := daemon.NewLogger(a.env.Stderr, cfg.Log)
	begun := time.Now()
	procs, memory := daemon.TuneProcs(1), daemon.TuneMemory(1, cfg.Limits.Memory)
	version := buildVersion()
	logger.Info("starting",
		slog.String("version", version.Version),
		slog.String("cluster", cfg.Cluster),
		slog.Uint64("node", uint64(cfg.Node.ID)),
		slog.String("data_dir", cfg.Node.DataDir),
		slog.String("http", cfg.Listen.HTTP),
		slog.String("peer", cfg.Listen.Peer),
		slog.Int("procs", procs),
		slog.Int64("memory_limit", memory))
	d, err := daemon.Start(ctx, daemon.Options{
		Config: cfg, Version: version.Version, Logger: logger,
	})
	if daemon.DiskFailed(err) {
		return fmt.Errorf("%w: %w", errDiskFailed, err)
	}
	if err != nil {
		return err
	}
	logger.Info("serving", slog.Duration("took", time.Since(begun)))
	return a.attend(ctx, d, logger, begun)
}

// attend waits for the reason to stop, and stops.
func (a *app) attend(
	ctx context.Context, d *daemon.Daemon, logger *slog.Logger, begun time.Time,
) error {
	// Being ready is worth a line, once. Others ask /readyz.
	poll := time.NewTicker(50 * time.Millisecond)
	defer poll.Stop()
	for {
		select {
		case <-poll.C:
			if ready, _ := d.Node().Ready(); ready {
				logger.Info("ready", slog.Duration("took", time.Since(begun)))
				poll.Stop()
			}
		case <-ctx.Done():
			logger.Info("stopping")
			if err := d.Close(context.WithoutCancel(ctx)); err != nil {
				return err
			}
			logger.Info("stopped")
			return nil
		case <-d.Failed():
			d.CloseListeners()
			return fmt.Errorf("%w: %w", errDiskFailed, d.Node().Err())
		case err := <-d.Served():
			if errors.Is(err, http.ErrServerClosed) {
				err = nil
			}
			return errors.Join(err, d.Close(ctx))
		}
	}
}
