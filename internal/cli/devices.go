// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/size"
)

func (a *app) devicesCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List cards; inside a share, the share's view",
		Long: `Lists the cards an agent looks after, what is promised and what is in use. Under
a share (divvy run) it asks the driver library instead, as any program would,
and so shows the share's view.`,
		Example: `  divvy run --simulate --mem 2GiB -- divvy devices`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if a.insideShare(cmd) {
			return a.shareView(asJSON)
		}
		list, err := a.devices(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			if list.Cards == nil {
				list.Cards = []api.Card{}
			}
			return a.writeJSON(list)
		}
		rows := newTable("UUID", "NAME", "MEMORY", "USED", "PROMISED", "FREE TO PROMISE", "SHARES", "HEALTH", "DRIVER")
		for _, c := range list.Cards {
			rows.add(c.UUID, c.Name, size.Short(c.MemoryBytes), size.Short(c.UsedBytes), size.Short(c.BookedBytes),
				size.Short(c.FreeToBookBytes), strconv.Itoa(c.Shares), c.Health, c.DriverVersion)
		}
		return rows.write(a.stdout)
	})
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// devices asks the agent that is running, and starts one where none is.
func (a *app) devices(ctx context.Context) (api.Devices, error) {
	at, err := a.find(ctx)
	if err == nil {
		list, err := at.client.Devices(ctx)
		if !errors.Is(err, client.ErrUnreachable) || a.chosenSocket() != "" {
			return list, at.explain(err)
		}
	} else if !errors.Is(err, client.ErrUnreachable) {
		return api.Devices{}, err
	}
	var list api.Devices
	err = a.withAgent(ctx, func(p place) error {
		var err error
		list, err = p.client.Devices(ctx)
		return err
	})
	return list, err
}

// insideShare says whether this process was started under a share, and no
// agent was named.
func (a *app) insideShare(cmd *cobra.Command) bool {
	return a.getenv("DIVVY_SOCKET") != "" && !cmd.Flags().Changed("agent") && !cmd.Flags().Changed("simulate")
}
