// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/socket"
)

// caller is a connection to a server.
type caller struct {
	t *testing.T
	net.Conn
}

// local connects by the unix socket, remote as a tenant by the port.
func (s *served) local() caller {
	s.t.Helper()
	conn, err := net.Dial("unix", s.socket)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return caller{s.t, conn}
}

func (s *served) remote(tenant string) caller {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.port)
	if err == nil {
		_, err = conn.Write([]byte(tenant))
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return caller{s.t, conn}
}

func (c caller) send(op protocol.Op, payload []byte) {
	c.t.Helper()
	if err := protocol.Write(c, op, payload); err != nil {
		c.t.Fatal(err)
	}
}

func (c caller) read(want protocol.Op) []byte {
	c.t.Helper()
	f, payload, err := protocol.Read(c, protocol.MaxPayload)
	if err != nil || f.Op != want {
		c.t.Fatalf("%v %q, %v, want %v", f.Op, payload, err, want)
	}
	return payload
}

// call is a call and its answer.
func (c caller) call(op protocol.Op, text string) string {
	c.t.Helper()
	c.send(op, []byte(text))
	return string(c.read(protocol.Reply))
}

// refused reads why.
func (c caller) refused() *protocol.Refusal {
	c.t.Helper()
	r, err := protocol.DecodeRefusal(c.read(protocol.Refused))
	if err != nil {
		c.t.Fatal(err)
	}
	if _, _, err := protocol.Read(c, 0); !errors.Is(err, io.EOF) {
		c.t.Errorf("after a refusal: %v", err)
	}
	return r
}

// ask asks for a run.
func (c caller) ask(d protocol.RunDocument) {
	c.t.Helper()
	d.Schema = protocol.SchemaRun
	raw, err := protocol.EncodeDocument(d)
	if err != nil {
		c.t.Fatal(err)
	}
	c.send(protocol.Run, raw)
}

func (c caller) run(d protocol.RunDocument) (protocol.RunningDocument, protocol.Token) {
	c.t.Helper()
	c.ask(d)
	is, token, err := protocol.DecodeRunning(c.read(protocol.Running))
	if err != nil {
		c.t.Fatal(err)
	}
	return is, token
}

// hello begins a session; the answer is the worker's process.
func (c caller) hello(token protocol.Token) {
	h := protocol.HelloPayload{Magic: protocol.Magic, Oldest: 1, Newest: 1, PID: 42, Token: token}
	copy(h.Command[:], "vectoradd")
	payload := append(h.Encode(), "of a newer library"...)
	_, _ = c.Write(append(protocol.Frame{Length: uint32(len(payload)), Op: protocol.Hello, Seq: 1}.Append(nil), payload...))
}

func (c caller) session(token protocol.Token) *socket.Process {
	c.t.Helper()
	c.hello(token)
	var pid int
	if _, err := fmt.Sscanf(string(c.read(protocol.Welcome)), "pid %d seq 1 more 18", &pid); err != nil {
		c.t.Fatal(err)
	}
	process, err := socket.OpenProcess(pid)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(process.Close)
	return process
}

func gone(t *testing.T, p *socket.Process) {
	t.Helper()
	if err := p.Wait(); err != nil {
		t.Fatal(err)
	}
}

func (s *served) status(by caller) protocol.StatusDocument {
	s.t.Helper()
	raw, err := protocol.EncodeDocument(protocol.AskDocument{Schema: protocol.SchemaAsk})
	if err != nil {
		s.t.Fatal(err)
	}
	by.send(protocol.Admin, raw)
	d, err := protocol.DecodeStatus(by.read(protocol.Admin))
	if err != nil {
		s.t.Fatal(err)
	}
	return d
}

