// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/server"
)

// workingCommand is the step between `divvy serve` and a worker: a process that enters the
// share, which acts on the process that asks, and becomes the worker.
const workingCommand = "working"

// serveFlags are the flags of `divvy serve`.
type serveFlags struct {
	config string
	listen []string
	certs  string
	audit  string
	drain  time.Duration
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Let programs elsewhere use this machine's GPUs",
		Long: `Lets divvy run --remote use GPUs of this machine, each run under a share of the
agent's. It listens on unix sockets, where users are known by their number, and on
ports (7190), where they are by certificates (divvy certs), until SIGTERM or an
interrupt; then it lets runs end (--drain). See docs/remote.md.`,
		Example: `  divvy serve --simulate --listen unix:/tmp/serve.sock`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		cfg, err := f.read(a, cmd)
		if err != nil {
			return err
		}
		return a.serve(cmd.Context(), cfg)
	})
	flags := cmd.Flags()
	flags.StringVar(&f.config, "config", "", "`file` with tenants and all that follows")
	flags.StringArrayVar(&f.listen, "listen", nil, "`address` unix:/path or HOST[:PORT]; may be repeated")
	flags.StringVar(&f.certs, "certificates", "", "`folder` of server.pem and what is revoked (divvy certs init)")
	flags.StringVar(&f.audit, "audit", "", "`file` for a line per share, session and refusal")
	flags.DurationVar(&f.drain, "drain", server.Default().Drain, "`time` for which runs may go on at its end")
	complete(cmd, "config", fileCompletion)
	complete(cmd, "certificates", fileCompletion)
	complete(cmd, "audit", fileCompletion)
	a.targetFlags(cmd)
	return cmd
}

// read is the configuration: the file, and what flags say besides.
func (f *serveFlags) read(a *app, cmd *cobra.Command) (server.Config, error) {
	cfg := server.Default()
	if f.config != "" {
		raw, err := a.readBounded(f.config)
		if err != nil {
			return cfg, err
		}
		if cfg, err = server.Parse(raw); err != nil {
			return cfg, usage(fmt.Errorf("--config: %s: %w", f.config, err))
		}
	}
	if len(f.listen) > 0 {
		cfg.Listen = f.listen
	}
	if f.certs != "" {
		cfg.Certificates = f.certs
	}
	if f.audit != "" {
		cfg.Audit = f.audit
	}
	if cmd.Flags().Changed("drain") {
		cfg.Drain = f.drain
	}
	if len(cfg.Listen) == 0 {
		socket, err := a.serveSocket()
		if err != nil {
			return cfg, err
		}
		cfg.Listen = []string{"unix:" + socket}
	}
	if err := cfg.Validate(); err != nil {
		return cfg, usage(err)
	}
	if cfg.Certificates == "" {
		cfg.Certificates, _ = a.remoteFolder() // only a port needs it, and then says so
	}
	if os.Geteuid() != 0 || a.privateTarget() {
		cfg.UIDs = server.UIDRange{} // others' processes could not attach, or we cannot make any
	}
	return cfg, a.checkTarget()
}

// serveSocket is where a server listens that is told nothing: the machine's, or the user's.
func (a *app) serveSocket() (string, error) {
	system := agent.System().Directory
	if os.Geteuid() == 0 && exists(system) && !a.privateTarget() {
		return filepath.Join(system, "serve.sock"), nil
	}
	root := a.privateRoot()
	return filepath.Join(root.Path(), "serve.sock"), root.Create()
}

// privateTarget says whether the agent that is meant serves one user only.
func (a *app) privateTarget() bool {
	if socket := a.chosenSocket(); socket != "" {
		return strings.HasPrefix(socket, a.privateRoot().Path()+"/")
	}
	return a.target.simulate != "" || !exists(agent.System().APISocket())
}

