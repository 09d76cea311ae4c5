// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// sigaction is the kernel's, on x86-64.
type sigaction struct {
	handler  uintptr
	flags    uint64
	restorer uintptr
	mask     uint64
}

// stopSelf stops this process as the terminal would: by the default action of
// SIGTSTP, which the kernel leaves out for a group that nobody could continue.
// The runtime cannot give that action back to a signal it was once asked for
// (Go 1.26: signal.Reset leaves its handler in place), so the kernel is asked.
func stopSelf() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	byDefault, before := sigaction{}, sigaction{}
	if setAction(&byDefault, &before) != nil {
		return
	}
	// A signal to this very thread is acted on before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), unix.SIGTSTP)
	_ = setAction(&before, nil)
}

func setAction(next, before *sigaction) error {
	const maskBytes = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGTSTP),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(before)), maskBytes, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
