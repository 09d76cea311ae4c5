// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
)

// addShares notes on cards which shares the agents here have on them. An agent that does not answer has no say.
func (a *app) addShares(ctx context.Context, cards []partition.Card) error {
	agents, err := a.agents(ctx)
	if err != nil {
		return err
	}
	for _, c := range agents {
		err := a.addSharesOf(ctx, c, cards)
		if errors.Is(err, client.ErrUnreachable) {
			a.note("no agent answers at %s: shares that it knows of are not", c.Socket())
			continue
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// agents are the one that is chosen, or all: the machine's and the user's own.
func (a *app) agents(ctx context.Context) ([]*client.Client, error) {
	if socket := a.chosenSocket(); socket != "" {
		return []*client.Client{client.New(socket)}, nil
	}
	var found []*client.Client
	if system := agent.System().APISocket(); exists(system) {
		found = append(found, client.New(system))
	}
	private, err := a.privateRoot().List(ctx)
	for _, s := range private {
		if s.Answers {
			found = append(found, client.New(s.Endpoint.AgentSocket))
		}
	}
	return found, err
}

func (a *app) addSharesOf(ctx context.Context, c *client.Client, cards []partition.Card) error {
	version, err := c.Version(ctx)
	if err != nil {
		return err
	}
	if version.Simulated && !a.isSimulator(version.Simulator) {
		return nil // its cards have the names of ours
	}
	devices, err := c.Devices(ctx)
	if err != nil {
		return err
	}
	shares, err := c.Shares(ctx)
	if err != nil {
		return err
	}
	machine.AddShares(cards, devices.Cards, shares.Shares)
	return nil
}

// isSimulator says whether a socket is that of the simulator that this program's
// driver library would ask.
func (a *app) isSimulator(socket string) bool {
	own := a.getenv("DIVVY_SIMULATOR")
	if own == "" {
		own = agent.DefaultSimulator
	}
	absolute, err := filepath.Abs(own)
	return err == nil && filepath.Clean(socket) == absolute
}
