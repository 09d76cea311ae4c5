// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// contents is what simulated memory holds: sparse memfds, and the budget of
// host memory for the pages that are really there. The kernel owns it.
type contents struct {
	files       map[*os.File]struct{}
	budgetBytes uint64
	sampledAt   time.Time
	sampled     uint64 // touched at the last sample
	announced   uint64 // what processes said since that they would write
	closing     sync.WaitGroup
}

func newContents(budgetBytes uint64) *contents {
	return &contents{files: map[*os.File]struct{}{}, budgetBytes: budgetBytes}
}

// create makes a sparse file of a fixed size.
func (c *contents) create(name string, bytes uint64) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	if err := unix.Ftruncate(fd, int64(bytes)); err != nil {
		return nil, fmt.Errorf("size %s to %d bytes: %w", name, bytes, joinClose(err, file))
	}
	// A size that a client can change would let it kill others by SIGBUS.
	if _, err := unix.FcntlInt(file.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK); err != nil {
		return nil, fmt.Errorf("seal %s: %w", name, joinClose(err, file))
	}
	c.files[file] = struct{}{}
	return file, nil
}

func joinClose(err error, file *os.File) error {
	if closed := file.Close(); closed != nil {
		return fmt.Errorf("%w (and %w)", err, closed)
	}
	return err
}

// drop closes a file. Its pages may be many, so nobody waits for that but
// close.
func (c *contents) drop(file *os.File) {
	delete(c.files, file)
	c.closing.Go(func() { _ = file.Close() })
}

func (c *contents) close() {
	for file := range c.files {
		c.drop(file)
	}
	c.closing.Wait()
}

// touchedBytes sums what the files really take.
func (c *contents) touchedBytes() uint64 {
	var sum uint64
	for file := range c.files {
		var st unix.Stat_t
		if err := unix.Fstat(int(file.Fd()), &st); err == nil {
			sum += uint64(st.Blocks) * 512
		}
	}
	return sum
}

// spent says whether the budget has no room for so many bytes more. What was
// announced counts until the next sample; samples are taken when the last one
// is old or the budget seems to be spent.
func (c *contents) spent(bytes uint64, now time.Time) bool {
	if c.fits(bytes) && now.Sub(c.sampledAt) < sampleMaxAge {
		return false
	}
	c.sampledAt, c.sampled, c.announced = now, c.touchedBytes(), 0
	return !c.fits(bytes)
}

func (c *contents) fits(bytes uint64) bool {
	used := c.sampled + c.announced
	return used <= c.budgetBytes && bytes <= c.budgetBytes-used
}

// announce counts bytes that a process is about to write.
func (c *contents) announce(bytes uint64) { c.announced += bytes }

// maxMemoryBytes is the most that is read of what the kernel says of the host's memory.
const maxMemoryBytes = 64 << 10

// availableBytes reads how much memory the host can spare.
func availableBytes() (uint64, error) {
	file, err := os.Open("/proc/meminfo")
	if err != nil {
		return 0, fmt.Errorf("read the host's memory: %w", err)
	}
	defer file.Close()
	return parseAvailable(file)
}

func parseAvailable(r io.Reader) (uint64, error) {
	lines := bufio.NewScanner(io.LimitReader(r, maxMemoryBytes))
	for lines.Scan() {
		if rest, ok := strings.CutPrefix(lines.Text(), "MemAvailable:"); ok {
			kib, err := strconv.ParseUint(strings.TrimSpace(strings.TrimSuffix(rest, "kB")), 10, 44)
			if err != nil {
				return 0, fmt.Errorf("read the host's memory: %q: %w", lines.Text(), err)
			}
			return kib << 10, nil
		}
	}
	return 0, fmt.Errorf("read the host's memory: no MemAvailable line")
}
