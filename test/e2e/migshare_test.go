// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
)

// A card that the agent has shares on is not taken from them, but by force; then the
// agent notices, says so everywhere, and its programs are told instead of having
// what nobody holds them to. When the card is whole again, so are its shares.
func TestMIGTakesNoSharedCard(t *testing.T) {
	t.Parallel()
	d := &divided{host: newHost(t, hostOptions{cards: "2xH100-80GB"})}
	d.journal = d.directory + "/partition.journal"
	devices, err := d.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	card := devices.Cards[0].UUID
	train := d.shareOf(t, api.ShareSpec{Name: "train", GPU: card, MemoryBytes: 512 * mib})
	agent := []string{"--agent", d.AgentSocket}

	got := d.apply(t, d.goal(t, mix), 4, agent...)
	if !strings.Contains(got.stdout, "shares of this GPU: train") || !strings.Contains(got.stdout, "divvy share delete train") {
		t.Errorf("refused with\n%s%s", got.stdout, got.stderr)
	}
	if now := d.layout(t); now != "mig false" {
		t.Fatalf("after a refusal: %s", now)
	}
	held := d.holder(t, train)
	do(t, held, "start")
	do(t, held, "exit")

	eventually(t, "the card is idle", func() error {
		got := run(t, d.Bare(), divvy(t), d.applyArgs(d.goal(t, mix), append(agent, "--force")...)...)
		if got.code != 0 {
			return fmt.Errorf("code %d\n%s%s", got.code, got.stdout, got.stderr)
		}
		return nil
	}, d.simulator)
	d.sayThatItIsDivided(t, card, agent)
	got = run(t, d.Environ(train.Socket), built(t, "lib", "divvy", "examples", "vectoradd"))
	if got.code == 0 {
		t.Errorf("a program of a share whose card is divided computed:\n%s%s", got.stdout, got.stderr)
	}
	t.Logf("a program of the share: code %d, %s", got.code, tail(got.stderr, 300))

	// No share stands in the way of a card that cannot be shared.
	d.apply(t, d.goal(t, ""), 0, agent...)
	d.event(t, "share-usable", "train")
	if got := run(t, d.Environ(train.Socket), built(t, "lib", "divvy", "examples", "vectoradd")); got.code != 0 {
		t.Errorf("on a whole card again: code %d\n%s", got.code, tail(got.stderr, 500))
	}
}

// sayThatItIsDivided checks that the agent and the tools say why a card cannot be
// shared.
func (d *divided) sayThatItIsDivided(t *testing.T, card string, agent []string) {
	t.Helper()
	const why = "MIG mode is on"
	// By itself: nobody has asked it anything yet.
	if e := d.event(t, "card-unshareable", ""); e.CardUUID != card || !strings.Contains(e.Message, why) {
		t.Errorf("event %+v", e)
	}
	if e := d.event(t, "share-unusable", "train"); !strings.Contains(e.Message, why) {
		t.Errorf("event %+v", e)
	}
	_, err := d.client.CreateShare(t.Context(), api.ShareSpec{Name: "late", GPU: card, MemoryBytes: 512 * mib})
	if err == nil || !strings.Contains(err.Error(), why) {
		t.Errorf("a share of a divided card: %v", err)
	}
	other := d.shareOf(t, api.ShareSpec{Name: "elsewhere", MemoryBytes: 512 * mib})
	if other.CardUUID == card {
		t.Error("a share that may go anywhere went to the divided card")
	}
	for _, command := range [][]string{{"devices"}, {"doctor"}} {
		got := run(t, append(d.Bare(), "DIVVY_LIBDIR="+built(t, "lib", "divvy")), divvy(t), append(command, agent...)...)
		if !strings.Contains(got.stdout, "unshareable") && !strings.Contains(got.stdout, "cannot be shared: "+why) {
			t.Errorf("%v says\n%s%s", command, got.stdout, got.stderr)
		}
	}
}
