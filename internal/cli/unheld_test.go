// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os/exec"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/process"
	"github.com/divvy-gpu/divvy/internal/share"
)

// TestToldAfterTheEnd: what was seen of a run counts also if the run hears of it only when
// its command has ended; what that left behind ends with it.
func TestToldAfterTheEnd(t *testing.T) {
	left := exec.Command("sleep", "1000")
	if err := left.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- left.Wait() }()
	start, err := process.New("/proc").Start(left.Process.Pid)
	if err != nil {
		t.Fatal(err)
	}
	seen := api.Notice{PID: left.Process.Pid, Start: start, Level: share.Booked}
	said := func(n ...api.Notice) watch { return watch{all: func() []api.Notice { return n }} }

	for name, w := range map[string]watch{"nobody to ask": {}, "nothing seen": said(), "not demanded": said(seen)} {
		var e ending
		if e.catchUp(w); e.finish() != nil {
			t.Errorf("%s: the run was ended", name)
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("ended for nothing: %v", err)
	case <-time.After(50 * time.Millisecond):
	}

	demanded := seen
	demanded.Demanded = share.EnforcedFront
	var e ending
	e.catchUp(said(seen, demanded))
	if code := exitCode(e.finish()); code != exitRunFailed {
		t.Errorf("exit code %d", code)
	}
	if <-ended == nil {
		t.Error("what was left ended by itself")
	}
}
