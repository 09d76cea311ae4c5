// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/environment"
	"github.com/divvy-gpu/divvy/internal/remote/pipe"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// session is one process of a run, and its worker.
type session struct {
	id      uint64
	program string
	pid     uint32 // there
	worker  int    // here; 0: not started yet
	since   time.Time
	pipe    *pipe.Pipe // nil: the worker has the connection itself
	tally   tally      // read and closed under the state's lock
}

// workerGrace is how long a worker may take to end when its connection has, and to take what
// is left when it has ended.
const workerGrace = 2 * time.Second

// session serves a process of a run until its worker has ended.
func (s *Server) session(ctx context.Context, c *connection, f protocol.Frame, payload []byte, handed bool) error {
	hello, err := protocol.DecodeHello(payload)
	if err != nil {
		return err
	}
	if _, ok := hello.Agree(); !ok {
		return &protocol.Refusal{
			ExitCode: exitUsage, Result: protocol.SystemNotReady,
			Message: fmt.Sprintf("the program's library speaks versions %d to %d of remote calls, the server %d to %d", hello.Oldest, hello.Newest, protocol.Oldest, protocol.Version),
			Hint:    "use the same version of divvy on both sides",
		}
	}
	n := &session{program: hello.Program(), pid: hello.PID, since: time.Now()}
	var r *run
	s.do(func(st *state) { r, err = st.open(s.cfg, sha256.Sum256(hello.Token[:]), c.Identity, n) })
	if err != nil {
		return err
	}
	defer s.shut(r, n)
	counts, err := newTally()
	if err != nil {
		return err
	}
	s.do(func(*state) { n.tally = counts })
	w, err := s.start(c, r, n, handed, append(f.Append(nil), payload...))
	if err != nil {
		return err
	}
	s.audit("session", "session", n.id, "share", r.ready.share.Name, "tenant", r.Tenant, "user", r.User, "from", c.From, "client", r.asked.Client.Host,
		"program", n.program, "pid", n.pid, "workerPid", n.worker)
	w.attend(ctx, r.over, s.grace)
	return nil
}

// open counts a session in.
func (st *state) open(cfg Config, key [sha256.Size]byte, who Identity, n *session) (*run, error) {
	r := st.runs[key]
	switch {
	case r == nil || !r.same(who) || r.ending || r.ready == nil:
		return nil, &protocol.Refusal{
			ExitCode: exitNotThere, Result: protocol.SystemNotReady, Message: "the run of this program has ended, or is another's",
			Hint: "start the program by divvy run --remote",
		}
	case st.sessions >= cfg.Sessions:
		return nil, notAllowed("%d processes use the server: it takes no more at once", st.sessions)
	case r.limits.Sessions > 0 && st.totals(r.Tenant).Sessions >= r.limits.Sessions:
		return nil, notAllowed("%d processes: tenant %s may have no more at once", r.limits.Sessions, r.Tenant)
	}
	st.lastSession++
	st.sessions++
	n.id = st.lastSession
	r.sessions[n] = true
	return r, nil
}

// shut forgets a session.
func (s *Server) shut(r *run, n *session) {
	s.do(func(st *state) {
		st.sessions--
		delete(r.sessions, n)
		counted := n.tally.read()
		r.calls, r.waits = r.calls+counted.Calls, r.waits+counted.Waits
		n.tally.close()
		if r.ending && len(r.sessions) == 0 {
			close(r.empty)
		}
	})
}

// worker is the process of a session, with what it needs here.
type worker struct {
	cmd     *exec.Cmd
	process *socket.Process
	hungUp  <-chan struct{} // the client sends nothing more
	drained <-chan struct{} // all that the worker sent is passed on
	close   func()          // ends what passes on, and waits for it
}

