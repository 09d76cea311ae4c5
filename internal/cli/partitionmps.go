// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/mps"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/process"
)

// daemonFor is the longest that a control daemon may take to start or stop.
const daemonFor = 15 * time.Second

// servedCards are cards with the control daemons of MPS that serve them, each in
// a directory of its own.
type servedCards struct {
	partitionCards
	folder string
	uuids  map[string]string // by what a card was asked for
}

// served adds what agents, control daemons and CDI files here say of cards.
func (a *app) served(in partitionInput, cards partitionCards) partitionCards {
	folder := in.mps
	if folder == "" {
		folder = agent.System().MPSFolder()
	}
	served := servedCards{partitionCards: cards, folder: folder, uuids: map[string]string{}}
	named := namedCards{partitionCards: served, app: a, folder: cdi.Folder(in.cdi), driver: in.driver, known: map[string]partition.Card{}}
	return sharedCards{named, a}
}

// State observes all cards and their daemons.
func (s servedCards) State(ctx context.Context) (partition.State, error) {
	state, err := s.partitionCards.State(ctx)
	for i := range state.Cards {
		if err == nil {
			err = s.served(ctx, &state.Cards[i])
		}
	}
	return state, err
}

// Observe reads how a card is divided, and its daemon.
func (s servedCards) Observe(ctx context.Context, id string) (partition.Card, error) {
	card, err := s.partitionCards.Observe(ctx, id)
	if err == nil {
		err = s.served(ctx, &card)
	}
	return card, err
}

func (s servedCards) daemon(uuid string, multiuser bool) (*mps.Daemon, error) {
	return mps.New(mps.Config{UUID: uuid, Directory: filepath.Join(s.folder, uuid), Multiuser: multiuser})
}

// served notes the daemon of a card; a card that can have none is left as it is.
func (s servedCards) served(ctx context.Context, c *partition.Card) error {
	if c.Vendor != gpu.VendorNVIDIA || c.MIGUnknown {
		return nil // its driver is not here
	}
	s.uuids[c.ID()] = c.UUID
	d, err := s.daemon(c.UUID, false)
	if err != nil {
		return err
	}
	status, err := d.Status(ctx)
	switch {
	case errors.Is(err, mps.ErrNotRunning):
		if d.Installed() {
			c.MPS = &partition.Daemon{}
		}
		return nil
	case err != nil:
		return err
	}
	c.MPS = &partition.Daemon{Running: true, Multiuser: status.Multiuser, ActiveThreadPercentage: status.ActiveThreadPercentage, PinnedMemoryMiB: status.PinnedBytes >> 20}
	for _, pid := range status.Clients() {
		c.MPS.Clients = append(c.MPS.Clients, partition.Process{PID: pid, Command: process.New("/proc").Command(pid)})
	}
	return nil
}

// Do starts or stops a daemon, or has the cards' driver take the step.
func (s servedCards) Do(ctx context.Context, id string, step partition.Step) error {
	if step.Technique != partition.TechniqueMPS {
		return s.partitionCards.Do(ctx, id, step)
	}
	ctx, cancel := context.WithTimeout(ctx, daemonFor)
	defer cancel()
	if step.Action == partition.ActionStop {
		d, err := s.daemon(s.uuids[id], false)
		if err != nil {
			return err
		}
		return d.Stop(ctx, step.Value == partition.StopForced)
	}
	want, err := partition.ParseDaemon(step.Value)
	if err != nil {
		return err
	}
	d, err := s.daemon(s.uuids[id], want.Multiuser)
	if err != nil {
		return err
	}
	if err := d.Start(ctx); err != nil {
		return err
	}
	limits := mps.Limits{ActiveThreadPercentage: want.ActiveThreadPercentage, PinnedBytes: want.PinnedMemoryMiB << 20}
	if err := d.SetDefaults(ctx, limits); err != nil {
		return fmt.Errorf("%s: %w", id, err)
	}
	return nil
}
