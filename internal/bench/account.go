// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// account is the simulator's own account of who held what.
type account struct {
	truth *simgpu.Truth
	seen  uint64 // releases that were looked at
}

func openAccount(ctx context.Context, socket string) (*account, error) {
	truth, err := simgpu.Dial(ctx, socket)
	if err != nil {
		return nil, fmt.Errorf("open the simulator's account: %w", err)
	}
	return &account{truth: truth}, nil
}

func (a *account) close() { _ = a.truth.Close() }

func (a *account) reset(ctx context.Context) error {
	a.seen = 0
	return a.truth.Reset(ctx)
}

// awaitEmpty waits until the cards hold nothing of anybody: what the dead held is
// released a little later than they die.
func (a *account) awaitEmpty(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, emptyDeadline)
	defer cancel()
	for {
		cards, err := a.truth.Cards(ctx)
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(cards, func(c simgpu.CardState) bool { return c.UsedBytes > 0 }) {
			return nil
		}
		if err := pause(ctx, emptyPoll); err != nil {
			return fmt.Errorf("wait until the GPUs are empty: %w", err)
		}
	}
}

const (
	emptyDeadline = 10 * time.Second
	emptyPoll     = 10 * time.Millisecond
)

// peak is the most that was held of a card at any moment since the last reset.
func (a *account) peak(ctx context.Context, uuid string) (uint64, error) {
	cards, err := a.truth.Cards(ctx)
	if err != nil {
		return 0, err
	}
	for _, card := range cards {
		if card.UUID == uuid {
			return card.PeakUsedBytes, nil
		}
	}
	return 0, fmt.Errorf("the simulator has no GPU %s", uuid)
}

// released is the moment (CLOCK_MONOTONIC) at which all that process pid held
// was free.
func (a *account) released(ctx context.Context, pid int) (time.Duration, error) {
	releases, err := a.truth.Releases(ctx, a.seen)
	if err != nil {
		return 0, err
	}
	moment := time.Duration(-1)
	for _, release := range releases {
		a.seen = release.Number
		if release.PID == pid {
			moment = time.Duration(release.TimeNS)
		}
	}
	if moment < 0 {
		return 0, fmt.Errorf("the simulator reports no release of process %d", pid)
	}
	return moment, nil
}
