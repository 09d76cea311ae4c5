// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// audit runs a command about the audit, and decodes what it shows.
func (h *host) audit(t testing.TB, into any, arguments ...string) {
	t.Helper()
	env := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + h.directory, "DIVVY_LIBDIR=" + built(t, "lib", "divvy")}
	ended := run(t, env, divvy(t), append(append([]string{"audit"}, arguments...), "--agent", h.AgentSocket, "--json")...)
	if err := json.Unmarshal([]byte(ended.stdout), into); err != nil || ended.code != 0 {
		t.Fatalf("exit code %d, %v: %s%s", ended.code, err, ended.stdout, ended.stderr)
	}
}

// However often the agent is killed while it writes, what is in the audit follows each other, and nothing is missing
// that was answered.
func TestAuditOverKills(t *testing.T) {
	t.Parallel()
	kills := fromEnvironment(t, "DIVVY_AUDIT_KILLS", 8)
	h := newHost(t, hostOptions{})
	var number atomic.Int64
	var mutex sync.Mutex
	answered := map[string]bool{}
	until := make(chan struct{})
	var all sync.WaitGroup
	for range 3 {
		all.Go(func() {
			for {
				select {
				case <-until:
					return
				default:
				}
				name := "s" + strconv.FormatInt(number.Add(1), 10)
				if _, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: name, MemoryBytes: 128 * mib}); err == nil {
					mutex.Lock()
					answered["share.create "+name] = true
					mutex.Unlock()
				}
				if h.client.DeleteShare(t.Context(), name, false) == nil {
					mutex.Lock()
					answered["share.delete "+name] = true
					mutex.Unlock()
				}
			}
		})
	}
	some := func() int {
		mutex.Lock()
		defer mutex.Unlock()
		return len(answered)
	}
	for range kills {
		before, enough := some(), 10+rand.IntN(40)
		eventually(t, "things are done", func() error {
			if some() < before+enough {
				return errors.New("too few")
			}
			return nil
		}, h.agent)
		h.killWorker(t, nil)
	}
	close(until)
	all.Wait()
	var verified api.AuditVerified
	begun := time.Now()
	h.audit(t, &verified, "verify")
	t.Logf("%d lines, verified in %v; %d things were answered", verified.Lines, time.Since(begun), len(answered))
	if !verified.OK || verified.Lines < uint64(len(answered)) {
		t.Errorf("%+v, bad %+v", verified, verified.Bad)
	}
	var starts api.Audit
	h.audit(t, &starts, "list", "--verb", "agent.start", "--last", "1000")
	if len(starts.Lines) != kills+1 {
		t.Errorf("%d starts, %d kills", len(starts.Lines), kills)
	}
	files, err := filepath.Glob(filepath.Join(h.directory, "audit", "audit-*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files { // all of them: the command shows the last 10,000
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for one := range bytes.Lines(raw) {
			var l api.AuditLine
			if err := json.Unmarshal(one, &l); err != nil {
				t.Fatal(err)
			}
			if l.Outcome == "done" {
				delete(answered, l.Verb+" "+l.Object)
			}
		}
	}
	if len(answered) > 0 {
		t.Errorf("%d things were answered and are not in the audit: %v", len(answered), answered)
	}
}
