// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
)

// A thousand attached clients cost the agent little memory, and no time while
// they do nothing.
func TestThousandClients(t *testing.T) {
	s := newSupervised(t, 0)
	const n = 1000
	_, err := s.client.CreateShare(context.Background(), api.ShareSpec{Name: "s", MemoryBytes: 2 * gib})
	must(t, err)
	pid := s.awaitVersion().PID
	times := make([]time.Duration, n)
	charges := make([]time.Duration, n)
	for i := range n {
		begun := time.Now()
		f, err := newFront(s.cfg.ShareSocket("s"))
		must(t, err)
		times[i] = time.Since(begun)
		t.Cleanup(f.close)
		begun = time.Now()
		must(t, f.alloc(mib))
		charges[i] = time.Since(begun)
	}
	// The comparison with the driver that the attachments asked for.
	<-time.After(1200 * time.Millisecond)
	before := cpuTicks(t, pid)
	const idle = 2 * time.Second
	<-time.After(idle)
	percent := float64(cpuTicks(t, pid)-before) / float64(idle/time.Second) // 100 ticks a second
	resident := residentBytes(t, pid)
	t.Logf("%d clients: attach p50 %v p99 %v, charge p50 %v p99 %v, %d MiB resident, %.1f%% of a core while idle", n,
		percentile(times, 50), percentile(times, 99), percentile(charges, 50), percentile(charges, 99), resident/mib, percent)
	if resident > 100*mib && !raceDetector {
		t.Errorf("%d MiB resident", resident/mib)
	}
	if percent > 1 {
		t.Errorf("%.1f%% of a core while idle", percent)
	}
}

func cpuTicks(t *testing.T, pid int) uint64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+2:]))
	var sum uint64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseUint(field, 10, 64)
		must(t, err)
		sum += n
	}
	return sum
}

func residentBytes(t *testing.T, pid int) uint64 {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(raw)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.ParseUint(strings.Fields(rest)[0], 10, 64)
			must(t, err)
			return n * 1024
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
