// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// handles are the descriptors that memory was exported as, by which others find it.
//
// Whoever exports or imports sends the descriptor along, and one memory has one name.
// A pipe (the simulated driver's) has a number of its own, and its other end tells when
// nobody has this one any more. Of a device's files (the hardware driver's) all have the
// same number: the agent keeps one, to compare others with, as long as somebody holds
// the memory. Nothing else has a name: to open or to close a file of a user's own file system may
// take for ever, and the loop does both.
type handles struct {
	mu   sync.Mutex
	kept map[string]int // descriptors, by name
	last uint64
}

func openHandles() *handles { return &handles{kept: map[string]int{}} }

// nameOf is the name of a descriptor, if it has one that can be told. pipe: it has one
// whether somebody has given it or not.
func (h *handles) nameOf(descriptor int) (name string, pipe bool, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(descriptor, &st); err != nil {
		return "", false, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFIFO && onPipes(descriptor) {
		return fmt.Sprintf(pipePrefix+"%d:%d", st.Dev, st.Ino), true, nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, kept := range h.kept {
		if sameDescriptor(kept, descriptor) {
			return name, false, nil
		}
	}
	return "", false, nil
}

// pipePrefix is how the names of pipes begin. Their other ends are in the descriptor store by
// their names, so the keys of nothing else there begin so.
const pipePrefix = "pipe "

func isPipe(name string) bool { return strings.HasPrefix(name, pipePrefix) }

// onPipes is true of a pipe that is nowhere but in the kernel, as FIFOs in folders are not.
func onPipes(descriptor int) bool {
	var fs unix.Statfs_t
	return unix.Fstatfs(descriptor, &fs) == nil && fs.Type == unix.PIPEFS_MAGIC
}

// keep gives a name to a descriptor of a device that has none.
func (h *handles) keep(descriptor int) (name string, err error) {
	var st unix.Stat_t
	if err := unix.Fstat(descriptor, &st); err != nil {
		return "", err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFCHR {
		return "", errors.New("it is no device's")
	}
	copied, err := unix.FcntlInt(uintptr(descriptor), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.last++
	name = fmt.Sprintf("file %d", h.last)
	h.kept[name] = copied
	return name, nil
}

// forget closes what was kept under a name.
func (h *handles) forget(name string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if descriptor, ok := h.kept[name]; ok {
		_ = unix.Close(descriptor)
		delete(h.kept, name)
	}
}

func (h *handles) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for name, descriptor := range h.kept {
		_ = unix.Close(descriptor)
		delete(h.kept, name)
	}
}

// sameDescriptor is true of two descriptors of one open file. A kernel without the call knows
// of none.
func sameDescriptor(a, b int) bool {
	self := uintptr(os.Getpid())
	order, _, errno := unix.Syscall6(unix.SYS_KCMP, self, self, 0 /* KCMP_FILE */, uintptr(a), uintptr(b), 0)
	return errno == 0 && order == 0
}

// otherEnd opens the end of a pipe that tells when nobody has the end at hand any more.
func otherEnd(descriptor int) (*os.File, error) {
	other, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", descriptor), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open the other end of a pipe: %w", err)
	}
	return os.NewFile(uintptr(other), "pipe"), nil
}

// awaitClosed returns nil when nobody has the end of a pipe of which other is the other one.
func awaitClosed(ctx context.Context, other *os.File) error {
	defer other.Close()
	defer context.AfterFunc(ctx, func() { _ = other.Close() })()
	raw, err := other.SyscallConn()
	if err != nil {
		return err
	}
	err = raw.Read(func(fd uintptr) bool {
		state := []unix.PollFd{{Fd: int32(fd)}}
		_, err := unix.Poll(state, 0)
		return err == nil && state[0].Revents&unix.POLLHUP != 0
	})
	return errors.Join(err, ctx.Err())
}
