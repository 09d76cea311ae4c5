// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// ring is the memory that a process shares with the kernel. Its size is sealed,
// so touching it cannot fail; what stands in it is the process's word.
type ring struct {
	file   *os.File
	memory []byte
	taken  uint64 // items read
	broken bool   // by nonsense: not read any more
}

func mapRing(file *os.File) (*ring, error) {
	memory, err := unix.Mmap(int(file.Fd()), 0, simwire.RingBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a ring: %w", err)
	}
	return &ring{file: file, memory: memory}, nil
}

func (r *ring) unmap() { _ = unix.Munmap(r.memory) }

// word is a place in the ring; all of them are aligned.
func (r *ring) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&r.memory[at])) }

func (r *ring) head() uint64 { return atomic.LoadUint64(r.word(simwire.RingOffsetHead)) }

// item reads an entry, once: the process may change it meanwhile.
func (r *ring) item(seq uint64) simwire.ItemInfo {
	var entry [simwire.ItemSize]byte
	copy(entry[:], r.memory[simwire.RingOffsetEntries+int((seq-1)%simwire.RingEntries)*simwire.ItemSize:])
	return simwire.DecodeItem(&entry)
}

// setSlot tells the process when an item ends.
func (r *ring) setSlot(seq, endNS uint64) {
	at := simwire.RingOffsetSlots + int((seq-1)%simwire.RingEntries)*simwire.SlotSize
	atomic.StoreUint64(r.word(at+8), endNS)
	atomic.StoreUint64(r.word(at), seq)
}

func (r *ring) setFloor(floor, latestNS uint64) {
	atomic.StoreUint64(r.word(simwire.RingOffsetLatestNS), latestNS)
	atomic.StoreUint64(r.word(simwire.RingOffsetFloor), floor)
}
