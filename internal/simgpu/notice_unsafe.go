// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// notice is the page that all processes read: the cards' flags, and a number
// that changes with whatever they may want to know. Only the kernel can write it.
type notice struct {
	file   *os.File
	memory []byte
}

func newNotice(c *contents) (*notice, error) {
	file, err := c.create("divvy-notice", simwire.PageBytes)
	if err != nil {
		return nil, err
	}
	memory, err := unix.Mmap(int(file.Fd()), 0, simwire.PageBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		c.drop(file)
		return nil, fmt.Errorf("map the notice: %w", err)
	}
	// Our mapping stays as it is; nobody else gets one that can be written.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE|unix.F_SEAL_SEAL); err != nil {
		err = errors.Join(fmt.Errorf("seal the notice: %w", err), unix.Munmap(memory))
		c.drop(file)
		return nil, err
	}
	return &notice{file: file, memory: memory}, nil
}

func (n *notice) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&n.memory[at])) }

// setFlags says how a card is; changed must follow.
func (n *notice) setFlags(card int, flags uint32) {
	atomic.StoreUint32(n.word(simwire.NoticeOffsetFlags+4*card), flags)
}

// changed tells everybody of a fault, and wakes those who sleep.
func (n *notice) changed() {
	n.next(0)
	n.happened()
}

// happened tells those who wait for incidents.
func (n *notice) happened() { n.next(4) }

func (n *notice) next(at int) {
	atomic.AddUint32(n.word(at), 1)
	const wake = 1 // FUTEX_WAKE, of all processes that map the page
	_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(n.word(at))), wake, math.MaxInt32, 0, 0, 0)
}

func (n *notice) close() { _ = unix.Munmap(n.memory) }