func TestSession(t *testing.T) {
	for name, connect := range map[string]func(*served) caller{
		"unix socket": (*served).local,
		"port":        func(s *served) caller { return s.remote("a") },
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, nil)
			run := connect(s)
			is, token := run.run(protocol.RunDocument{MemoryBytes: 1 << 30, Command: []string{"vectoradd"}, Client: protocol.ClientDocument{Host: "h", User: "u"}})
			if is.Share != "run-1" || is.Device.UUID != "GPU-1" || strings.Join(is.Driver.CUDA, " ") != "cuGetIt cuInit" || is.Driver.BuildID == "" || is.Driver.Release != "535.1" {
				t.Errorf("%+v", is)
			}
			made := s.agent.shares["run-1"]
			if made.MemoryBytes != 1<<30 || !made.Ephemeral || made.Labels[labelClient] != "u@h" || made.Labels[labelTenant] != made.Tenant || made.Tenant == "" {
				t.Errorf("%+v", made.ShareSpec)
			}
			one := connect(s)
			worker := one.session(token)
			long := strings.Repeat("x", 1<<20)
			if got := one.call(callEcho, long); got != long {
				t.Errorf("%d bytes came back", len(got))
			}
			env := one.call(callEnvironment, "")
			for _, want := range []string{
				"LD_LIBRARY_PATH=/front", "DIVVY_SOCKET=/share.sock", "DIVVY_SIMULATOR=/sim.sock", "DIVVY_DRIVER_DIR=" + s.agent.driver,
				"CUDA_VISIBLE_DEVICES=0", "CUDA_MPS_PIPE_DIRECTORY=/mps",
			} {
				if !strings.Contains("\n"+env+"\n", "\n"+want+"\n") {
					t.Errorf("the worker's environment lacks %s:\n%s", want, env)
				}
			}
			if strings.Contains(env, "LD_PRELOAD") {
				t.Errorf("the worker's environment:\n%s", env)
			}
			two := connect(s)
			other := two.session(token)
			st := s.status(connect(s))
			if len(st.Runs) != 1 || len(st.Runs[0].Sessions) != 2 || st.Runs[0].Sessions[0].Program != "vectoradd" || st.Runs[0].Sessions[0].PID != 42 ||
				st.Runs[0].Sessions[0].Relayed == (name == "unix socket") || st.Tenants[0].MemoryBytes != 1<<30 || st.Tenants[0].Sessions != 2 {
				t.Errorf("%+v", st)
			}
			_ = one.Close()
			gone(t, worker)
			if two.call(callEcho, "still") != "still" {
				t.Error("a session ended with its neighbour")
			}
			// The run ends with its connection, and takes what is left with it.
			_ = run.Close()
			gone(t, other)
			if _, err := io.ReadAll(two); err != nil && !errors.Is(err, io.EOF) {
				t.Log(err)
			}
			s.stop()
			if err := <-s.done; err != nil {
				t.Error(err)
			}
			s.done <- nil
			if names := s.agent.names(); len(names) != 0 || len(s.agent.entered) != 2 {
				t.Errorf("shares %q are left, %q were entered", names, s.agent.entered)
			}
			for _, want := range []string{`"msg":"share"`, `"msg":"session"`, `"program":"vectoradd"`} {
				if !strings.Contains(s.audit.String(), want) {
					t.Errorf("no %s in\n%s", want, s.audit)
				}
			}
		})
	}
}

// A worker that dies takes its connection with it, after what it said last; one that stays
// is killed.
func TestWorkers(t *testing.T) {
	for name, connect := range map[string]func(*served) caller{
		"unix socket": (*served).local,
		"port":        func(s *served) caller { return s.remote("a") },
	} {
		t.Run(name, func(t *testing.T) {
			s := serving(t, func(_ *Config, s *Server) { s.grace = time.Millisecond })
			run := connect(s)
			_, token := run.run(protocol.RunDocument{})
			one := connect(s)
			worker := one.session(token)
			one.send(callDie, nil)
			gone(t, worker)
			if name == "unix socket" { // else its bytes may be late by more than the grace
				if got := one.read(protocol.Print); string(got) != "last words" {
					t.Errorf("%q", got)
				}
			}
			if _, err := io.ReadAll(one); err != nil {
				t.Error(err)
			}
			two := connect(s)
			worker = two.session(token)
			two.call(callStay, "")
			_ = two.Close()
			gone(t, worker)
		})
	}
}

