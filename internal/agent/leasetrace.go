// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/json"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// maxLeaseTrace bounds what one agent appends.
const maxLeaseTrace = 1 << 30

// leaseTrace appends what arbiters were told and answered to a file, a line each;
// arbiter.Replay reads it. It belongs to the loop.
type leaseTrace struct {
	file  *os.File
	bytes int
	err   error // of the first write that failed; nothing is written after it
}

func openLeaseTrace(name string) (*leaseTrace, error) {
	file, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the trace of leases: %w", err)
	}
	t := &leaseTrace{file: file}
	t.endLine()
	return t, nil
}

// endLine ends what an agent was killed in the middle of: the first line of this one is its own.
func (t *leaseTrace) endLine() {
	info, err := t.file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() == 0 {
		return
	}
	var last [1]byte
	if _, err := t.file.ReadAt(last[:], info.Size()-1); err == nil && last[0] != '\n' {
		_, t.err = t.file.WriteString("\n")
	}
}

// keep appends a call. What is written is the kernel's when it returns, so that a
// killed agent loses nothing.
func (t *leaseTrace) keep(c arbiter.Call) {
	if t.err != nil || t.bytes > maxLeaseTrace {
		return
	}
	line, err := json.Marshal(c)
	if err == nil {
		_, err = t.file.Write(append(line, '\n'))
	}
	t.bytes += len(line) + 1
	t.err = err
}

func (t *leaseTrace) close() error {
	if t == nil {
		return nil
	}
	if err := t.file.Close(); t.err == nil {
		t.err = err
	}
	if t.err != nil {
		return fmt.Errorf("keep the trace of leases: %w", t.err)
	}
	return nil
}
