// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

type fakeAgent struct{ err error }

func (a fakeAgent) DCGMMetrics(ctx context.Context, accept string) (io.ReadCloser, string, error) {
	return a.Metrics(ctx, accept)
}

func (a fakeAgent) Metrics(_ context.Context, accept string) (io.ReadCloser, string, error) {
	return io.NopCloser(strings.NewReader("divvy_agent_clients 3\n")), "type of " + accept, a.err
}

func TestCheck(t *testing.T) {
	for address, ok := range map[string]bool{
		"127.0.0.1:7180": true, "[::1]:7180": true, "localhost:0": true, "127.9.9.9:1": true, "[::ffff:127.0.0.1]:80": true, "LOCALHOST:1": true,
		"0.0.0.0:7180": false, ":7180": false, "[::]:7180": false, "192.168.1.2:7180": false, "example.org:7180": false, "127.0.0.1": false, "127.0.0.1:": false, "": false,
		"localhost.example.org:1": false, "127.0.0.1.example.org:1": false,
	} {
		err := Check(address)
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrAddress) {
			t.Errorf("%q: %v", address, err)
		}
		if ok {
			continue
		}
		if l, err := Listen(t.Context(), address); !errors.Is(err, ErrAddress) {
			t.Errorf("%q: listens on %v, %v", address, l, err)
		}
	}
}

// Metrics are passed on with their type to whoever asks by a name of this machine.
func TestHandler(t *testing.T) {
	for _, c := range []struct {
		host, path string
		agent      fakeAgent
		status     int
		body       string
	}{
		{"127.0.0.1:7180", "/metrics", fakeAgent{}, 200, "divvy_agent_clients 3\n"},
		{"localhost", "/metrics", fakeAgent{}, 200, "divvy_agent_clients 3\n"},
		{"[::1]:7180", "/metrics", fakeAgent{}, 200, "divvy_agent_clients 3\n"},
		{"evil.example:7180", "/metrics", fakeAgent{}, 403, ""},
		{"", "/metrics", fakeAgent{}, 403, ""},
		{"127.0.0.1", "/metrics", fakeAgent{errors.New("no agent")}, 502, "no agent\n"},
		{"127.0.0.1", "/", fakeAgent{}, 200, "divvy web: /metrics\n"},
		{"127.0.0.1", "/v1/shares", fakeAgent{}, 404, ""},
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, c.path, nil)
		r.Host = c.host
		r.Header.Set("Accept", "x")
		Handler(c.agent).ServeHTTP(w, r)
		if w.Code != c.status || c.body != "" && w.Body.String() != c.body {
			t.Errorf("%s %s: %d %q", c.host, c.path, w.Code, w.Body)
		}
		if c.body == "divvy_agent_clients 3\n" && w.Header().Get("Content-Type") != "type of x" {
			t.Errorf("type %q", w.Header().Get("Content-Type"))
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/metrics", nil)
	r.Host = "localhost"
	w := httptest.NewRecorder()
	if Handler(fakeAgent{}).ServeHTTP(w, r); w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
