// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// leaseTimer goes off at an instant of CLOCK_MONOTONIC. Go's own timers take
// 1 ms where less is asked for.
type leaseTimer struct {
	file *os.File
}

func newLeaseTimer() (*leaseTimer, error) {
	descriptor, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make the timer of leases: %w", err)
	}
	return &leaseTimer{file: os.NewFile(uintptr(descriptor), "timerfd")}, nil
}

// set lets it go off at an instant, at once when that has passed; 0: never.
func (t *leaseTimer) set(at time.Duration) error {
	raw, err := t.file.SyscallConn()
	if err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	var failed error
	if err := raw.Control(func(descriptor uintptr) {
		setting := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(at))}
		failed = unix.TimerfdSettime(int(descriptor), unix.TFD_TIMER_ABSTIME, &setting, nil)
	}); err != nil {
		return fmt.Errorf("set timer: %w", err)
	}
	if failed != nil {
		return fmt.Errorf("set timer: %w", failed)
	}
	return nil
}

// wait waits until it goes off; false: it is closed.
func (t *leaseTimer) wait() bool {
	var count [8]byte
	_, err := t.file.Read(count[:])
	return err == nil
}

func (t *leaseTimer) close() { _ = t.file.Close() }
