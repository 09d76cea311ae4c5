// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/private"
)

// cleanupReport is `divvy cleanup --json`.
type cleanupReport struct {
	Schema  string            `json:"schema"`
	Root    string            `json:"root"`
	Folders []private.Outcome `json:"folders"`
}

func (a *app) cleanupCommand() *cobra.Command {
	var asJSON, force bool
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "Stop your private agents and simulators that are not in use",
		Long: `Stops your own private agents and simulators that hold no share, and removes
their folders. They leave by themselves 5 s after their last client: this is for
what was left behind. The machine's agent is never touched.`,
		Example: `  divvy cleanup`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		root := a.privateRoot()
		done, err := root.Clean(cmd.Context(), force)
		if asJSON {
			if done == nil {
				done = []private.Outcome{}
			}
			if jsonErr := a.writeJSON(cleanupReport{Schema: "divvy.cleanup/v1", Root: root.Path(), Folders: done}); err == nil {
				err = jsonErr
			}
			return err
		}
		for _, outcome := range done {
			line := outcome.Action + " " + outcome.Path
			if outcome.Reason != "" {
				line += " (" + outcome.Reason + ")"
			}
			fmt.Fprintln(a.stdout, oneLine(line))
		}
		return err
	})
	cmd.Flags().BoolVar(&force, "force", false, "also those in use: their programs cannot allocate any more")
	jsonFlag(cmd, &asJSON)
	return cmd
}
