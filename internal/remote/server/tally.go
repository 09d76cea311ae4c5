// SPDX-License-Identifier: Apache-2.0

package server

import (
	"encoding/binary"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// tally is where a worker counts, which may write there what it likes.
type tally struct{ file *os.File }

func newTally() (tally, error) {
	fd, err := unix.MemfdCreate("divvy-remote-tally", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return tally{}, fmt.Errorf("make a worker's tally: %w", err)
	}
	t := tally{os.NewFile(uintptr(fd), "tally")}
	if err = t.file.Truncate(protocol.TallySize); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		_ = t.file.Close()
		return tally{}, fmt.Errorf("make a worker's tally: %w", err)
	}
	return t, nil
}

// read is what it says now; of one that was never made, nothing.
func (t tally) read() protocol.TallyPayload {
	var raw [protocol.TallySize]byte
	if t.file == nil {
		return protocol.TallyPayload{}
	}
	if _, err := t.file.ReadAt(raw[:], 0); err != nil {
		return protocol.TallyPayload{}
	}
	return protocol.TallyPayload{Calls: binary.LittleEndian.Uint64(raw[protocol.TallyOffsetCalls:]), Waits: binary.LittleEndian.Uint64(raw[protocol.TallyOffsetWaits:])}
}

func (t tally) close() {
	if t.file != nil {
		_ = t.file.Close()
	}
}
