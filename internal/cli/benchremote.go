// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/remote/certificates"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

func (a *app) benchRemoteCommand() *cobra.Command {
	var asJSON bool
	rounds := 15
	cmd := &cobra.Command{
		Use:   "remote",
		Short: "What calls to a GPU of another machine cost, over a driver that does nothing",
		Long: `Starts a server of remote calls over the null driver, and programs that reach it by
its unix socket, and by a relay and mutual TLS on this machine. Measured are round
trips, launches and copies, each beside bare processes that only pass the bytes, in
alternating rounds. What a network adds comes on top.`,
		Example: `  divvy bench remote --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if rounds < 1 || rounds > 1000 {
			return usage(fmt.Errorf("--rounds: %d is not between 1 and 1000", rounds))
		}
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		report, err := a.benchRemote(ctx, rounds)
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(report)
		}
		return a.writeBenchRemote(report)
	})
	cmd.Flags().IntVar(&rounds, "rounds", rounds, "alternating rounds; a second or two each")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeBenchRemote(report bench.RemoteReport) error {
	rows := newTable("WHAT", "REMOTE", "BARE", "", "TARGET")
	for _, p := range report.Paths {
		way, most, part := "unix socket: ", "35 us", "55%"
		if p.Path == remoteTLS {
			way, most, part = "relay and TLS: ", "80 us", "70%"
		}
		rows.add(way+"round trip", fmt.Sprintf("%.1f us", p.SyncUs), fmt.Sprintf("%.1f us", p.BareSyncUs), fmt.Sprintf("%.2f times", p.SyncRatio),
			"1.25 times, "+most+" on an idle host")
		rows.add(way+"launches", millions(p.LaunchesPer), millions(p.BareLaunchesPer), "", "2 M/s")
		rows.add(way+"copy to the GPU", fmt.Sprintf("%.0f MB/s", p.HtoDMBPer), fmt.Sprintf("%.0f MB/s", p.BareHopMBPer), percentText(p.HtoDPercent)+" of a hop", part)
		rows.add(way+"the same, beside the chain", "", fmt.Sprintf("%.0f MB/s", p.BareChainMBPer), "", "")
	}
	if err := rows.write(a.stdout); err != nil {
		return err
	}
	_, err := fmt.Fprintf(a.stdout, "%s, load %.1f before and %.1f after\n", counted(report.Cores, "core", "cores"), report.Load.Before, report.Load.After)
	return err
}

func millions(of float64) string { return fmt.Sprintf("%.2f M/s", of/1e6) }

// Names of the two ways.
const (
	remoteUnix = "unix"
	remoteTLS  = "tls"
)

// benchRemote starts what is measured, and measures.
func (a *app) benchRemote(ctx context.Context, rounds int) (report bench.RemoteReport, err error) {
	session, err := a.ownSession(ctx, "", "")
	if err != nil {
		return report, err
	}
	defer session.end(ctx)
	folder, err := os.MkdirTemp("", "divvy-bench-")
	if err != nil {
		return report, err
	}
	defer os.RemoveAll(folder)
	b := &remoteBench{app: a, folder: folder, tool: session.tool("remotecalls")}
	defer b.end()
	if b.program, err = self(); err != nil {
		return report, err
	}
	if err = b.issue(); err != nil {
		return report, err
	}
	servers, err := b.serve(ctx, session.endpoint.AgentSocket)
	if err != nil {
		return report, err
	}
	o := bench.RemoteOptions{Program: b.tool, Rounds: rounds}
	for _, name := range []string{remoteUnix, remoteTLS} {
		route, err := b.route(ctx, name, servers[name])
		if err != nil {
			return report, fmt.Errorf("%s: %w", name, err)
		}
		o.Paths = append(o.Paths, route)
	}
	return bench.Remote(ctx, o)
}

// remoteBench is the processes of a measurement, which end with it.
type remoteBench struct {
	app                   *app
	folder, tool, program string
	processes             []*exec.Cmd
	conns                 []net.Conn
}

func (b *remoteBench) at(name string) string { return filepath.Join(b.folder, name) }

// end ends all, the last first.
func (b *remoteBench) end() {
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	for i := len(b.processes) - 1; i >= 0; i-- {
		_ = b.processes[i].Process.Signal(syscall.SIGTERM)
		_ = b.processes[i].Wait()
	}
}

// start starts a process that says so many lines when it is ready, and returns the last.
func (b *remoteBench) start(ctx context.Context, lines int, program string, args ...string) (string, error) {
	var complaints strings.Builder
	process := exec.CommandContext(ctx, program, args...)
	process.Stderr, process.WaitDelay = &complaints, time.Second
	output, err := process.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := process.Start(); err != nil {
		return "", err
	}
	said, last := bufio.NewReader(output), ""
	for range lines {
		if last, err = said.ReadString('\n'); err != nil {
			_ = process.Process.Kill()
			_ = process.Wait()
			return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), args[0], err, strings.TrimSpace(complaints.String()))
		}
	}
	b.processes = append(b.processes, process)
	return strings.TrimSpace(last), nil
}

// issue makes an authority with a server's certificate and a user's.
func (b *remoteBench) issue() error {
	authority, err := certificates.Init(b.at("ca"), time.Now())
	if err != nil {
		return err
	}
	_, server, err := authority.IssueServer([]string{"127.0.0.1"}, 1, time.Now())
	if err == nil {
		err = certificates.Write(filepath.Join(b.at("ca"), "server.pem"), server)
	}
	if err != nil {
		return err
	}
	_, user, err := authority.IssueClient("bench", "bench", 1, time.Now())
	if err == nil {
		err = certificates.Write(b.at(identityFile), user)
	}
	return err
}

// serve starts the server and a relay to it, and returns the socket of each way.
func (b *remoteBench) serve(ctx context.Context, agent string) (map[string]string, error) {
	free, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	host, port, _ := net.SplitHostPort(free.Addr().String())
	if err := free.Close(); err != nil {
		return nil, err
	}
	socket, relay := b.at("serve.sock"), b.at("relay.sock")
	if _, err := b.start(ctx, 2, b.program, "serve", "--agent", agent, "--listen", "unix:"+socket, "--listen", net.JoinHostPort(host, port),
		"--certificates", b.at("ca"), "--drain", "0s"); err != nil {
		return nil, err
	}
	if _, err := b.start(ctx, 0, b.program, relayingCommand, host, port, b.at(identityFile), relay); err != nil {
		return nil, err
	}
	return map[string]string{remoteUnix: socket, remoteTLS: relay}, nil
}

// route opens a run by one way, and what is bare beside it.
func (b *remoteBench) route(ctx context.Context, name, socket string) (bench.RemoteRoute, error) {
	conn, err := b.dial(ctx, socket)
	if err != nil {
		return bench.RemoteRoute{}, err
	}
	is, token, err := protocol.AskRun(conn, protocol.RunDocument{
		MemoryBytes: 8 << 30, Command: []string{"remotecalls"}, Client: protocol.ClientDocument{Host: "bench", User: "bench", Version: version},
	})
	if err != nil {
		return bench.RemoteRoute{}, b.app.remoteFailed(name, err)
	}
	dir, err := b.app.libraries()
	if err != nil {
		return bench.RemoteRoute{}, err
	}
	driver := library.Remote{BuildID: is.Driver.BuildID, CUDA: is.Driver.CUDA, NVML: is.Driver.NVML}
	fitted, err := dir.RemoteFor(driver, b.at("cache"))
	if err != nil {
		return bench.RemoteRoute{}, err
	}
	route := bench.RemoteRoute{Name: name, Env: remoteEnvironment(fitted.Dir, socket, token)}
	if route.Bare, err = b.chain(ctx, name); err == nil {
		route.Hop, err = b.hop(ctx, name)
	}
	return route, err
}

// dial connects to a daemon that may only just begin.
func (b *remoteBench) dial(ctx context.Context, socket string) (net.Conn, error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	ctx, cancel := context.WithTimeout(ctx, relayPatience)
	defer cancel()
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err == nil {
			b.conns = append(b.conns, conn)
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-tick.C:
		}
	}
}

// chain starts as many processes as a way has, which only pass bytes on.
func (b *remoteBench) chain(ctx context.Context, name string) (socket string, err error) {
	socket = b.at(name + "-echo.sock")
	if _, err := b.start(ctx, 1, b.tool, "echo", socket); err != nil || name == remoteUnix {
		return socket, err
	}
	port, err := b.start(ctx, 1, b.program, passingCommand, remoteTLS, "unix:"+socket, b.folder)
	if err != nil {
		return "", err
	}
	socket = b.at(name + "-relay.sock")
	_, err = b.start(ctx, 1, b.program, passingCommand, "unix:"+socket, "tls:"+port, b.folder)
	return socket, err
}

// hop connects to a process that takes bytes.
func (b *remoteBench) hop(ctx context.Context, name string) (net.Conn, error) {
	from := "tcp"
	if name == remoteTLS {
		from = remoteTLS
	}
	port, err := b.start(ctx, 1, b.program, passingCommand, from, "take", b.folder)
	if err != nil {
		return nil, err
	}
	conn, err := dialBare(ctx, from+":"+port, b.folder)
	if err == nil {
		b.conns = append(b.conns, conn)
	}
	return conn, err
}

// passingCommand is a process that passes one connection's bytes on, to compare with.
const passingCommand = "passing"

func (a *app) passingCommand() *cobra.Command {
	cmd := &cobra.Command{Use: passingCommand + " FROM TO FOLDER", Hidden: true, Args: cobra.ExactArgs(3), DisableFlagParsing: true}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		listener, err := listenBare(cmd.Context(), args[0], args[2])
		if err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, listener.Addr())
		near, err := listener.Accept()
		_ = listener.Close()
		if err != nil {
			return err
		}
		defer near.Close()
		if args[1] == "take" {
			return bench.Take(near)
		}
		far, err := dialBare(cmd.Context(), args[1], args[2])
		if err != nil {
			return err
		}
		bench.Pass(near, far)
		return nil
	})
	return cmd
}

// listenBare listens at unix:/path, or at a port for tcp or tls.
func listenBare(ctx context.Context, at, folder string) (net.Listener, error) {
	var config net.ListenConfig
	if path, is := strings.CutPrefix(at, "unix:"); is {
		return config.Listen(ctx, "unix", path)
	}
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil || at != remoteTLS {
		return listener, err
	}
	bundle, err := certificates.ReadBundle(filepath.Join(folder, "ca", "server.pem"))
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return tls.NewListener(listener, bundle.ServerTLS(func(string) bool { return false })), nil
}

// dialBare connects to unix:/path, tcp:HOST:PORT or tls:HOST:PORT.
func dialBare(ctx context.Context, to, folder string) (net.Conn, error) {
	kind, address, _ := strings.Cut(to, ":")
	if kind != remoteTLS {
		return (&net.Dialer{}).DialContext(ctx, kind, address)
	}
	bundle, err := certificates.ReadBundle(filepath.Join(folder, identityFile))
	if err != nil {
		return nil, err
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	return (&tls.Dialer{Config: bundle.ClientTLS(host)}).DialContext(ctx, "tcp", address)
}
