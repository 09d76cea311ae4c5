// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/bench"
)

const maxQuotaSeconds = 3600

func (a *app) benchQuotaCommand() *cobra.Command {
	var asJSON, together, matrix bool
	cores, seconds, kernels, pattern := []int{10, 30, 60}, 10, []float64{1000}, bench.PatternAsync
	cmd := &cobra.Command{
		Use:   "quota",
		Short: "How exactly fixed shares of a GPU's time are held",
		Long: `Keeps a simulated GPU busy under fixed shares, and compares what each had, by the
simulator's own account, with its quota and with what the same load gets without
Divvy. Without flags but --seconds it measures a selection: three quotas
with kernels of 50 us, 1 ms and 20 ms, three shares together, two other ways to
launch, and shares that nothing holds. ACCOUNT is by how much Divvy's own account
of the time is off. MISSED: an error of more than ` + bench.QuotaErrorTarget() + `, or a
second with more than the quota and one launch, or 5 ms more than that where all shares
measured at once were promised 97% or more. With --matrix, long launches are
measured longer.
Patterns are ` + strings.Join(bench.Patterns(), ", ") + `.`,
		Example: `  divvy bench quota --cores 20,30,50 --together`,
		Args:    cobra.NoArgs,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if seconds < 1 || seconds > maxQuotaSeconds {
			return usage(fmt.Errorf("--seconds: %d is not between 1 and %d", seconds, maxQuotaSeconds))
		}
		o := bench.QuotaOptions{Duration: time.Duration(seconds) * time.Second}
		for _, flag := range []string{"cores", "together", "kernel-us", "pattern"} {
			if cmd.Flags().Changed(flag) {
				o.Cases = quotaCases(cores, together, kernels, pattern)
			}
		}
		if matrix {
			if o.Cases != nil {
				return usage(errors.New("--matrix is all of it: give it without --cores, --together, --kernel-us and --pattern"))
			}
			o.Cases, o.Resolve = bench.QuotaMatrix(), true
		}
		var errs []error
		for _, c := range o.Cases {
			errs = append(errs, c.Validate())
		}
		if err := errors.Join(errs...); err != nil {
			return usage(err)
		}
		return a.underLoad(cmd.Context(), func(ctx context.Context, target bench.Target) error {
			o.Target = target
			report, err := bench.Quota(ctx, o)
			if err != nil {
				return err
			}
			if asJSON {
				return a.writeJSON(report)
			}
			rows := newTable("CORES", "GOT", "ERROR", "MOST OF 1 S", "ACCOUNT", "KERNEL", "PATTERN", "MODE", "CONTROL", "MISSED")
			for _, r := range report.Rows {
				rows.add(strconv.Itoa(r.CoresPercent)+"%", percentText(r.AchievedPercent), fmt.Sprintf("%+.2f", r.ErrorPoints),
					percentText(r.MostPercent), fmt.Sprintf("%+.2f%%", r.AccountErrorPercent), strconv.FormatFloat(r.KernelUs, 'f', -1, 64)+" us", r.Pattern, r.Mode, percentText(r.ControlPercent), cmp.Or(strings.Join(r.Missed, " "), "-"))
			}
			if err := rows.write(a.stdout); err != nil {
				return err
			}
			if together {
				fmt.Fprintln(a.stdout, quotaTogether(report.Rows))
			}
			_, err = fmt.Fprintln(a.stdout, quotaSummary(report.Rows))
			return err
		})
	})
	cmd.Flags().IntSliceVar(&cores, "cores", cores, "quotas in percent, one after the other")
	cmd.Flags().BoolVar(&together, "together", false, "all quotas at once")
	cmd.Flags().BoolVar(&a.overlap, "overlap", false, "with an agent that lets shares overlap (divvy agent --overlap)")
	a.slowHostFlag(cmd)
	cmd.Flags().BoolVar(&matrix, "matrix", false, "five quotas, three kernels, all patterns")
	cmd.Flags().IntVar(&seconds, "seconds", seconds, "how long each is measured")
	cmd.Flags().Float64SliceVar(&kernels, "kernel-us", kernels, "durations of kernels in microseconds")
	cmd.Flags().StringVar(&pattern, "pattern", pattern, "`how` programs launch")
	_ = cmd.RegisterFlagCompletionFunc("pattern", cobra.FixedCompletions(bench.Patterns(), cobra.ShellCompDirectiveNoFileComp))
	jsonFlag(cmd, &asJSON)
	return cmd
}

// quotaTogether says how busy shares kept the card that were measured at once, and
// why it was not busier.
func quotaTogether(rows []bench.QuotaRow) string {
	sum := 0.0
	for _, r := range rows {
		sum += r.AchievedPercent
	}
	text := fmt.Sprintf("together %.2f%% of the GPU", sum)
	if len(rows) == 0 {
		return text
	}
	if r := rows[0]; r.Idle != nil {
		text += fmt.Sprintf("; idle %.2f%%", r.Idle.Sum())
		for _, cause := range r.Idle.Causes() {
			text += fmt.Sprintf("\n  %5.2f%%  %s", cause.Percent, cause.Text)
		}
	}
	return text + "\n" + wakesText(rows[0].Host)
}

// wakesText says how late a host wakes threads.
func wakesText(w bench.Wakes) string {
	return fmt.Sprintf("this host woke threads late by p50 %.2f, p99 %.2f, at most %.2f ms", w.P50Us/1e3, w.P99Us/1e3, w.MostUs/1e3)
}

// quotaSummary says how many rows met their targets.
func quotaSummary(rows []bench.QuotaRow) string {
	exact, bounded := 0, 0
	for _, r := range rows {
		if !slices.Contains(r.Missed, bench.MissedError) {
			exact++
		}
		if !slices.Contains(r.Missed, bench.MissedSecond) {
			bounded++
		}
	}
	return fmt.Sprintf("%d of %d within %s; in %d no second had more than the quota and one launch, which may be a graph",
		exact, len(rows), bench.QuotaErrorTarget(), bounded)
}

func quotaCases(cores []int, together bool, kernels []float64, pattern string) []bench.QuotaCase {
	var cases []bench.QuotaCase
	for _, us := range kernels {
		cases = append(cases, bench.QuotaCase{Cores: cores, Together: together, Pattern: pattern,
			Kernel: time.Duration(us * float64(time.Microsecond))})
	}
	return cases
}

func percentText(of float64) string { return fmt.Sprintf("%.2f%%", of) }