func TestRefused(t *testing.T) {
	s := serving(t, nil)
	run := s.local()
	_, token := run.run(protocol.RunDocument{})
	for name, c := range map[string]struct {
		begin  func(caller)
		by     func() caller
		code   int
		result uint32
		says   string
	}{
		"unknown token": {func(c caller) { c.hello(protocol.Token{1}) }, s.local, exitNotThere, protocol.SystemNotReady, "the run of this program has ended"},
		"another's run": {func(c caller) { c.hello(token) }, func() caller { return s.remote("b") }, exitNotThere, protocol.SystemNotReady, "or is another's"},
		"version": {func(c caller) {
			c.send(protocol.Hello, protocol.HelloPayload{Magic: protocol.Magic, Oldest: 7, Newest: 9, Token: token}.Encode())
		}, s.local, exitUsage, protocol.SystemNotReady, "versions 7 to 9 of remote calls, the server 1 to 1"},
		"magic":       {func(c caller) { c.send(protocol.Hello, protocol.HelloPayload{Newest: 1}.Encode()) }, s.local, exitUsage, protocol.SystemNotReady, "magic"},
		"short hello": {func(c caller) { c.send(protocol.Hello, []byte("x")) }, s.local, exitUsage, protocol.SystemNotReady, "HELLO of 1 bytes"},
		"document":    {func(c caller) { c.send(protocol.Run, []byte(`{"schema":"x"}`)) }, s.local, exitUsage, protocol.SystemNotReady, `schema "x"`},
		"a call":      {func(c caller) { c.send(callEcho, nil) }, s.local, exitUsage, protocol.SystemNotReady, "call 0 before anything else"},
		"length": {func(c caller) {
			_, _ = c.Write(protocol.Frame{Op: protocol.Run, Length: 2 << 30}.Append(nil))
		}, s.local, exitUsage, protocol.SystemNotReady, "more than 262144"},
		"no share":        {func(c caller) { c.ask(protocol.RunDocument{Join: "none"}) }, s.local, exitNotThere, protocol.SystemNotReady, "no share none"},
		"another's share": {func(c caller) { c.ask(protocol.RunDocument{Join: "run-1"}) }, func() caller { return s.remote("b") }, exitNotThere, protocol.DeviceUnavailable, `no share "run-1" of tenant b`},
		"priority":        {func(c caller) { c.ask(protocol.RunDocument{Priority: 5}) }, func() caller { return s.remote("b") }, exitNotAllowed, protocol.DeviceUnavailable, "priority 5: tenant b may have 0 at most"},
	} {
		t.Run(name, func(t *testing.T) {
			by := c.by()
			by.t = t
			c.begin(by)
			r := by.refused()
			if r.ExitCode != c.code || r.Result != c.result || !strings.Contains(r.Message, c.says) {
				t.Errorf("%+v", r)
			}
		})
	}
	if names := s.agent.names(); len(names) != 1 {
		t.Errorf("shares %q", names)
	}
	if !strings.Contains(s.audit.String(), `"msg":"refused"`) {
		t.Errorf("no refusal in\n%s", s.audit)
	}
}

// What a step cannot do, the program's library is told in the worker's place.
func TestStepFails(t *testing.T) {
	s := serving(t, nil)
	run := s.local()
	_, token := run.run(protocol.RunDocument{})
	s.agent.mutex.Lock()
	delete(s.agent.shares, "run-1")
	s.agent.mutex.Unlock()
	for _, c := range []caller{s.local()} {
		c.hello(token)
		if r := c.refused(); r.ExitCode != exitNotThere || r.Result != protocol.DeviceUnavailable || !strings.Contains(r.Message, "no share run-1") {
			t.Errorf("%+v", r)
		}
	}
}

// A tenant has no more than its part, whatever it asks for.
func TestLimits(t *testing.T) {
	s := serving(t, func(c *Config, _ *Server) {
		c.Sessions = 3
		c.Tenants = []Tenant{{Name: "a", MemoryBytes: 4 << 30, CoresPercent: 50, Sessions: 1, Runs: 2, UIDs: []int{os.Getuid()}}, {Name: "b", Cards: []string{"GPU-2"}}}
	})
	first := s.local()
	if is, _ := first.run(protocol.RunDocument{MemoryBytes: 3 << 30, CoresPercent: 20}); is.Share == "" {
		t.Error("no share")
	}
	for _, c := range []struct {
		by     caller
		d      protocol.RunDocument
		result uint32
		says   string
		hint   string
	}{
		{s.local(), protocol.RunDocument{MemoryBytes: 2 << 30}, protocol.OutOfMemory, "2GiB of memory: tenant a has 1GiB of its 4GiB left", "--mem 1GiB"},
		{s.remote("a"), protocol.RunDocument{CoresPercent: 40}, protocol.DeviceUnavailable, "40 % of a GPU's time: tenant a has 30 of its 50 left", "--cores 30"},
		{s.local(), protocol.RunDocument{Policy: "equal"}, protocol.DeviceUnavailable, "policy equal: tenant a has a fixed part", "--policy fixed"},
		{s.remote("b"), protocol.RunDocument{}, protocol.DeviceUnavailable, "GPU-1, which tenant b may not use", ""},
		{s.remote("c"), protocol.RunDocument{}, protocol.DeviceUnavailable, "tenant c is none of this server's", ""},
	} {
		c.by.ask(c.d)
		if r := c.by.refused(); r.ExitCode != exitNotAllowed || r.Result != c.result || !strings.Contains(r.Message, c.says) || r.Hint != c.hint {
			t.Errorf("%+v: %+v", c.d, r)
		}
	}
	// Who asks for nothing gets what is left.
	second := s.local()
	is, token := second.run(protocol.RunDocument{})
	if made := s.agent.shares[is.Share]; made.MemoryBytes != 1<<30 || made.CoresPercent != 30 {
		t.Errorf("%+v", made.ShareSpec)
	}
	third := s.local()
	third.ask(protocol.RunDocument{})
	if r := third.refused(); r.ExitCode != exitNotAllowed || !strings.Contains(r.Message, "2 runs: tenant a may have no more") {
		t.Errorf("%+v", r)
	}
	one, two := s.local(), s.local()
	one.session(token)
	two.hello(token)
	if r := two.refused(); r.ExitCode != exitNotAllowed || r.Result != protocol.DeviceUnavailable || !strings.Contains(r.Message, "1 processes: tenant a may have no more") {
		t.Errorf("%+v", r)
	}
}

