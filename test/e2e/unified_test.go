// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

// TestUnifiedMemory: a GPU whose memory is the host's, of which its driver tells nothing, is listed
// as such and takes no share, and the other GPU of its host is shared as ever.
func TestUnifiedMemory(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{cards: "GB10,L4", generation: generations[2]})
	var unified, other api.Card
	eventually(t, "the agent has looked at the GPUs", func() error {
		devices, err := h.client.Devices(t.Context())
		if err != nil || len(devices.Cards) != 2 {
			return fmt.Errorf("%+v, %w", devices, err)
		}
		if unified, other = devices.Cards[0], devices.Cards[1]; unified.Health == "" || other.Health == "" {
			return errors.New("it has not")
		}
		return nil
	})
	if !unified.MemoryShared || unified.MemoryBytes == 0 || unified.Health != "unshareable" || other.MemoryShared || other.Health != "ok" {
		t.Errorf("%+v\n%+v", unified, other)
	}
	env := h.Unheld()
	table := run(t, env, divvy(t), "devices", "--agent", h.AgentSocket)
	if table.code != 0 || strings.Count(table.stdout, "B shared ") != 1 {
		t.Errorf("exit code %d\n%s%s", table.code, table.stdout, table.stderr)
	}
	refused := run(t, env, divvy(t), "share", "create", "no", "--gpu", unified.UUID, "--mem", "1GiB", "--agent", h.AgentSocket)
	if refused.code != 5 || !strings.Contains(refused.stderr, "its memory is the host's") || strings.Count(refused.stderr, "divvy: error:") != 1 {
		t.Errorf("exit code %d\n%s%s", refused.code, refused.stdout, refused.stderr)
	}
	chosen, err := h.client.CreateShare(t.Context(), api.ShareSpec{Name: "yes", MemoryBytes: 1 << 30})
	if err != nil || chosen.CardUUID != other.UUID {
		t.Fatalf("%+v, %v", chosen, err)
	}
	do(t, h.holder(t, chosen), "start")
}
