// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
)

// fleetAdvice is `divvy advise --nodes FILE --pods FILE --json`.
type fleetAdvice struct {
	Schema   string            `json:"schema"`
	Computed bool              `json:"computed"` // from lists, not measured
	Fleet    string            `json:"fleet"`
	Notes    []string          `json:"notes"`
	Rows     []plan.SharingRow `json:"rows"`
	Best     []advise.Saving   `json:"best"`
	Alone    []advise.Alone    `json:"shouldNotShare"`
	Price    float64           `json:"pricePerCardHour,omitempty"`
}

// fleetPolicies are tried for a fleet.
var fleetPolicies = []string{"divvy", "fgd", "bestfit", "pack"}

// adviseFleet runs the planner: how many cards sharing would save, at which
// policy, and which jobs should not share.
func (a *app) adviseFleet(cmd *cobra.Command, f *adviseFlags) error {
	if f.nodes == "" {
		return usage(errors.New("--pods needs --nodes, the list of nodes"))
	}
	p := planFlags{nodes: f.nodes, pods: f.pods, policies: fleetPolicies, seeds: "42", compare: []string{string(plan.ModeWhole), string(plan.ModeShares)}, keepNodes: 100, speedUp: 1, arrive: 130, queue: string(plan.QueueBackfill), gangs: "anywhere"}
	if err := p.check(cmd); err != nil {
		return withHint(usage(err), "divvy advise --nodes FILE --pods FILE")
	}
	if err := p.read(); err != nil {
		return explainInput(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var progress plan.Progress
	if isTerminal(a.stderr) {
		progress = progressBar(a.stderr)
	}
	run := plan.Sharing{Fleet: plan.Fleet{Nodes: p.nodeList.Nodes, KeepPercent: 100}, Rules: plan.Rules{Prefer: p.prefer}, Workloads: p.jobLists, Policies: p.policies, Seeds: p.seedList,
		Modes: []plan.Mode{plan.ModeWhole, plan.ModeShares}}
	rows, err := run.Run(ctx, progress)
	if progress != nil {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	if err != nil {
		return explainInput(err)
	}
	out := fleetAdvice{Schema: "divvy.advice.fleet/v1", Computed: true, Fleet: fleetInWords(p.nodeList.Nodes, 100), Notes: append([]string{}, p.notes()...), Rows: rows, Price: f.facts.Price,
		Best: []advise.Saving{}, Alone: []advise.Alone{}}
	for _, jobs := range p.jobLists {
		var savings []advise.Saving
		for i := range rows {
			if r := &rows[i]; r.Workload == jobs.Workload() && r.Mode == plan.ModeShares && !r.Beyond {
				savings = append(savings, advise.Saving{Workload: r.Workload, Policy: r.Policy, CardsWhole: r.Needed + r.Fewer, CardsShared: r.Needed})
			}
		}
		if best, ok := advise.BestSaving(savings); ok {
			out.Best = append(out.Best, best)
		}
		var asked []advise.Asked
		for _, j := range jobs.Jobs {
			asked = append(asked, advise.Asked{Name: j.Name, Cards: j.GPUs, Part: partOf(j.Request), Linked: j.Linked})
		}
		out.Alone = append(out.Alone, advise.ShouldNotShare(jobs.Workload(), asked)...)
	}
	if f.asJSON {
		return a.writeJSON(out)
	}
	return a.writeFleet(&out)
}

// partOf is how much of each card a job asks for.
func partOf(r placement.Request) float64 {
	if r.GPUs > 1 || r.Profile != "" {
		return 1
	}
	return float64(r.GPUMilli) / placement.WholeCard
}

func (a *app) writeFleet(x *fleetAdvice) error {
	a.paragraph("", "  ", x.Fleet)
	for _, n := range x.Notes {
		a.note("%s", n)
	}
	fmt.Fprintln(a.stdout)
	t := newTable("WORKLOAD", "POLICY", "GPUS WHOLE", "SHARED", "FEWER")
	for _, r := range x.Rows {
		if r.Mode != plan.ModeShares {
			continue
		}
		whole, shared, fewer := fmt.Sprintf("%.0f", r.Needed+r.Fewer), fmt.Sprintf("%.0f", r.Needed), fmt.Sprintf("%.0f (%.1f%%)", r.Fewer, r.FewerPart)
		if r.Beyond {
			whole, shared, fewer = "", "over "+shared, ""
		}
		t.add(r.Workload, r.Policy, whole, shared, fewer)
	}
	if err := t.write(a.stdout); err != nil {
		return err
	}
	fmt.Fprintln(a.stdout)
	for _, b := range x.Best {
		a.paragraph("", "  ", savingInWords(b, x.Price))
	}
	for _, s := range x.Alone {
		jobs := "1 job"
		if s.Count > 1 {
			jobs = fmt.Sprintf("%d jobs", s.Count)
		}
		names := s.Jobs[:min(len(s.Jobs), 3)]
		a.paragraph("", "  ", fmt.Sprintf("%s: %s should not share: %s (%s%s)", s.Workload, jobs, s.Why, strings.Join(names, ", "), map[bool]string{true: ", ..."}[s.Count > len(names)]))
	}
	fmt.Fprintln(a.stdout, "\nComputed from lists: divvy plan --compare whole,shares,mig says more.")
	return nil
}

func savingInWords(b advise.Saving, price float64) string {
	fewer := b.CardsWhole - b.CardsShared
	if fewer <= 0 {
		return fmt.Sprintf("%s: sharing saves none of %.0f GPUs at any policy", b.Workload, b.CardsWhole)
	}
	text := fmt.Sprintf("%s: sharing saves %.0f of %.0f GPUs (%.1f %%) at policy %s", b.Workload, fewer, b.CardsWhole, b.Percent(), b.Policy)
	if price > 0 {
		text += fmt.Sprintf(", %.2f an hour", fewer*price)
	}
	return text
}
