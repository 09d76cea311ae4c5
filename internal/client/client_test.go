// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
)

// serve answers at a socket like an agent would.
func serve(t *testing.T, path string, handler http.Handler) *http.Server {
	t.Helper()
	listener, err := net.Listen("unix", path)
	must(t, err)
	return serveAt(t, listener, handler)
}

func serveAt(t *testing.T, listener net.Listener, handler http.Handler) *http.Server {
	t.Helper()
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
	return server
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func socketPath(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "divvy-client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	return filepath.Join(folder, "s")
}

func TestNobodyThere(t *testing.T) {
	c := New(socketPath(t))
	_, err := c.Version(context.Background())
	var failure *api.Error
	if !errors.Is(err, ErrUnreachable) || !errors.As(err, &failure) || failure.Code != api.CodeUnavailable {
		t.Errorf("nobody listens: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Version(ctx); !errors.Is(err, context.Canceled) || errors.Is(err, ErrUnreachable) {
		t.Errorf("asked to stop: %v", err)
	}
}

func TestAnswers(t *testing.T) {
	path := socketPath(t)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/shares/a", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeNotAllowed, Message: "no", Hint: "try b"})
	})
	mux.HandleFunc("GET /v1/shares/{name}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("name") != "b/.." {
			http.Error(w, "proxy says no", http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(api.Share{State: "active"})
	})
	mux.HandleFunc("GET /v1/devices", func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write([]byte(`{"cards":[`))
		panic(http.ErrAbortHandler)
	})
	serve(t, path, mux)
	c := New(path)
	ctx := context.Background()
	var failure *api.Error
	if _, err := c.Share(ctx, "a"); !errors.As(err, &failure) || failure.Code != api.CodeNotAllowed || failure.Hint != "try b" || errors.Is(err, ErrUnreachable) {
		t.Errorf("a refusal: %v", err)
	}
	if s, err := c.Share(ctx, "b/.."); err != nil || s.State != "active" {
		t.Errorf("a name that needs escaping: %+v, %v", s, err)
	}
	if _, err := c.Share(ctx, "c"); !errors.As(err, &failure) || failure.Code != api.CodeUnavailable {
		t.Errorf("not an agent's answer: %v", err)
	}
	if _, err := c.Devices(ctx); !errors.Is(err, ErrUnreachable) {
		t.Errorf("half an answer: %v", err)
	}
}

// An agent that is on its way out counts as none: the next one is asked.
func TestLeavingAgent(t *testing.T) {
	path := socketPath(t)
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
		_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeUnavailable, Message: "the agent is leaving", Leaving: true})
	}))
	for what, ask := range map[string]func(*Client) error{
		"share": func(c *Client) error { _, err := c.Share(context.Background(), "a"); return err },
		"run":   func(c *Client) error { _, _, err := c.Run(context.Background(), api.RunSpec{Share: "a"}); return err },
	} {
		if err := ask(New(path)); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// An agent that others keep so busy that its queue is full is asked for as long as the
// request has time, and answers when it gets to it.
func TestFullQueue(t *testing.T) {
	path := socketPath(t)
	listening, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(t, err)
	must(t, unix.Bind(listening, &unix.SockaddrUnix{Name: path}))
	must(t, unix.Listen(listening, 0))
	file := os.NewFile(uintptr(listening), path)
	listener, err := net.FileListener(file)
	must(t, err)
	must(t, file.Close())
	for err = error(nil); err == nil; {
		var waiting net.Conn
		if waiting, err = net.Dial("unix", path); err == nil {
			defer waiting.Close()
		}
	}
	if !errors.Is(err, unix.EAGAIN) {
		t.Fatalf("the queue is not full: %v", err)
	}
	c := New(path)
	soon, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.Version(soon); !errors.Is(err, ErrUnreachable) || soon.Err() == nil {
		t.Errorf("given up before its time: %v", err)
	}
	answered := make(chan error)
	go func() {
		_, err := c.Version(t.Context())
		answered <- err
	}()
	serveAt(t, listener, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Version{})
	}))
	if err := <-answered; err != nil {
		t.Error(err)
	}
}

