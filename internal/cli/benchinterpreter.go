// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
)

func (a *app) benchInterpreterCommand() *cobra.Command {
	var asJSON bool
	o := bench.InterpreterOptions{Rounds: 5}
	cmd := &cobra.Command{
		Use:   "interpreter",
		Short: "How fast a simulated GPU computes",
		Long: `Runs kernels with a known number of instructions on a simulated GPU of its own:
one that all lanes of a warp run together, one in which each lane is alone, and a
multiplication of matrices of 512 by 512 on all cores of the host.`,
		Example: `  divvy bench interpreter --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if o.Rounds < 1 || o.Rounds > 1000 {
			return usage(fmt.Errorf("--rounds: %d is not between 1 and 1000", o.Rounds))
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			r, err := bench.Interpreter(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "MEASURED", "TARGET")
			speed := func(of float64) string { return fmt.Sprintf("%.0f M/s per core", of) }
			rows.add("instructions of a thread, lanes together", speed(r.ThreadInstrMPerSecPerCore.Converged), "1000 M/s per core")
			rows.add("instructions of a thread, each lane alone", speed(r.ThreadInstrMPerSecPerCore.Divergent), "200 M/s per core")
			rows.add("matrices, 512 by 512", milliseconds(r.Matmul512Ms), "")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&o.Rounds, "rounds", o.Rounds, "measurements")
	jsonFlag(cmd, &asJSON)
	return cmd
}