// start starts the worker of a session and gives it the connection.
func (s *Server) start(c *connection, r *run, n *session, handed bool, hello []byte) (*worker, error) {
	w := &worker{}
	var theirs *os.File
	var err error
	if handed {
		theirs, err = w.hand(c)
	} else {
		theirs, err = s.relay(w, c, n, hello)
	}
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	line := s.parts.Step(Step{Agent: r.ready.agent, Share: r.ready.share.Name, UID: r.ready.uid, Worker: s.parts.Worker})
	w.cmd = &exec.Cmd{
		Path: line[0], Args: line[1:], Env: r.ready.environment(), Dir: "/", WaitDelay: s.grace,
		ExtraFiles:  []*os.File{workerSocket - 3: theirs, protocol.TallyDescriptor - 3: n.tally.file},
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	if s.parts.Output != nil {
		w.cmd.Stdout, w.cmd.Stderr = s.parts.Output, s.parts.Output
	}
	if err = w.cmd.Start(); err == nil {
		if w.process, err = socket.OpenProcess(w.cmd.Process.Pid); err != nil {
			_ = w.cmd.Process.Kill()
			_ = w.cmd.Wait()
		}
	}
	if !handed {
		_ = theirs.Close()
	}
	if err != nil {
		w.close()
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	s.do(func(*state) { n.worker = w.cmd.Process.Pid })
	if handed {
		_ = c.conn.Close() // the worker has it; what we keep only watches
	}
	return w, nil
}

// hand gives a worker the connection itself, HELLO still in it. We keep a descriptor that
// shows when the client hangs up.
func (w *worker) hand(c *connection) (*os.File, error) {
	conn, _ := unixOf(c.conn)
	file, err := blocking(conn)
	if err != nil {
		return nil, err
	}
	watch, err := socket.HangupOf(file)
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	hungUp, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		if watch.Wait() == nil {
			close(hungUp)
		}
	}()
	drained := make(chan struct{})
	close(drained)
	w.hungUp, w.drained = hungUp, drained
	w.close = func() {
		watch.Close()
		<-done
		_ = file.Close()
	}
	return file, nil
}

// blocking is another descriptor of a connection, whose reads and writes wait, as a worker
// expects. Go's poller must not know it: it would wake us for all that the worker gets.
func blocking(conn *net.UnixConn) (*os.File, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var file *os.File
	var failed error
	err = raw.Control(func(fd uintptr) {
		if failed = unix.SetNonblock(int(fd), false); failed != nil {
			return
		}
		var twin int
		if twin, failed = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); failed == nil {
			file = os.NewFile(uintptr(twin), "connection") // not polled, because it blocks
		}
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	return file, nil
}

// relay gives a worker one end of a pair, and passes the connection's bytes on to the other.
func (s *Server) relay(w *worker, c *connection, n *session, hello []byte) (*os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "worker"), os.NewFile(uintptr(fds[1]), "worker")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err == nil {
		_, err = conn.Write(hello)
	}
	if err != nil {
		_ = theirs.Close()
		return nil, err
	}
	if err := pipe.Watch(c.conn, false); err != nil { // its run's connection tells when the other end is dead
		_ = theirs.Close()
		_ = conn.Close()
		return nil, err
	}
	far, _ := unixOf(conn)
	p := pipe.New(c.conn, far)
	s.do(func(*state) { n.pipe = p })
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.Run()
	}()
	w.hungUp, w.drained = p.NearEnded, p.FarEnded
	w.close = func() {
		p.Close()
		<-done
	}
	return theirs, nil
}

// attend waits until the worker has ended, and ends it when its client or its run has.
func (w *worker) attend(ctx context.Context, over <-chan struct{}, grace time.Duration) {
	ended := make(chan struct{})
	go func() { // Kill below makes it end
		defer close(ended)
		_ = w.process.Wait()
	}()
	select {
	case <-ended:
	case <-w.hungUp:
		late := time.NewTimer(grace)
		select {
		case <-ended:
		case <-late.C:
		case <-over:
		case <-ctx.Done():
		}
		late.Stop()
	case <-over:
	case <-ctx.Done():
	}
	_ = w.cmd.Process.Kill() // by a descriptor of the process: nothing else can be meant
	<-ended
	w.process.Close()
	_ = w.cmd.Wait()
	late := time.NewTimer(grace)
	defer late.Stop()
	select {
	case <-w.drained:
	case <-late.C:
	case <-ctx.Done():
	}
	w.close()
}

// environment is what a worker of a run begins with: the front of the driver is loaded by
// name, by the worker itself.
func (r *ready) environment() []string {
	env := environment.Share{
		Front: r.front, Socket: r.share.Socket, DriverDirectory: r.version.DriverDirectory, Simulator: r.version.Simulator,
		CardUUIDs: r.share.CardUUIDs(), Loads: true,
	}.Over([]string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/nonexistent"})
	return slices.DeleteFunc(env, func(entry string) bool {
		return strings.HasPrefix(entry, "LD_PRELOAD=") || strings.HasPrefix(entry, "ASAN_OPTIONS=")
	})
}
