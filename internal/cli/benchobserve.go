// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/size"
)

func (a *app) benchObserveCommand() *cobra.Command {
	var asJSON bool
	o := bench.ObserveOptions{Shares: 1000, Clients: 200, Fresh: 20, Scrapes: 1000}
	cmd := &cobra.Command{
		Use:   "observe",
		Short: "What it costs to look at many shares",
		Long: `Makes shares on a simulated GPU, with a program that does nothing in some of them, and
scrapes metrics: once a second, for which all is measured anew, and many at once after
another. Shows how long and how large a scrape is, what the agent takes of memory
before and after, and of a core while no client asks, and while one does each second.`,
		Example: `  divvy bench observe --shares 100 --clients 20 --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		for _, n := range []struct {
			flag            string
			is, least, most int
		}{{"shares", o.Shares, 1, 1000}, {"clients", o.Clients, 0, o.Shares}, {"fresh", o.Fresh, 1, 1000}, {"scrapes", o.Scrapes, 1, 1_000_000}} {
			if n.is < n.least || n.is > n.most {
				return usage(fmt.Errorf("--%s: %d is not between %d and %d", n.flag, n.is, n.least, n.most))
			}
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			r, err := bench.Observe(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(r)
			}
			rows := newTable("WHAT", "SEEN", "TARGET OF 1,000")
			rows.add(fmt.Sprintf("a scrape of %d shares, measured anew", r.Shares), quantilesText(r.ScrapeMs), "100 ms")
			rows.add("right after it", quantilesText(r.CachedMs), "")
			rows.add("so that measuring took", quantilesText(r.SampleMs), "")
			rows.add(strconv.Itoa(r.Series)+" series", size.Short(uint64(r.Bytes))+", "+size.Short(uint64(r.GzipBytes))+" with gzip", "2MiB")
			rows.add("the agent takes", size.Short(r.AgentBytes), "100MiB")
			rows.add(fmt.Sprintf("after %d scrapes more", r.Scrapes), size.Short(r.AgentBytesAfter), "the same")
			rows.add("of a core, while no client asks", percentText(r.AgentIdlePercent), "1%")
			rows.add("scraped each second", percentText(r.AgentLookedPercent), "")
			rows.add(fmt.Sprintf("turns of its loop over 1 ms, of %d", r.Turns.Count), fmt.Sprintf("%d, the longest %.3g ms", r.Turns.Long, float64(r.Turns.LongestNs)/1e6), "0")
			return rows.write(a.stdout)
		})
	})
	cmd.Flags().IntVar(&o.Shares, "shares", o.Shares, "how many shares")
	cmd.Flags().IntVar(&o.Clients, "clients", o.Clients, "how many programs, one to a share")
	cmd.Flags().IntVar(&o.Fresh, "fresh", o.Fresh, "scrapes that are measured anew, a second apart")
	cmd.Flags().IntVar(&o.Scrapes, "scrapes", o.Scrapes, "scrapes at once after another")
	jsonFlag(cmd, &asJSON)
	return cmd
}
