// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/divvy-gpu/divvy/internal/advise"
	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
	"github.com/divvy-gpu/divvy/internal/size"
)

// adviseFlags are the flags of divvy advise as given.
type adviseFlags struct {
	facts             advise.Facts
	model, mem        string
	precision         string
	p99, duty, in     string
	devices, simulate string
	whyNot            string
	script, asJSON    bool
	nodes             string
	pods              []string
	job, disk         string

	savedBytes float64 // of a checkpoint; 0: not known
	savedOf    string
}

func (a *app) adviseCommand() *cobra.Command {
	var f adviseFlags
	cmd := &cobra.Command{
		Use:   "advise",
		Short: "Choose how to give GPUs to a workload, with the commands that do it",
		Long: `Weighs whole GPUs, MIG, vGPU, passthrough, shares, MPS, replicas and others, says why
and at what cost, and ends in commands. It changes nothing. At a terminal it asks.
Workloads: ` + strings.Join(advise.Words("workload"), ", ") + ".",
		Example: `  divvy advise --workload notebook --count 6
  divvy advise --workload small-serve --model llama-3-8b --tenants strangers --script`,
		Args: subcommand,
	}
	f.define(a, cmd)
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error { return a.advise(cmd, &f) })
	cmd.AddCommand(a.adviseTreeCommand())
	return cmd
}

// define gives a command the flags.
func (f *adviseFlags) define(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.facts.Workload, "workload", "", "`what` runs, one of the words above")
	flags.StringVar(&f.facts.Stage, "stage", "", strings.Join(advise.Words("stage"), ", "))
	flags.StringVar(&f.model, "model", "", "`name` of a model: memory and latency by divvy estimate")
	flags.StringVar(&f.precision, "precision", "", strings.Join(estimate.Formats(), ", "))
	flags.StringVar(&f.mem, "mem", "", "memory that one instance takes, a `size` like 8GiB")
	flags.StringVar(&f.facts.Tenants, "tenants", "", "who shares: one, trusted, strangers")
	flags.StringVar(&f.p99, "p99", "", "latency at the 99th percentile, like 20ms")
	flags.StringVar(&f.duty, "duty", "", "part of the time that one is busy, like 10%")
	flags.IntVar(&f.facts.Count, "count", 0, "how many instances")
	flags.StringVar(&f.in, "in", "", "container, vm or kubernetes:1.36")
	flags.StringSliceVar(&f.facts.Licences, "licences", nil, "that there are: vgpu")
	flags.Float64Var(&f.facts.Price, "price", 0, "of a GPU and hour, in any currency")
	flags.StringVar(&f.facts.Bound, "bound", "", "what it waits for: compute, memory, mixed")
	flags.StringVar(&f.facts.Aim, "aim", "", "what matters: latency, throughput, availability")
	flags.StringVar(&f.facts.Place, "place", "", "cloud, edge, cluster")
	flags.StringVar(&f.facts.Changes, "changes", "", "how often parts change: hourly, rarely")
	flags.StringVar(&f.devices, "devices", "", "divvy devices --json of another machine, a `file`")
	flags.StringVar(&f.simulate, "simulate", "", "on simulated `GPUs`, like 2xA100-40GB,L4")
	flags.Lookup("simulate").NoOptDefVal = defaultCards
	flags.StringVar(&f.whyNot, "why-not", "", "say why a `technique` is not the first, and what it takes")
	flags.BoolVar(&f.script, "script", false, "print the commands and their undo as a shell script")
	flags.StringVar(&f.job, "job", "", "a `file` with the stages of jobs: a timetable")
	flags.StringVar(&f.disk, "disk", "1GB/s", "`rate` at which checkpoints are written")
	flags.StringVar(&f.nodes, "nodes", "", "a fleet: list of nodes, as of divvy plan")
	flags.StringSliceVar(&f.pods, "pods", nil, "and lists of its jobs")
	jsonFlag(cmd, &f.asJSON)
	for _, fact := range []string{"workload", "stage", "tenants", "bound", "aim", "place", "changes", "licences"} {
		complete(cmd, fact, words(advise.Words(fact)...))
	}
	complete(cmd, "in", words("container", "vm", "kubernetes:1.36"))
	complete(cmd, "model", completeNames((*reference.File).ModelNames))
	complete(cmd, "precision", words(estimate.Formats()...))
	complete(cmd, "why-not", words(advise.Techniques()...))
	complete(cmd, "simulate", a.completeModels)
	for _, file := range []string{"devices", "job", "nodes", "pods"} {
		complete(cmd, file, fileCompletion)
	}
}

