// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/environment"
	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/program"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/remote/server"
)

// What a program's library of remote calls finds its server and its run by.
const (
	remoteSocketVariable = "DIVVY_REMOTE_SOCKET"
	remoteRunVariable    = "DIVVY_REMOTE_RUN"
)

// answerTime is how long a server may take to answer: making a share asks a driver.
const answerTime = 60 * time.Second

// endTime is how long a run that has ended waits for its part of the GPU to be free.
const endTime = 5 * time.Second

// notRemote are the flags of run that mean nothing, or something else, on a server.
var notRemote = []string{"simulate", "agent", "driver", "tenant", "mps-threads", "open", "user", "exclusive", "isolate", "enforce-grace"}

// checkRemote refuses flags that cannot go with --remote.
func checkRemote(cmd *cobra.Command, p promise) error {
	for _, flag := range notRemote {
		if cmd.Flags().Changed(flag) {
			return withHint(usage(fmt.Errorf("--remote uses a server's GPU: --%s cannot go with it", flag)), "divvy run --remote HOST --mem 2GiB -- COMMAND")
		}
	}
	if p.gpus > 1 {
		return withHint(usage(fmt.Errorf("--remote: a run on a server has one GPU, not %d", p.gpus)), "leave --gpus out")
	}
	return nil
}

// runRemote runs a command with a server's GPU.
func (a *app) runRemote(ctx context.Context, remote string, u under, path string, args []string) error {
	var is protocol.RunningDocument
	var token protocol.Token
	conn, socket, err := a.askServer(ctx, remote, func(server io.ReadWriter) (err error) {
		is, token, err = protocol.AskRun(server, runDocument(u, args))
		return err
	})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	folder, err := a.remoteLibrary(is.Driver)
	if err != nil {
		return err
	}
	for _, note := range is.Notes {
		a.note("%s", note)
	}
	a.noteForRemote(path)
	var over atomic.Bool
	ended := make(chan struct{})
	go func() { // ends with conn
		defer close(ended)
		err := protocol.Attend(conn)
		if over.Load() {
			return
		}
		why := "its connection is gone"
		if refusal, is := errors.AsType[*protocol.Refusal](err); is {
			why = refusal.Message
		}
		a.note("%s: the server has ended the run, and its GPU answers no more: %s", remote, why)
	}()
	go askForLife(conn, ended)
	code, err := a.passOn(&exec.Cmd{Path: path, Args: args, Env: remoteEnvironment(folder, socket, token)}, watch{})
	over.Store(true)
	// What comes next may count on the run's part of the GPU: the server hangs up when it is free.
	half, can := conn.(interface{ CloseWrite() error })
	if !can || half.CloseWrite() != nil || conn.SetReadDeadline(time.Now().Add(endTime)) != nil {
		_ = conn.Close()
	}
	<-ended
	_ = conn.Close()
	if err != nil {
		return err
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// lifeEvery is how often a run's server is asked whether it still lives. By the answers a relay
// knows: where one is 15 seconds late, it ends the run's connections.
const lifeEvery = 5 * time.Second

// askForLife asks until the connection has ended.
func askForLife(conn io.Writer, ended <-chan struct{}) {
	tick := time.NewTicker(lifeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
			if protocol.WritePing(conn, 0) != nil {
				return
			}
		}
	}
}

// remoteEnvironment is the environment that gives a program a server's GPU.
func remoteEnvironment(folder, socket string, token protocol.Token) []string {
	env := os.Environ()
	set := environment.Library(folder, env)
	set[remoteSocketVariable], set[remoteRunVariable] = socket, token.String()
	return environment.Merge(env, set)
}

// runDocument asks a server for what run's flags say.
func runDocument(u under, args []string) protocol.RunDocument {
	host, _ := os.Hostname()
	name := strconv.Itoa(os.Getuid())
	if is, err := user.Current(); err == nil {
		name = is.Username
	}
	d := protocol.RunDocument{
		Join: u.declared, Enforce: u.spec.Enforce, Command: []string{protocol.Word(filepath.Base(args[0]))},
		Client: protocol.ClientDocument{Host: protocol.Word(host), User: protocol.Word(name), Version: protocol.Word(version)},
	}
	if u.declared == "" {
		s := u.spec
		d.Name, d.GPU, d.MemoryBytes, d.CoresPercent, d.Policy = s.Name, s.GPU, s.MemoryBytes, s.CoresPercent, s.Policy
		d.Weight, d.Priority, d.Labels = s.Weight, s.Priority, s.Labels
	}
	return d
}

// remoteSocket is the unix socket by which a server is reached.
func (a *app) remoteSocket(ctx context.Context, remote string) (string, error) {
	at, err := server.ParseAddress(remote)
	if err != nil {
		return "", withHint(usage(fmt.Errorf("--remote: %w", err)), "divvy run --remote gpu1 -- COMMAND")
	}
	if at.Socket == "" {
		return a.relayTo(ctx, at)
	}
	return at.Socket, nil
}

// askServer connects to a server, directly or by the relay, and asks it. A relay may just be
// leaving: then the next one is asked.
func (a *app) askServer(ctx context.Context, remote string, ask func(server io.ReadWriter) error) (net.Conn, string, error) {
	for try := 1; ; try++ {
		socket, err := a.remoteSocket(ctx, remote)
		if err != nil {
			return nil, "", err
		}
		again := try < leaveRaces && !strings.HasPrefix(remote, "unix:")
		conn, err := dialServer(ctx, remote, socket)
		if err != nil {
			if again {
				continue
			}
			return nil, "", err
		}
		if err = conn.SetDeadline(time.Now().Add(answerTime)); err == nil {
			err = ask(conn)
		}
		if err == nil {
			return conn, socket, nil
		}
		_ = conn.Close()
		if !again || !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) && !errors.Is(err, unix.EPIPE) {
			return nil, "", a.remoteFailed(remote, err)
		}
	}
}

