// SPDX-License-Identifier: Apache-2.0

package gpu

import "fmt"

// State says how well a card is.
type State string

// States, from well to lost.
const (
	Well     State = "ok"
	Degraded State = "degraded" // works, slower or on damaged memory
	// Unshareable works, but not for several programs that share the whole of it: it
	// is divided, or its driver lets one program use it, or none, or its memory is the
	// host's and the driver does not tell of it.
	Unshareable State = "unshareable"
	NeedsReset  State = "needs-reset" // takes no new work
	Lost        State = "lost"        // does not answer any more
)

// Health is a card's state, and why it is not well.
type Health struct {
	State  State
	Detail string // empty: it is well
	// Exclusive says that a card is Unshareable because it serves one process at a
	// time, which may be the MPS server.
	Exclusive bool
	// Slowed words what holds its clocks down; empty: nothing does.
	Slowed string
}

// Fault is something that the driver told of a card.
type Fault struct {
	UUID string
	XID  uint64
}

// String words a fault.
func (f Fault) String() string {
	if name, ok := xidNames[f.XID]; ok {
		return fmt.Sprintf("XID %d: %s", f.XID, name)
	}
	return fmt.Sprintf("XID %d", f.XID)
}

// xidNames words the numbers that people meet, after NVIDIA's public catalog
// (docs.nvidia.com/deploy/xid-errors).
var xidNames = map[uint64]string{
	13: "graphics engine exception, a program's fault as a rule", 31: "memory page fault, a program's fault as a rule",
	32: "invalid or corrupted push buffer", 38: "driver firmware error", 43: "a channel was reset, a program's fault as a rule",
	45: "channels were preempted, after other errors or because a program was ended", 48: "double-bit ECC error",
	61: "internal micro-controller warning", 62: "internal micro-controller halt", 63: "a row remap or page retirement was recorded",
	64: "a row remap or page retirement failed", 68: "video processor exception", 69: "graphics engine class error",
	74: "NVLink error", 79: "the GPU has fallen off the bus", 92: "high rate of single-bit ECC errors",
	94: "contained ECC error: one program was hit", 95: "uncontained ECC error: all programs on the GPU were hit",
	109: "context switch timeout", 119: "GSP timeout", 120: "GSP error",
}