func (a *app) adviseTreeCommand() *cobra.Command {
	var form string
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "tree",
		Short:   "Print all rules of advice, in the order in which they count",
		Example: `  divvy advise tree -o mermaid`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		switch {
		case asJSON:
			return a.writeJSON(struct {
				Schema string          `json:"schema"`
				Rules  []advise.Reason `json:"rules"`
			}{"divvy.advice.rules/v1", advise.Rules()})
		case form == "mermaid":
			_, err := fmt.Fprint(a.stdout, advise.Mermaid())
			return err
		case form != "text":
			return usage(fmt.Errorf("--output: %q is not text or mermaid", form))
		}
		for _, line := range strings.Split(strings.TrimSuffix(advise.Tree(), "\n"), "\n") {
			indent := line[:len(line)-len(strings.TrimLeft(line, " "))]
			a.paragraph(indent, indent+"  ", line)
		}
		return nil
	})
	cmd.Flags().StringVarP(&form, "output", "o", "text", "`form`: text, mermaid")
	complete(cmd, "output", words("text", "mermaid"))
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) advise(cmd *cobra.Command, f *adviseFlags) error {
	changed := cmd.Flags().Changed
	asked := !changed("workload") && !changed("stage") && !changed("place")
	switch {
	case f.nodes != "" || len(f.pods) > 0:
		return a.adviseFleet(cmd, f)
	case f.job != "":
		return a.adviseJob(cmd.Context(), f)
	case f.script && (f.asJSON || f.whyNot != ""), f.asJSON && f.whyNot != "":
		return usage(errors.New("--script, --json and --why-not exclude each other"))
	case asked && !a.asks():
		return withHint(usage(errors.New("which workload? --workload or --stage")), "divvy advise --workload "+strings.Join(advise.Words("workload"), "|"))
	}
	if !asked { // a wrong question is refused before any card is looked at
		if err := f.read(); err != nil {
			return usage(err)
		}
		if _, err := f.facts.Complete(); err != nil {
			return usage(err)
		}
	}
	file, err := reference.Default()
	if err != nil {
		return err
	}
	inv, err := a.adviseCards(cmd.Context(), f, file)
	if err != nil {
		return err
	}
	if asked {
		if err := a.ask(f, inv); err != nil {
			return err
		}
	}
	advice, err := f.consider(inv, file)
	if err != nil {
		return err
	}
	switch {
	case f.asJSON:
		return a.writeJSON(advice)
	case f.whyNot != "":
		return a.whyNot(f, inv, &advice)
	case f.script:
		return a.adviseScript(&advice)
	}
	return a.writeAdvice(&advice)
}

// consider advises on cards.
func (f *adviseFlags) consider(inv advise.Inventory, file *reference.File) (advice advise.Advice, err error) {
	if err := f.read(); err != nil {
		return advice, usage(err)
	}
	if err := f.byModel(inv, file); err != nil {
		return advice, usage(err)
	}
	if advice, err = advise.Advise(f.facts, inv, measurements(file)); err != nil {
		return advice, usage(err)
	}
	if advice.Stage != nil && advice.Stage.Stage == "checkpoint" {
		advice.Stage.Checkpoint, err = f.saving(&advice)
	}
	return advice, err
}

