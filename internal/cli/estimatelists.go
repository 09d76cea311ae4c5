// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/check"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

func (a *app) estimateCheckCommand() *cobra.Command {
	var asJSON, all bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Compare estimates with published measurements",
		Long: `Computes every measurement of a file in the form of data/llm-reference.yaml from its
settings alone, and reports the error by kind. Without FILE: the built-in one. What is
not understood skips a row and is named. Rows of low confidence are negative controls:
they are computed and do not count.`,
		Example: `  divvy estimate check --json`,
		Args:    cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		file, err := reference.Default()
		if err != nil {
			return err
		}
		if len(args) == 1 {
			raw, err := a.readBounded(args[0])
			if err != nil {
				return err
			}
			if file, err = reference.Read(raw); err != nil {
				return usage(fmt.Errorf("%s: %w", args[0], err))
			}
		}
		r := check.Run(estimate.New(), file)
		if asJSON {
			return a.writeJSON(r)
		}
		return a.writeCheck(r, all)
	})
	cmd.Flags().BoolVar(&all, "all", false, "print every row")
	jsonFlag(cmd, &asJSON)
	cmd.ValidArgsFunction = fileCompletion
	return cmd
}

func (a *app) writeCheck(r check.Report, all bool) error {
	if all {
		t := newTable("ROW", "PREDICTED", "PUBLISHED", "ERROR", "")
		for _, x := range r.Rows {
			if x.Skipped != "" {
				t.add(x.ID, "skipped", x.Skipped)
				continue
			}
			published, miss, within := "", "", ""
			if x.Published != nil {
				published = fmt.Sprintf("%.5g", *x.Published)
			}
			if x.ErrorPercent != nil {
				miss = fmt.Sprintf("%+.1f%%", *x.ErrorPercent)
			}
			if x.Within {
				within = "within"
			}
			t.add(x.ID, fmt.Sprintf("%.5g", *x.Predicted), published, miss, within)
		}
		if err := t.write(a.stdout); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout)
	}
	t := newTable("KIND", "ROWS", "SKIP", "LOW", "WITHIN", "LIMIT", "MEDIAN")
	for _, k := range r.Kinds {
		tolerance, middle := "", ""
		if k.Tolerance != nil {
			tolerance = fmt.Sprintf("%g%%", *k.Tolerance)
		}
		if k.MedianError != nil {
			middle = fmt.Sprintf("%.1f%%", *k.MedianError)
		}
		t.add(k.Kind, fmt.Sprint(k.Rows), fmt.Sprint(k.Skipped), fmt.Sprint(k.LowConfidence), fmt.Sprint(k.Within), tolerance, middle)
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout, "\nSKIP: no shape, no known GPU, or not understood; LOW: negative controls, which\ndo not count; MEDIAN: of the error.")
	return nil
}

func (a *app) estimateModelsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "models",
		Short:   "List the known models, and where their shapes were published",
		Example: `  divvy estimate models`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		file, err := reference.Default()
		if err != nil {
			return err
		}
		type model struct {
			Name           string           `json:"name"`
			Family         string           `json:"family"`
			Parameters     int64            `json:"parameters"`
			Active         int64            `json:"active"`
			KVBytesPerPair float64          `json:"kvBytesPerToken"` // in 16 bits
			Arch           *estimate.Arch   `json:"arch"`
			Source         reference.Source `json:"source"`
			Verified       bool             `json:"verified"`
			Note           string           `json:"note,omitempty"`
		}
		list := []model{}
		for _, m := range file.Models {
			list = append(list, model{m.Name, m.Family, m.Total(), m.ActiveTotal(), m.Arch.KVBytesPerToken(2), m.Arch, file.Sources[m.Source], m.Verified, m.Note})
		}
		if asJSON {
			return a.writeJSON(struct {
				Schema string  `json:"schema"`
				Models []model `json:"models"`
			}{"divvy.estimate.models/v1", list})
		}
		t := newTable("MODEL", "PARAMETERS", "ACTIVE", "KV A TOKEN", "SOURCE")
		for i, m := range list {
			active := ""
			if m.Active != m.Parameters {
				active = fmt.Sprintf("%d", m.Active)
			}
			t.add(m.Name, fmt.Sprintf("%d", m.Parameters), active, estimate.Figure(m.KVBytesPerPair, estimate.Bytes), file.Models[i].Source)
		}
		if err := t.write(a.stdout); err != nil {
			return err
		}
		a.sources(file, func(key string) bool {
			for _, m := range file.Models {
				if m.Source == key {
					return true
				}
			}
			return false
		})
		return nil
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}

// sources lists those that some rows above name.
func (a *app) sources(file *reference.File, named func(string) bool) {
	fmt.Fprintln(a.stdout)
	for _, key := range reference.SortedSources(file) {
		if named(key) {
			a.paragraph(key+": ", "    ", file.Sources[key].Title+" "+file.Sources[key].URL)
		}
	}
}

func (a *app) estimateCardsCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "cards",
		Short:   "List the known GPUs: memory, bandwidth, dense rates, and their sources",
		Example: `  divvy estimate cards`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		file, err := reference.Default()
		if err != nil {
			return err
		}
		if asJSON {
			return a.writeJSON(struct {
				Schema  string                      `json:"schema"`
				Cards   []estimate.Datasheet        `json:"cards"`
				Sources map[string]reference.Source `json:"sources"`
			}{"divvy.estimate.cards/v1", file.Cards, file.Sources})
		}
		t := newTable("GPU", "GIB", "GB/S", "BF16", "FP8", "FP4", "LINK", "MIG", "SOURCES")
		rate := func(x float64) string {
			if x == 0 {
				return ""
			}
			return fmt.Sprintf("%.0f", math.Round(x))
		}
		for _, c := range file.Cards {
			mig := ""
			if c.MIG.Supported {
				mig = fmt.Sprint(c.MIG.Instances)
			}
			wide := rate(c.BF16)
			if c.BF16 == 0 {
				wide = rate(c.FP16) + "*"
			}
			t.add(c.Name, fmt.Sprint(c.MemoryGiB), fmt.Sprint(c.Bandwidth), wide, rate(c.FP8), rate(c.FP4), rate(c.Link.Each), mig, strings.Join(c.Sources, ","))
		}
		if err := t.write(a.stdout); err != nil {
			return err
		}
		fmt.Fprintln(a.stdout, "\nTFLOP/s are dense; LINK is GB/s each way; * FP16 alone.")
		a.sources(file, func(key string) bool {
			for _, c := range file.Cards {
				for _, s := range c.Sources {
					if s == key {
						return true
					}
				}
			}
			return false
		})
		return nil
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}