// Of one address no more than a part comes in before it has said what it wants, and none of
// them stays for long.
func TestWaiting(t *testing.T) {
	s := serving(t, func(_ *Config, s *Server) { s.patience = time.Hour })
	var silent []caller
	for range maxWaitingEach {
		silent = append(silent, s.local())
	}
	if _, err := io.ReadAll(s.local()); err != nil {
		t.Errorf("one too many: %v", err)
	}
	// Others still come in.
	if st := s.status(s.remote("a")); st.Waiting != maxWaitingEach || st.Refusals != 1 {
		t.Errorf("%d wait, %d refused", st.Waiting, st.Refusals)
	}
	for _, c := range silent[1:] {
		_ = c.Close()
	}
	run := silent[0]
	run.run(protocol.RunDocument{})
}

// One tenant's connections leave room for others'.
func TestConnectionsOfATenant(t *testing.T) {
	s := serving(t, func(_ *Config, s *Server) { s.each = 2 })
	s.remote("a").run(protocol.RunDocument{})
	s.remote("a").run(protocol.RunDocument{})
	third := s.remote("a")
	third.ask(protocol.RunDocument{})
	if r := third.refused(); r.ExitCode != exitNotAllowed || !strings.Contains(r.Message, "2 connections: tenant a may have no more") {
		t.Errorf("%+v", r)
	}
	s.remote("b").run(protocol.RunDocument{})
}

func TestPatience(t *testing.T) {
	s := serving(t, func(_ *Config, s *Server) { s.patience = time.Millisecond })
	c := s.local()
	_, _ = c.Write(make([]byte, 3))
	f, _, err := protocol.Read(c, protocol.MaxControl)
	if err == nil && f.Op != protocol.Refused {
		t.Errorf("%v", f)
	}
}

func TestRevoke(t *testing.T) {
	s := serving(t, nil)
	a, b := s.remote("a"), s.remote("b")
	_, token := a.run(protocol.RunDocument{})
	b.run(protocol.RunDocument{})
	one := s.remote("a")
	worker := one.session(token)
	s.Revoke(func(serial string) bool { return serial == "serial-a" })
	gone(t, worker)
	if _, err := io.ReadAll(a); err != nil {
		t.Log(err)
	}
	if st := s.status(s.remote("b")); len(st.Runs) != 1 || st.Runs[0].Tenant != "b" {
		t.Errorf("%+v", st.Runs)
	}
	s.stop()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
	s.Revoke(func(string) bool { return true }) // who looks what is revoked may end later
}

// A server that is to end lets its runs end, and lets no new ones begin.
func TestDrain(t *testing.T) {
	s := serving(t, func(c *Config, _ *Server) { c.Drain = time.Hour })
	run := s.local()
	_, token := run.run(protocol.RunDocument{})
	s.stop()
	for !s.status(s.local()).Draining { // the order comes by another way
	}
	late := s.local()
	late.ask(protocol.RunDocument{})
	if r := late.refused(); r.ExitCode != exitUnreachable {
		t.Errorf("%+v", r)
	}
	one := s.local()
	one.session(token)
	if one.call(callEcho, "still") != "still" {
		t.Error("no answer")
	}
	_ = run.Close()
	if err := <-s.done; err != nil {
		t.Error(err)
	}
	s.done <- nil
}
