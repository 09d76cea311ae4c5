// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// fakeAgent answers as an agent of another version would; an old one knows no runs.
func fakeAgent(t *testing.T, wireVersion int, old bool) string {
	t.Helper()
	folder, err := os.MkdirTemp("/tmp", "dv")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	socket := filepath.Join(folder, "agent.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	answer := func(document any) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(document) }
	}
	routes := http.NewServeMux()
	version := api.Version{Schema: api.SchemaVersion, Wire: wireVersion, DriverDirectory: "/nowhere"}
	routes.Handle("GET /v1/version", answer(version))
	if !old {
		routes.Handle("POST /v1/runs", answer(api.Run{Version: version, Share: api.Share{ShareSpec: api.ShareSpec{Name: "old"}, Socket: "/nowhere"}}))
	}
	server := &http.Server{Handler: routes}
	go func() { _ = server.Serve(listener) }() // ends with Close
	t.Cleanup(func() { _ = server.Close() })
	return socket
}

// An agent of another version is found out before the command starts.
func TestVersionsDiffer(t *testing.T) {
	for _, old := range []bool{false, true} {
		socket := fakeAgent(t, wire.Version+1, old)
		for _, share := range [][]string{{"--share", "old"}, {"--mem", "1GiB"}} {
			var stdout, stderr bytes.Buffer
			code := Main(slices.Concat([]string{"run", "--agent", socket}, share, []string{"--", "true"}), strings.NewReader(""), &stdout, &stderr)
			if code != exitRunFailed || !strings.Contains(stderr.String(), fmt.Sprintf("the agent speaks wire %d, this divvy %d", wire.Version+1, wire.Version)) ||
				!strings.Contains(stderr.String(), "divvy: hint: restart the agent") {
				t.Errorf("old %v, %v: code %d, stderr %q", old, share, code, stderr.String())
			}
		}
		var stdout, stderr bytes.Buffer
		if code := Main([]string{"doctor", "--agent", socket}, strings.NewReader(""), &stdout, &stderr); code != exitFailed ||
			!strings.Contains(stdout.String(), "fail  agent") {
			t.Errorf("doctor: code %d, %q", code, stdout.String())
		}
	}
}
