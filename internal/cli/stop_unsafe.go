// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"runtime"
	"syscall"
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

// stopSelf stops this process by a signal, as the terminal would: by its default
// action, which the kernel leaves out for a group that nobody could continue, except
// that of SIGSTOP. The runtime cannot give that action back to a signal it was once
// asked for (Go 1.26: signal.Reset leaves its handler in place), so the kernel is
// asked.
func stopSelf(by syscall.Signal) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if by != unix.SIGSTOP {
		byDefault, before := sigaction{}, sigaction{}
		if setAction(by, &byDefault, &before) != nil {
			return
		}
		defer func() { _ = setAction(by, &before, nil) }()
	}
	// A signal to this very thread is acted on before the call returns.
	_ = unix.Tgkill(os.Getpid(), unix.Gettid(), by)
}

func setAction(of syscall.Signal, next, before *sigaction) error {
	const maskBytes = 8
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(of),
		uintptr(unsafe.Pointer(next)), uintptr(unsafe.Pointer(before)), maskBytes, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
