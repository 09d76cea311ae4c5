// SPDX-License-Identifier: Apache-2.0

package server

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/remote/pipe"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// The test binary is the step and the worker as well.
func TestMain(m *testing.M) {
	switch {
	case os.Args[0] == "divvy-worker":
		fakeWorker()
	case len(os.Args) > 1 && os.Args[1] == "step":
		step, err := ParseStep(os.Args[2:])
		if err == nil {
			err = step.Become(context.Background(), explain)
		}
		fmt.Fprintln(os.Stderr, err)
		os.Exit(exitUnreachable)
	}
	os.Exit(m.Run())
}

func explain(err error) (int, string) {
	if failure, is := errors.AsType[*api.Error](err); is && failure.Code == api.CodeNotFound {
		return exitNotThere, failure.Hint
	}
	return exitUnreachable, ""
}

// Calls that the fake worker knows.
const (
	callEcho        = protocol.FirstCall + iota
	callEnvironment // answers its environment
	callStay        // does not end with its connection
	callDie
)

// fakeWorker answers calls on descriptor 3.
func fakeWorker() {
	conn := os.NewFile(workerSocket, "connection")
	f, payload, err := protocol.Read(conn, protocol.MaxControl)
	if err != nil || f.Op != protocol.Hello {
		os.Exit(3)
	}
	if _, err = protocol.DecodeHello(payload); err == nil {
		err = protocol.Write(conn, protocol.Welcome, []byte(fmt.Sprintf("pid %d seq %d more %d", os.Getpid(), f.Seq, len(payload)-protocol.HelloSize)))
	}
	stays := false
	for err == nil {
		if f, payload, err = protocol.Read(conn, protocol.MaxPayload); err != nil {
			break
		}
		switch f.Op {
		case callEnvironment:
			payload = []byte(strings.Join(os.Environ(), "\n"))
		case callStay:
			stays = true
		case callDie:
			_ = protocol.Write(conn, protocol.Print, []byte("last words"))
			os.Exit(9)
		}
		err = protocol.Write(conn, protocol.Reply, payload)
	}
	if stays {
		select {}
	}
	os.Exit(0)
}

// fakeAgent is an agent with shares that hold nothing.
type fakeAgent struct {
	t      *testing.T
	socket string
	driver string

	mutex   sync.Mutex // guards everything below
	shares  map[string]api.Share
	entered []string
	noRoom  bool
	made    int
}

func newFakeAgent(t *testing.T) *fakeAgent {
	t.Helper()
	a := &fakeAgent{t: t, socket: filepath.Join(short(t), "agent.sock"), driver: t.TempDir(), shares: map[string]api.Share{}}
	source := filepath.Join(a.driver, "driver.c")
	if err := os.WriteFile(source, []byte("int cuInit(unsigned f) { return (int)f; }\nint cuGetIt(void) { return 0; }\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("gcc", "-shared", "-fPIC", "-o", filepath.Join(a.driver, "libcuda.so.1"), source).CombinedOutput(); err != nil {
		t.Fatalf("gcc: %v\n%s", err, out)
	}
	listener, err := net.Listen("unix", a.socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	answer := func(w http.ResponseWriter, status int, body any) {
		w.WriteHeader(status)
		_ = json.NewEncoder(w).Encode(body)
	}
	named := func(w http.ResponseWriter, r *http.Request) (api.Share, bool) {
		a.mutex.Lock()
		defer a.mutex.Unlock()
		is, ok := a.shares[r.PathValue("name")]
		if !ok {
			answer(w, http.StatusNotFound, api.Error{Code: api.CodeNotFound, Message: "no share " + r.PathValue("name")})
		}
		return is, ok
	}
	mux.HandleFunc("GET /v1/version", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, api.Version{DriverDirectory: a.driver, Simulated: true, Simulator: "/sim.sock"})
	})
	mux.HandleFunc("GET /v1/devices", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, api.Devices{Cards: []api.Card{{UUID: "GPU-1", DriverVersion: "535.1"}}})
	})
	mux.HandleFunc("POST /v1/shares", func(w http.ResponseWriter, r *http.Request) {
		var spec api.ShareSpec
		_ = json.NewDecoder(r.Body).Decode(&spec)
		a.mutex.Lock()
		defer a.mutex.Unlock()
		if a.noRoom {
			answer(w, http.StatusInsufficientStorage, api.Error{Code: api.CodeNoRoom, Message: "no room"})
			return
		}
		a.made++
		if spec.Name == "" {
			spec.Name = fmt.Sprintf("run-%d", a.made)
		}
		is := api.Share{ShareSpec: spec, CardUUID: "GPU-1", CardName: "L4", Socket: "/share.sock", Enforcement: "front"}
		a.shares[spec.Name] = is
		answer(w, http.StatusCreated, is)
	})
	mux.HandleFunc("GET /v1/shares/{name}", func(w http.ResponseWriter, r *http.Request) {
		if is, ok := named(w, r); ok {
			answer(w, http.StatusOK, is)
		}
	})
	mux.HandleFunc("DELETE /v1/shares/{name}", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := named(w, r); ok {
			a.mutex.Lock()
			delete(a.shares, r.PathValue("name"))
			a.mutex.Unlock()
			w.WriteHeader(http.StatusNoContent)
		}
	})
	mux.HandleFunc("POST /v1/shares/{name}/enter", func(w http.ResponseWriter, r *http.Request) {
		if _, ok := named(w, r); ok {
			a.mutex.Lock()
			a.entered = append(a.entered, r.PathValue("name"))
			a.mutex.Unlock()
			answer(w, http.StatusOK, api.Entry{Enforcement: "front", Environment: []string{"CUDA_MPS_PIPE_DIRECTORY=/mps"}})
		}
	})
	mux.HandleFunc("POST /v1/shares/{name}/hold", func(w http.ResponseWriter, r *http.Request) {
		if is, ok := named(w, r); ok {
			answer(w, http.StatusOK, is)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	})
	server := &http.Server{Handler: mux}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return a
}

