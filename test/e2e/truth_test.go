// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"testing"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

func (h *host) truth(t testing.TB) *simgpu.Truth {
	t.Helper()
	truth, err := simgpu.Dial(t.Context(), h.SimulatorSocket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { truth.Close() })
	return truth
}

// empty waits until nobody holds anything, by the simulator's account and the
// agent's: who measures what is free then measures nobody's end.
func (h *host) empty(t testing.TB) {
	t.Helper()
	truth := h.truth(t)
	eventually(t, "all is free", func() error {
		cards, err := truth.Cards(t.Context())
		if err != nil {
			return err
		}
		for i, card := range cards {
			if card.UsedBytes != 0 {
				return fmt.Errorf("card %d: %d bytes in use", i, card.UsedBytes)
			}
		}
		shares, err := h.client.Shares(t.Context())
		if err != nil {
			return err
		}
		for _, share := range shares.Shares {
			if share.UsedBytes != 0 {
				return fmt.Errorf("share %s: %d bytes used", share.Name, share.UsedBytes)
			}
		}
		return nil
	})
}

// resetPeak starts a new measurement of peak.
func (h *host) resetPeak(t testing.TB) {
	t.Helper()
	truth := h.truth(t)
	if err := truth.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// peak is the most that was held of the first card at any moment since
// resetPeak, by the simulator's own account.
func (h *host) peak(t testing.TB) uint64 {
	t.Helper()
	cards, err := h.truth(t).Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(cards) == 0 {
		t.Fatal("the simulator has no card")
	}
	return cards[0].PeakUsedBytes
}