// What a run asks for, and its hold, which is taken again as any other.
func TestRun(t *testing.T) {
	path := socketPath(t)
	ended := make(chan struct{})
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var spec api.RunSpec
		if err := json.NewDecoder(r.Body).Decode(&spec); err != nil || r.URL.Path != "/v1/runs" {
			t.Errorf("%s: %v", r.URL.Path, err)
		}
		run := api.Run{Share: api.Share{ShareSpec: api.ShareSpec{Name: "declared"}}}
		if spec.New != nil {
			run.Share.ShareSpec = *spec.New
		}
		_ = json.NewEncoder(w).Encode(run)
		_ = json.NewEncoder(w).Encode(api.Notice{PID: 5, Command: "bare"})
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
		ended <- struct{}{}
	}))
	for name, spec := range map[string]api.RunSpec{
		"declared": {Share: "declared"}, "new": {New: &api.ShareSpec{Name: "new", Ephemeral: true}},
	} {
		run, hold, err := New(path).Run(context.Background(), spec)
		if err != nil || run.Share.Name != name {
			t.Fatalf("%s: %+v, %v", name, run, err)
		}
		if n := <-hold.Notices(); n.PID != 5 || n.Command != "bare" {
			t.Errorf("%s: told %+v", name, n)
		}
		hold.Close()
		<-ended
	}
}

// What answers need not be an agent: its answer has bounds, and half of one is none.
func TestStrangeAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"nothing":       "",
		"noise":         "\x00\x01\x02",
		"half a header": "HTTP/1.1 200 OK\r\nX: ",
		"endless":       "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", maxHeaderBytes),
		"half a body":   "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"schema\":",
	} {
		path := socketPath(t)
		listener, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				_, _ = conn.Write([]byte(answer)) // it may be read no further
				_ = conn.Close()
			}
		}()
		if v, err := New(path).Version(context.Background()); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: %+v, %v", name, v, err)
		}
		if _, _, err := New(path).Run(context.Background(), api.RunSpec{}); !errors.Is(err, ErrUnreachable) {
			t.Errorf("%s: run: %v", name, err)
		}
		_ = listener.Close()
	}
}

// endless is a document that never ends.
type endless struct{ begun bool }

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	if !e.begun && len(p) > 0 {
		p[0], e.begun = '"', true
	}
	return len(p), nil
}

// Of an answer that has no end, each document has a bound, and they have none together.
func TestEndlessDocument(t *testing.T) {
	path := socketPath(t)
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/v1/events" && r.URL.Query().Get("since") == "1" {
			message := strings.Repeat("x", maxDocumentBytes/4)
			for n := range uint64(8) {
				_ = json.NewEncoder(w).Encode(api.Event{Sequence: n, Message: message})
			}
			return
		}
		_, _ = io.CopyN(w, &endless{}, 8*maxDocumentBytes) // it is read no further
		<-r.Context().Done()
	}))
	c, seen := New(path), 0
	err := c.Follow(t.Context(), 1, func(api.Event) error { seen++; return nil })
	if !errors.Is(err, ErrUnreachable) || !errors.Is(err, io.EOF) || seen != 8 {
		t.Errorf("long ones: %d were seen, %v", seen, err)
	}
	for name, ask := range map[string]func() error{
		"follow": func() error {
			return c.Follow(t.Context(), 0, func(api.Event) error { return errors.New("it was read") })
		},
		"run": func() error {
			_, _, err := c.Run(t.Context(), api.RunSpec{})
			return err
		},
	} {
		if err := ask(); !errors.Is(err, ErrUnreachable) || !strings.Contains(err.Error(), "a document of more than 16777216 bytes") {
			t.Errorf("%s: %v", name, err)
		}
	}
	var read endless
	counted := &countedReader{Reader: &read}
	if err := newDocuments(counted).next(&api.Notice{}); err == nil || counted.bytes != maxDocumentBytes {
		t.Errorf("%d bytes are read of it: %v", counted.bytes, err)
	}
}

// countedReader counts what is read.
type countedReader struct {
	io.Reader
	bytes int
}

func (r *countedReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.bytes += n
	return n, err
}

// A hold is taken again when the agent restarts, and ends when the share is
// gone.
func TestHoldSurvivesTheAgent(t *testing.T) {
	path := socketPath(t)
	var holds atomic.Int32
	held := func(w http.ResponseWriter, r *http.Request) {
		holds.Add(1)
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	first := serve(t, path, http.HandlerFunc(held))
	h, err := New(path).Hold(context.Background(), "s")
	if err != nil || holds.Load() != 1 {
		t.Fatalf("%d holds, %v", holds.Load(), err)
	}
	_ = first.Close()
	second := serve(t, path, http.HandlerFunc(held))
	deadline := time.Now().Add(10 * time.Second)
	for holds.Load() != 2 && time.Now().Before(deadline) {
		<-time.After(time.Millisecond)
	}
	if holds.Load() != 2 {
		t.Fatal("the hold was not taken again")
	}
	_ = second.Close()
	serve(t, path, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(api.Error{Code: api.CodeNotFound})
	}))
	select {
	case <-h.Done():
	case <-time.After(10 * time.Second):
		t.Error("the share is gone, the hold is not")
	}
	h.Close()
}
