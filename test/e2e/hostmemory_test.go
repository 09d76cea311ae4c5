// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"testing"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// Reading card memory that nobody has written takes host memory, too: it has
// the same bound as writing.
func TestReadingTakesHostMemory(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{hostMemory: "32MiB"})
	holder := h.holder(t, h.share(t, "reader", 2048*mib))
	do(t, holder, "start")
	written := alloc(t, holder, 16*mib)
	do(t, holder, "write %d %d", written, 16*mib)
	for range 8 { // what is there already costs nothing more
		do(t, holder, "check %d %d", written, 16*mib)
	}
	const piece = 8 * mib
	empty := alloc(t, holder, 1024*mib)
	for at := uint64(0); ; at += piece {
		if at == 128*mib {
			t.Fatal("128 MiB that were never written have been read, the host's limit is 32 MiB")
		}
		_, err := holder.Do("check %d %d", empty+at, piece)
		var call *bench.Refused
		if errors.As(err, &call) && call.Result == outOfMemory {
			break
		}
	}
	do(t, holder, "check %d %d", written, 16*mib)
}