// remoteFlags adds the flags that choose a server.
func (a *app) remoteFlags(cmd *cobra.Command, remote *string, help string) {
	cmd.Flags().StringVar(remote, "remote", "", help)
	cmd.Flags().StringVar(&a.target.identity, "identity", "", "`file` of your certificate, for --remote HOST")
	complete(cmd, "identity", fileCompletion)
}

// dialServer connects to a server, or to the relay that leads there.
func dialServer(ctx context.Context, remote, socket string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: answerTime}).DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, withHint(errclass.Of(client.ErrUnreachable, fmt.Errorf("no server answers at %s: %w", remote, err)),
			"start divvy serve there, or look at its socket: ls -l "+socket)
	}
	return conn, nil
}

// remoteFailed words what came of asking a server.
func (a *app) remoteFailed(remote string, err error) error {
	refusal, refused := errors.AsType[*protocol.Refusal](err)
	switch {
	case refused:
		return withHint(&codedError{code: refusal.ExitCode, cause: fmt.Errorf("%s: %s", remote, refusal.Message)},
			cmp.Or(refusal.Hint, "divvy remote status --remote "+remote))
	case errors.Is(err, protocol.ErrProtocol):
		return withHint(fmt.Errorf("%s: %w", remote, err), "divvy version on both sides shows whether they are of one version")
	}
	return withHint(errclass.Of(client.ErrUnreachable, fmt.Errorf("%s: %w", remote, err)), "divvy remote status --remote "+remote)
}

// remoteLibrary is the folder of the driver library that shows a server's driver.
func (a *app) remoteLibrary(driver protocol.DriverDocument) (string, error) {
	dir, err := a.libraries()
	if err != nil {
		return "", err
	}
	caches := library.Caches(a.getenv, os.Geteuid())
	if own, err := a.privateRoot().Cache(); err == nil {
		caches = append(caches, own) // where nobody has a home that can be written to
	}
	made, err := dir.RemoteFor(library.Remote{BuildID: driver.BuildID, CUDA: driver.CUDA, NVML: driver.NVML}, caches...)
	if errors.Is(err, library.ErrNotFound) {
		return "", withHint(err, "make build, or set DIVVY_LIBDIR to the lib/divvy that was built")
	}
	return made.Dir, err
}

// noteForRemote tells of a program that will not find the server's GPU.
func (a *app) noteForRemote(path string) {
	if status, detail, _ := examineProgram(path); status != checkOK {
		a.note("it will not find the server's GPU: %s", detail)
		return
	}
	if uses := runtimeOf(path, a.getenv("LD_LIBRARY_PATH")); uses != "" {
		a.note("%s", uses)
	}
}

// runtimeOf says that a program uses what is not carried to a server; empty: it does not, or
// that cannot be seen.
func runtimeOf(path, libraryPath string) string {
	found, err := program.Read(path, libraryPath)
	if err != nil || found.Uses() == "" {
		return ""
	}
	return fmt.Sprintf("%s uses NVIDIA's runtime library (%s), whose calls are not carried to a server: run it where the GPU is", path, found.Uses())
}