// asks says that there is somebody to ask.
func (a *app) asks() bool {
	in, ok := a.stdin.(*os.File)
	return ok && term.IsTerminal(int(in.Fd())) && isTerminal(a.stdout)
}

// read turns words into figures.
func (f *adviseFlags) read() error {
	if f.p99 != "" {
		d, err := time.ParseDuration(f.p99)
		if err != nil || d <= 0 {
			return fmt.Errorf("--p99 %s is no time like 20ms", f.p99)
		}
		f.facts.P99Ms = d.Seconds() * 1000
	}
	if f.duty != "" {
		x, err := estimate.ParseFigure(f.duty, estimate.Percent)
		if err != nil || x <= 0 || x > 100 {
			return fmt.Errorf("--duty %s is no part like 10%%", f.duty)
		}
		f.facts.Duty = x
	}
	if f.facts.Count < 0 {
		return fmt.Errorf("--count %d is less than 1", f.facts.Count)
	}
	f.facts.In, f.facts.Kubernetes, _ = strings.Cut(f.in, ":")
	if f.facts.In == "kubernetes" && strings.HasSuffix(f.in, ":") {
		return errors.New("--in kubernetes: has no version, like kubernetes:1.36")
	}
	if f.mem != "" {
		bytes, err := size.Parse(f.mem)
		if err != nil {
			return fmt.Errorf("--mem: %w", err)
		}
		f.facts.MemoryBytes, f.facts.MemoryFrom = bytes, "as given"
	}
	if f.precision != "" && f.model == "" {
		return errors.New("--precision is of a --model")
	}
	return nil
}

// What an engine is estimated with: so many requests of so many tokens.
const (
	advisedRequests = 8
	advisedTokens   = 1000
	advisedSequence = 2048
)

// byModel asks the estimator what one instance takes of a card, and how long a
// token takes alone. Memory that was given counts where the model fits in it.
func (f *adviseFlags) byModel(inv advise.Inventory, file *reference.File) error {
	if f.model == "" {
		return nil
	}
	model, ok := file.ModelNamed(f.model)
	if !ok {
		return withHint(file.UnknownModel(f.model), "divvy estimate models lists them; --mem says what one instance takes")
	}
	f.facts.Model = model.Name
	given := f.facts.MemoryBytes
	facts, err := f.facts.Complete()
	if err != nil {
		return err
	}
	estimated := f.byServing
	switch facts.Workload {
	case "train":
		estimated = f.byTraining
	case "finetune":
		estimated = f.byTuning
	}
	if err := estimated(estimate.New(), model, largestCard(inv, file)); err != nil {
		return err
	}
	switch {
	case given == 0:
	case given >= f.facts.LeastBytes:
		f.facts.MemoryBytes, f.facts.MemoryFrom = given, "as given"
	default: // it would not even start: the estimate counts, and the rule says no
		f.facts.ShareBytes = given
	}
	return nil
}

// least is what an instance takes before it works: weights and context.
func least(m *estimate.Memory) uint64 {
	sum := 0.0
	for _, p := range m.Parts {
		if p.Name == "weights" || p.Name == "overhead" {
			sum += p.Low
		}
	}
	return uint64(sum)
}

// byServing asks what an engine takes.
func (f *adviseFlags) byServing(e *estimate.Estimator, model *estimate.Model, largest *estimate.Datasheet) error {
	ef := estimateFlags{kind: ofServing, precision: f.precision, isl: advisedTokens, osl: advisedTokens, concurrency: advisedRequests}
	q, err := ef.serving(model, largest)
	if err != nil {
		return err
	}
	alone := q
	alone.Card = nil
	alone.Cards = 1
	r, err := e.Serve(alone)
	if err != nil {
		return err
	}
	f.facts.MemoryBytes, f.facts.LeastBytes = uint64(r.Memory.Total.Mid), least(&r.Memory)
	f.facts.MemoryFrom = fmt.Sprintf("%s in %s, %d requests of %d + %d tokens", model.Name, q.Format.Name, advisedRequests, advisedTokens, advisedTokens)
	if largest == nil {
		return nil
	}
	fewest, err := e.ServeFewest(q)
	if err != nil {
		return err
	}
	f.facts.Cards = fewest.Cards
	if fewest.Cards > 1 {
		f.facts.MemoryBytes, f.facts.LeastBytes = uint64(fewest.Memory.Total.Mid), least(&fewest.Memory)
		f.facts.MemoryFrom += fmt.Sprintf(", on each of %d", fewest.Cards)
	}
	f.facts.AloneMs = 1000 / fewest.Alone.Mid
	return nil
}