func (a *fakeAgent) names() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	var names []string
	for name := range a.shares {
		names = append(names, name)
	}
	return names
}

// short is a folder whose path leaves room for a socket's name.
func short(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ds")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// served is a server that runs, with a unix socket and a port.
type served struct {
	*Server
	t      *testing.T
	agent  *fakeAgent
	socket string
	port   string
	audit  *lines
	stop   context.CancelFunc
	done   chan error
}

// serving runs a server. The port's callers are who says so in their first byte: tests have
// no certificates.
func serving(t *testing.T, change func(*Config, *Server)) *served {
	t.Helper()
	agent := newFakeAgent(t)
	cfg := Default()
	cfg.Drain, cfg.UIDs = 0, UIDRange{}
	s := &served{t: t, agent: agent, socket: filepath.Join(short(t), "serve.sock"), audit: &lines{}, done: make(chan error, 1)}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var early Server
	if change != nil {
		change(&cfg, &early)
	}
	parts := Parts{
		Version: "1.2.3",
		Agent: func(_ context.Context, call func(*client.Client) error) error {
			return call(client.New(agent.socket))
		},
		Front:   func(string) (string, error) { return "/front", nil },
		Step:    func(step Step) []string { return append([]string{program, "divvy", "step"}, step.Arguments()...) },
		Explain: explain, Worker: program,
		Logger: slog.New(slog.DiscardHandler), Audit: slog.New(slog.NewJSONHandler(s.audit, nil)),
	}
	if s.Server, err = New(cfg, parts); err != nil {
		t.Fatal(err)
	}
	if early.grace != 0 {
		s.grace = early.grace
	}
	if early.each != 0 {
		s.each = early.each
	}
	if early.patience != 0 {
		s.patience = early.patience
	}
	unixListener, err := ListenUnix(s.socket, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.port = tcp.Addr().String()
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	go func() { s.done <- s.Run(ctx, unixListener, fakeListener{tcp}) }()
	t.Cleanup(func() {
		stop()
		if err := <-s.done; err != nil {
			t.Error(err)
		}
		left := serversGoroutines()
		for deadline := time.Now().Add(time.Minute); left != "" && time.Now().Before(deadline); left = serversGoroutines() {
			<-time.After(time.Millisecond) // those that close a connection end a moment after Run
		}
		if left != "" {
			t.Errorf("goroutines of the server are left:\n%s", left)
		}
	})
	return s
}

// serversGoroutines returns the stacks of the goroutines that a server runs or has started.
func serversGoroutines() string {
	buffer := make([]byte, 1<<20)
	var of strings.Builder
	for stack := range strings.SplitSeq(string(buffer[:runtime.Stack(buffer, true)]), "\n\n") {
		if strings.Contains(stack, "server.(*Server)") {
			of.WriteString(stack + "\n\n")
		}
	}
	return of.String()
}

type fakeListener struct{ net.Listener }

func (l fakeListener) Accept() (Incoming, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return fakeIncoming{conn.(*net.TCPConn)}, nil
}

type fakeIncoming struct{ *net.TCPConn }

func (fakeIncoming) Address() string { return "127.0.0.1" }
func (i fakeIncoming) Close()        { _ = i.TCPConn.Close() }

func (i fakeIncoming) Open(context.Context) (pipe.End, Identity, error) {
	var name [1]byte
	if _, err := io.ReadFull(i.TCPConn, name[:]); err != nil {
		return nil, Identity{}, err
	}
	return i.TCPConn, Identity{Tenant: string(name[:]), User: "u", UID: -1, Serial: "serial-" + string(name[:]), From: "127.0.0.1"}, nil
}

// lines is a log in memory.
type lines struct {
	mutex sync.Mutex // guards buffer
	text  bytes.Buffer
}

func (l *lines) Write(line []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.Write(line)
}

func (l *lines) String() string {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.text.String()
}
