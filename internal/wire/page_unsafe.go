// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The mapping has PageBytes and starts on a page, so both views fit and are
// aligned; wire_test.go compares their layout with the header's.

func limitsView(memory []byte) *Limits {
	return (*Limits)(unsafe.Pointer(&memory[0]))
}

func clientView(memory []byte) *Client {
	return (*Client)(unsafe.Pointer(&memory[0]))
}

// Of futex(2), without FUTEX_PRIVATE_FLAG: the word lies in memory that
// processes share.
const (
	futexWait = 0
	futexWake = 1
)

// wake wakes everybody who waits on word.
func wake(word *uint32) error {
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, math.MaxInt32, 0, 0, 0)
	if errno != 0 {
		return fmt.Errorf("wake those who wait for a lease: %w", errno)
	}
	return nil
}

// wait sleeps until woken, unless word is no longer value; at most timeoutNs.
func wait(word *uint32, value uint32, timeoutNs int64) error {
	timeout := unix.NsecToTimespec(timeoutNs)
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, uintptr(value),
		uintptr(unsafe.Pointer(&timeout)), 0, 0)
	if errno != 0 && !errors.Is(errno, unix.EAGAIN) && !errors.Is(errno, unix.EINTR) {
		return fmt.Errorf("wait for a lease: %w", errno)
	}
	return nil
}