// serve runs the server until it is told to end.
func (a *app) serve(ctx context.Context, cfg server.Config) error {
	dir, err := a.libraries()
	if err != nil {
		return err
	}
	program, err := self()
	if err != nil {
		return err
	}
	parts := server.Parts{
		Version: version, Worker: dir.Tool("divvy-worker"), Front: a.frontFor, Explain: explained,
		Agent: func(ctx context.Context, call func(*client.Client) error) error {
			own := *a // what is found out about the agent is of one call
			return own.withPlace(ctx, own.findOrStart, func(p place) error { return call(p.client) })
		},
		Step: func(step server.Step) []string {
			return append([]string{program, "divvy", workingCommand}, step.Arguments()...)
		},
		Logger: slog.New(slog.NewTextHandler(a.stderr, nil)), Output: os.Stderr,
	}
	if cfg.Audit != "" {
		log, err := openAudit(cfg.Audit)
		if err != nil {
			return err
		}
		defer log.Close()
		parts.Audit = slog.New(slog.NewJSONHandler(log, nil))
	}
	s, err := server.New(cfg, parts)
	if err != nil {
		return usage(err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second time it ends at once
	var listeners []server.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	log := parts.Logger
	for _, text := range cfg.Listen {
		l, err := a.listenAt(ctx, text, cfg.Certificates, log)
		if err != nil {
			return err
		}
		listeners = append(listeners, l)
		fmt.Fprintf(a.stdout, "listening at %s\n", text)
	}
	if cfg.Certificates != "" {
		looking, looked := context.WithCancel(context.WithoutCancel(ctx))
		done := make(chan struct{})
		go func() {
			defer close(done)
			revocations(looking, cfg.Certificates, s, log)
		}()
		defer func() {
			looked()
			<-done
		}()
	}
	return s.Run(ctx, listeners...)
}

// listenAt listens at an address.
func (a *app) listenAt(ctx context.Context, text, certs string, log *slog.Logger) (server.Listener, error) {
	at, err := server.ParseAddress(text)
	if err != nil {
		return nil, usage(err)
	}
	if at.Socket != "" {
		return listenUnix(ctx, text, at)
	}
	if certs == "" {
		return nil, withHint(usage(fmt.Errorf("listen at %s: no folder of certificates", text)), "divvy serve --certificates FOLDER")
	}
	bundle, err := certificates.ReadBundle(filepath.Join(certs, "server.pem"))
	if err != nil {
		return nil, certsFailed(err)
	}
	l, err := server.ListenTLS(ctx, at.Host, at.Port, bundle.ServerTLS(isRevoked(certs, log)))
	if errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EACCES) {
		return nil, &codedError{code: exitNotAllowed, cause: err}
	}
	return l, err
}

// listenUnix listens on a unix socket.
func listenUnix(ctx context.Context, text string, at server.Address) (server.Listener, error) {
	if conn, err := (&net.Dialer{}).DialContext(ctx, "unix", at.Socket); err == nil {
		_ = conn.Close()
		return nil, withHint(&codedError{code: exitNotAllowed, cause: fmt.Errorf("somebody listens at %s already", text)}, "divvy remote status --remote "+text)
	}
	mode := fs.FileMode(0o600)
	if os.Geteuid() == 0 {
		mode = 0o666 // who is there, the kernel tells
	}
	l, err := server.ListenUnix(at.Socket, mode)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, withHint(notThere(err), "mkdir -p "+filepath.Dir(at.Socket))
	}
	return l, err
}

// openAudit opens the file for audit lines.
func openAudit(path string) (io.WriteCloser, error) {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_APPEND|unix.O_CREAT|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, usage(fmt.Errorf("--audit: %w", &os.PathError{Op: "open", Path: path, Err: err}))
	}
	return os.NewFile(uintptr(fd), path), nil
}

// explained is what another process is told of an error.
func explained(err error) (code int, hint string) { return exitCode(err), hintOf(err) }

func (a *app) workingCommand() *cobra.Command {
	cmd := &cobra.Command{Use: workingCommand + " AGENT SHARE UID WORKER", Hidden: true, DisableFlagParsing: true}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		step, err := server.ParseStep(args)
		if err != nil {
			return usage(err)
		}
		return step.Become(cmd.Context(), explained)
	})
	return cmd
}
