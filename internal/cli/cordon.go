// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
)

func (a *app) cordonCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "cordon GPU",
		Short: "Let no new share come to a GPU; what is on it goes on",
		Long: `Keeps new shares off a GPU, by UUID, its start, or PCI address: shares that are on
it and their programs go on, and programs can still come to those shares. It holds
until divvy devices uncordon, also over restarts of the agent. For root and the agent's user.`,
		Example:           `  divvy devices cordon GPU-1c2d --reason "fan is loud, ticket 4711"`,
		Args:              oneCard,
		ValidArgsFunction: a.completeCard,
	}
	cmd.Flags().StringVar(&reason, "reason", "", "`text` that those see who are refused")
	return a.changeCordon(cmd, func(ctx context.Context, at place, card string) (api.Cordoned, error) {
		return at.client.Cordon(ctx, card, reason)
	})
}

func (a *app) uncordonCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "uncordon GPU",
		Short: "Let new shares come to a GPU again",
		Long: `Ends what divvy devices cordon, or a fault, began. A fault that comes again
cordons the GPU again. For root and the agent's user.`,
		Example:           `  divvy devices uncordon GPU-1c2d`,
		Args:              oneCard,
		ValidArgsFunction: a.completeCard,
	}
	return a.changeCordon(cmd, func(ctx context.Context, at place, card string) (api.Cordoned, error) {
		return at.client.Uncordon(ctx, card)
	})
}

func (a *app) changeCordon(cmd *cobra.Command, change func(context.Context, place, string) (api.Cordoned, error)) *cobra.Command {
	var asJSON bool
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		at, err := a.find(cmd.Context())
		if err != nil {
			return err
		}
		is, err := change(cmd.Context(), at, args[0])
		if err != nil {
			return at.explain(err)
		}
		if asJSON {
			return a.writeJSON(is)
		}
		state := "takes new shares"
		if is.Cordon != nil {
			state = "takes no new share"
		}
		_, err = fmt.Fprintf(a.stdout, "%s %s\n", is.CardUUID, state)
		return err
	})
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// oneCard takes one argument, a card.
func oneCard(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return withHint(usage(fmt.Errorf("%d GPUs are named, not one", len(args))), cmd.CommandPath()+" --help")
	}
	return nil
}

func (a *app) completeCard(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return a.completeCards(cmd, args, typed)
}