// byTraining asks what training of all weights takes.
func (f *adviseFlags) byTraining(e *estimate.Estimator, model *estimate.Model, largest *estimate.Datasheet) error {
	ef := estimateFlags{kind: ofTraining, precision: f.precision, seq: advisedSequence, optimizer: "adamw", offload: "none"}
	q, err := ef.training(model, largest)
	if err != nil {
		return err
	}
	f.savedBytes, f.savedOf = float64(model.Total())*(weightBytes+stateBytes), "weights and optimizer states"
	return f.trained(e, q, fmt.Sprintf("all weights, sequences of %d tokens", advisedSequence))
}

// byTuning asks what adapters take.
func (f *adviseFlags) byTuning(e *estimate.Estimator, model *estimate.Model, largest *estimate.Datasheet) error {
	ef := estimateFlags{kind: ofTuning, precision: f.precision, seq: advisedSequence, optimizer: "adamw", offload: "none", lora: defaultLoRARank, fused: true, batch: 1}
	q, err := ef.training(model, largest)
	if err != nil {
		return err
	}
	q.Recompute = estimate.RecomputeFull
	q.GlobalBatch, q.MicroBatch = 0, 1
	return f.trained(e, q, fmt.Sprintf("adapters of rank %d, one sequence of %d tokens, recomputed", defaultLoRARank, advisedSequence))
}

func (f *adviseFlags) trained(e *estimate.Estimator, q estimate.Training, what string) error {
	ask := e.TrainFewest
	if q.Card == nil {
		ask, q.Cards = e.Train, 1
	}
	r, err := ask(q)
	if err != nil {
		return err
	}
	f.facts.MemoryBytes, f.facts.LeastBytes, f.facts.Cards = uint64(r.Memory.Total.Mid), least(&r.Memory), r.Cards
	f.facts.MemoryFrom = fmt.Sprintf("%s in %s, %s", q.Model.Name, q.Format.Name, what)
	if r.Cards > 1 {
		f.facts.MemoryFrom += fmt.Sprintf(", on each of %d", r.Cards)
	}
	if f.savedBytes == 0 {
		f.savedBytes, f.savedOf = adapterBytes(&r), "adapters and their states"
	}
	return nil
}

// largestCard is the kind of the largest card that is known.
func largestCard(inv advise.Inventory, file *reference.File) *estimate.Datasheet {
	var largest *estimate.Datasheet
	for _, c := range inv.Cards {
		for _, kind := range file.CardsNamed(c.Kind) {
			if largest == nil || kind.MemoryGiB > largest.MemoryGiB {
				largest = kind
			}
		}
	}
	return largest
}

// measurements are the rows that costs are made of.
func measurements(file *reference.File) map[string]advise.Measurement {
	wanted := map[string]bool{}
	for _, id := range advise.CostRows() {
		wanted[id] = true
	}
	out := map[string]advise.Measurement{}
	for i := range file.Rows {
		row := &file.Rows[i]
		if !wanted[row.ID] {
			continue
		}
		m := advise.Measurement{Unit: row.Unit, Source: file.Sources[row.Source].Title}
		if x, ok := reference.Number(row.Value); ok {
			m.Values = []float64{x}
		}
		for _, n := range row.Value.Content {
			if x, ok := reference.Number(*n); ok {
				m.Values = append(m.Values, x)
			}
		}
		out[row.ID] = m
	}
	return out
}
