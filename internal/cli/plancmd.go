// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/placement"
	"github.com/divvy-gpu/divvy/internal/plan"
	"github.com/divvy-gpu/divvy/internal/plan/chart"
	"github.com/divvy-gpu/divvy/internal/plan/report"
	"github.com/divvy-gpu/divvy/internal/plan/trace"
)

// planFlags are the flags of divvy plan as given.
type planFlags struct {
	nodes            string
	pods             []string
	policies         []string
	seeds            string
	arrive           float64
	replay           bool
	queue            string
	speedUp          float64
	preempt          bool
	compare          []string
	migAs            string
	fits             string
	keepNodes        float64
	quotas           []string
	gangs            string
	allowUnknown     bool
	asJSON           bool
	csv, plots, html string

	// What check and read make of them.
	seedList         []int64
	quotaMilli       map[string]int64
	prefer, requires placement.Closeness
	nodeList         *trace.Nodes
	jobLists         []*trace.Jobs
}

func (a *app) planCommand() *cobra.Command {
	var f planFlags
	cmd := &cobra.Command{
		Use:   "plan --nodes FILE --pods FILE [flags]",
		Short: "Compute what a fleet can carry: how full, how long jobs wait, what sharing saves",
		Long: `Places the jobs of a list on the nodes of another, as the scheduler would: by
arrivals alone (the default), over time (--replay), with whole GPUs against
shares or MIG (--compare), or one job more (--fits). Lists are CSV, JSON or what
kubectl get nodes,pods -A -o json or yaml prints, plain or gzip.`,
		Example: `  divvy plan --nodes nodes.csv --pods jobs.csv.gz --policy divvy,fgd,bestfit --html plan.html`,
		Args:    cobra.NoArgs,
	}
	flags := cmd.Flags()
	flags.StringVar(&f.nodes, "nodes", "", "list of nodes; - is the standard input")
	flags.StringSliceVar(&f.pods, "pods", nil, "lists of jobs; --nodes itself if it holds both")
	flags.StringSliceVar(&f.policies, "policy", []string{"divvy"}, strings.Join(placement.Policies(), ", "))
	flags.StringVar(&f.seeds, "seeds", "42-51", "seeds, such as 42-51 or 1,2,7")
	flags.Float64Var(&f.arrive, "arrive", 130, "let so many percent of the GPUs be asked for")
	flags.BoolVar(&f.replay, "replay", false, "run jobs over time, from creation to deletion, with a queue")
	flags.StringVar(&f.queue, "queue", string(plan.QueueBackfill), "with --replay: "+strings.Join(plan.Queues(), " or "))
	flags.Float64Var(&f.speedUp, "speed-up", 1, "with --replay: let jobs arrive so many times as fast")
	flags.BoolVar(&f.preempt, "preempt", false, "with --replay: jobs may end others of lower priority")
	flags.StringSliceVar(&f.compare, "compare", nil, "GPUs needed for all jobs at once: "+strings.Join(plan.Modes(), ", "))
	flags.StringVar(&f.migAs, "mig-as", "", "with --compare mig: suppose all GPUs are this product")
	flags.StringVar(&f.fits, "fits", "", "does this job fit: a name from the list, or cpu=4,gpus=1,cores=30")
	flags.Float64Var(&f.keepNodes, "keep-nodes", 100, "keep so many percent of the nodes, drawn by the seed")
	flags.StringArrayVar(&f.quotas, "quota", nil, "TENANT=GPUS at a time, repeatable")
	flags.StringVar(&f.gangs, "gangs", "anywhere", "keep gangs on one node or rack; node! insists")
	flags.BoolVar(&f.allowUnknown, "allow-unknown-models", false, "accept jobs for GPU models that no node has")
	jsonFlag(cmd, &f.asJSON)
	flags.StringVar(&f.csv, "csv", "", "write the rows to this file")
	flags.StringVar(&f.plots, "plots", "", "draw plots into this folder, as SVG and PNG")
	flags.StringVar(&f.html, "html", "", "write one page with everything to this file")
	for _, name := range []string{
		"nodes", "seeds", "arrive", "queue", "speed-up", "mig-as", "fits", "keep-nodes", "gangs", "csv", "plots", "html",
	} {
		flag := flags.Lookup(name)
		flag.Value = &onceValue{flagValue: flag.Value}
	}
	complete(cmd, "nodes", fileCompletion)
	complete(cmd, "pods", fileCompletion)
	complete(cmd, "policy", listed(placement.Policies()...))
	complete(cmd, "queue", words(plan.Queues()...))
	complete(cmd, "compare", listed(plan.Modes()...))
	complete(cmd, "gangs", words("anywhere", "rack", "node", "rack!", "node!"))
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		return a.plan(cmd, &f)
	})
	return cmd
}

// onceValue is that of a flag that can be given once: of two the last would count, in silence.
type onceValue struct {
	flagValue
	given bool
}

type flagValue interface {
	String() string
	Set(text string) error
	Type() string
}

func (v *onceValue) Set(text string) error {
	if v.given {
		return errors.New("it is given twice, and takes one value")
	}
	v.given = true
	return v.flagValue.Set(text)
}

// listed completes the last of words with commas between.
func listed(list ...string) completer {
	return func(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
		before := typed[:strings.LastIndex(typed, ",")+1]
		var out []string
		for _, word := range list {
			if !slices.Contains(strings.Split(before, ","), word) {
				out = append(out, before+word)
			}
		}
		return startingWith(typed, out), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveKeepOrder
	}
}

func (a *app) plan(cmd *cobra.Command, f *planFlags) error {
	if err := f.check(cmd); err != nil {
		return withHint(usage(err), "divvy plan --help")
	}
	if err := f.read(); err != nil {
		return explainInput(err)
	}
	ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if f.fits != "" {
		return a.planFits(f)
	}
	draw, err := a.plotter(ctx, f)
	if err != nil {
		return err
	}
	var progress plan.Progress
	if isTerminal(a.stderr) {
		progress = progressBar(a.stderr)
	}
	r := &report.Report{Command: commandLine(cmd), Fleet: fleetInWords(f.nodeList.Nodes, f.keepNodes), Notes: f.notes()}
	err = f.run(ctx, r, progress)
	if progress != nil {
		fmt.Fprint(a.stderr, "\r\x1b[K")
	}
	if errors.Is(err, context.Canceled) {
		return errors.New("interrupted")
	}
	if err != nil {
		return explainInput(err)
	}
	for _, n := range r.Notes {
		a.note("%s", n)
	}
	if err := writeReport(r, f, draw); err != nil {
		return err
	}
	if f.asJSON {
		return a.writeJSON(planDocument(r))
	}
	return writePlan(a.stdout, r)
}

// check reads the flags that are more than a word.
func (f *planFlags) check(cmd *cobra.Command) error {
	if f.nodes == "" {
		return errors.New("--nodes is missing")
	}
	changed := cmd.Flags().Changed
	modes := 0
	for _, on := range []bool{f.replay, len(f.compare) > 0, f.fits != ""} {
		if on {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("--replay, --compare and --fits exclude each other")
	case f.fits != "" && len(f.pods) > 1:
		return fmt.Errorf("--fits looks at one list of --pods, and here are %d", len(f.pods))
	case modes == 1 && changed("arrive"):
		return errors.New("--arrive has no meaning with --replay, --compare or --fits")
	case !f.replay && (changed("queue") || changed("speed-up") || f.preempt):
		return errors.New("--queue, --speed-up and --preempt need --replay")
	case f.migAs != "" && !slices.Contains(f.compare, string(plan.ModeMIG)):
		return errors.New("--mig-as needs --compare mig")
	case !(f.arrive > 0 && f.arrive <= 1000):
		return fmt.Errorf("--arrive %g is not between 0 and 1000", f.arrive)
	case !(f.keepNodes > 0 && f.keepNodes <= 100):
		return fmt.Errorf("--keep-nodes %g is not between 0 and 100", f.keepNodes)
	case !(f.speedUp > 0 && f.speedUp <= 1e9):
		return fmt.Errorf("--speed-up %g is not between 0 and 1e9", f.speedUp)
	case !slices.Contains(plan.Queues(), f.queue):
		return fmt.Errorf("--queue %s is not %s", f.queue, strings.Join(plan.Queues(), " or "))
	}
	if err := placement.CheckPolicies(f.policies); err != nil {
		return err
	}
	for _, mode := range f.compare {
		if !slices.Contains(plan.Modes(), mode) {
			return fmt.Errorf("--compare %s is not %s", mode, strings.Join(plan.Modes(), ", "))
		}
	}
	var err error
	if f.seedList, err = parseSeeds(f.seeds); err != nil {
		return err
	}
	if f.quotaMilli, err = parseQuotas(f.quotas); err != nil {
		return err
	}
	near := map[string]placement.Closeness{"anywhere": placement.Anywhere, "rack": placement.SameRack, "node": placement.SameNode}
	word, demanded := strings.CutSuffix(f.gangs, "!")
	prefer, ok := near[word]
	if !ok {
		return fmt.Errorf("--gangs %s is none of anywhere, rack!, node!, rack and node", f.gangs)
	}
	f.prefer = prefer
	if demanded {
		f.requires = prefer
	}
	return nil
}

// mostSeeds bounds a run.
const mostSeeds = 1000

// parseSeeds reads 42-51 or 1,2,7.
func parseSeeds(text string) ([]int64, error) {
	var out []int64
	for _, part := range strings.Split(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseInt(from, 10, 63)
		last, err2 := strconv.ParseInt(to, 10, 63)
		if err1 != nil || err2 != nil || first < 0 || last < first {
			return nil, fmt.Errorf("--seeds %s is not like 42-51 or 1,2,7", text)
		}
		if last-first >= int64(mostSeeds-len(out)) {
			return nil, fmt.Errorf("--seeds %s are more than %d", text, mostSeeds)
		}
		for s := first; s <= last; s++ {
			if slices.Contains(out, s) {
				return nil, fmt.Errorf("--seeds %s has %d twice", text, s)
			}
			out = append(out, s)
		}
	}
	return out, nil
}

func parseQuotas(list []string) (map[string]int64, error) {
	out := map[string]int64{}
	for _, text := range list {
		tenant, gpus, ok := strings.Cut(text, "=")
		n, err := strconv.ParseFloat(gpus, 64)
		if !ok || tenant == "" || err != nil || !(n >= 0 && n <= 1e9) {
			return nil, fmt.Errorf("--quota %s is not TENANT=GPUS", text)
		}
		if _, twice := out[tenant]; twice {
			return nil, fmt.Errorf("--quota %s is given twice", tenant)
		}
		out[tenant] = int64(n * placement.WholeCard)
	}
	return out, nil
}

// read reads the lists.
func (f *planFlags) read() error {
	source, err := trace.Open(f.nodes)
	if err != nil {
		return err
	}
	if f.nodeList, err = source.Nodes(); err != nil {
		return err
	}
	if len(f.pods) == 0 {
		jobs, err := source.JobsBeside()
		if err != nil {
			return err
		}
		if f.fits == "" && len(jobs.Jobs) == 0 { // one job more may be asked for of an empty fleet
			return withHint(usage(errors.New("--pods is missing")), "divvy plan --help")
		}
		return f.take(jobs)
	}
	seen := map[string]string{}
	for _, file := range f.pods {
		name := trace.WorkloadName(file)
		if first, twice := seen[name]; twice {
			return usage(fmt.Errorf("--pods %s and %s would both be called %s", first, file, name))
		}
		seen[name] = file
		from := source // a pipe can be opened once only
		if file != f.nodes {
			if from, err = trace.Open(file); err != nil {
				return err
			}
		}
		jobs, err := from.Jobs()
		if err != nil {
			return err
		}
		if err := f.take(jobs); err != nil {
			return err
		}
	}
	return nil
}

// take keeps a list of jobs for the nodes that have been read.
func (f *planFlags) take(jobs *trace.Jobs) error {
	if len(f.compare) == 0 {
		if err := trace.CheckModels(f.nodeList, jobs, f.allowUnknown); err != nil {
			return withHint(err, "--allow-unknown-models lets such jobs wait for ever")
		}
	}
	trace.Bind(f.nodeList, jobs)
	f.jobLists = append(f.jobLists, jobs)
	return nil
}

func (f *planFlags) notes() []string {
	out := slices.Clone(f.nodeList.Notes)
	for _, jobs := range f.jobLists {
		for _, n := range jobs.Notes {
			if !slices.Contains(out, n) {
				out = append(out, n)
			}
		}
	}
	return out
}

// explainInput gives the errors of lists their class.
func explainInput(err error) error {
	var bad *trace.InputError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return notThere(err)
	case errors.Is(err, plan.ErrNoPartitions):
		return withHint(usage(err), "--mig-as h100-sxm-80gb supposes that all GPUs are of that product")
	case errors.As(err, &bad):
		return usage(err)
	}
	return err
}

// run does what the flags ask for.
func (f *planFlags) run(ctx context.Context, r *report.Report, progress plan.Progress) (err error) {
	fleet := plan.Fleet{Nodes: f.nodeList.Nodes, KeepPercent: f.keepNodes}
	rules := plan.Rules{QuotaMilli: f.quotaMilli, Prefer: f.prefer, Requires: f.requires}
	switch {
	case f.replay:
		run := plan.Replay{Fleet: fleet, Rules: rules, Workloads: f.jobLists, Policies: f.policies, Seeds: f.seedList,
			Queue: plan.Queue(f.queue), SpeedUp: f.speedUp, Preempt: f.preempt}
		r.Replay, err = run.Run(ctx, progress)
	case len(f.compare) > 0:
		run := plan.Sharing{Fleet: fleet, Rules: rules, Workloads: f.jobLists, Policies: f.policies, Seeds: f.seedList, MIGAs: f.migAs}
		for _, mode := range f.compare {
			run.Modes = append(run.Modes, plan.Mode(mode))
		}
		r.Sharing, err = run.Run(ctx, progress)
	default:
		run := plan.Inflation{Fleet: fleet, Rules: rules, Workloads: f.jobLists, Policies: f.policies, Seeds: f.seedList, ArrivePercent: f.arrive}
		r.Inflation, err = run.Run(ctx, progress)
	}
	return err
}

// plotter returns what draws plots, if the flags ask for some: a program of its own, whose
// lack is said before hours are computed.
func (a *app) plotter(ctx context.Context, f *planFlags) (chart.Draw, error) {
	if f.html == "" && f.plots == "" {
		return nil, nil
	}
	dir, err := a.libraries()
	if err != nil {
		return nil, err
	}
	program := dir.Tool("divvy-plot")
	if _, err := os.Stat(program); err != nil {
		return nil, withHint(fmt.Errorf("--html and --plots are drawn by divvy-plot: %w", err), "make build")
	}
	return chart.By(ctx, program, f.plots != ""), nil
}

// writeReport writes the files that were asked for.
func writeReport(r *report.Report, f *planFlags, draw chart.Draw) error {
	if f.csv != "" {
		if err := writeFile(f.csv, r.CSV); err != nil {
			return err
		}
	}
	if draw == nil {
		return nil
	}
	drawn, err := r.Drawings(draw)
	if err != nil {
		return err
	}
	if f.html != "" {
		if err := writeFile(f.html, func(w io.Writer) error { return r.HTML(w, drawn) }); err != nil {
			return err
		}
	}
	if f.plots != "" {
		_, err = report.Plots(f.plots, drawn)
	}
	return err
}

func writeFile(name string, write func(io.Writer) error) error {
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	if err := errors.Join(write(file), file.Close()); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// progressBar draws how much is done, over itself.
func progressBar(w io.Writer) plan.Progress {
	return func(done, total int) {
		const width = 30
		full := width * done / total
		fmt.Fprintf(w, "\r[%s%s] %d of %d runs", strings.Repeat("#", full), strings.Repeat(".", width-full), done, total)
	}
}

// commandLine repeats the flags that were given.
func commandLine(cmd *cobra.Command) string {
	words := []string{"divvy", "plan"}
	for _, name := range []string{"nodes", "pods", "policy", "seeds", "arrive", "replay", "queue", "speed-up", "preempt", "compare", "mig-as",
		"keep-nodes", "quota", "gangs", "allow-unknown-models"} {
		flag := cmd.Flags().Lookup(name)
		switch {
		case !flag.Changed:
		case flag.Value.Type() == "bool":
			words = append(words, "--"+name)
		default:
			words = append(words, "--"+name, strings.Trim(flag.Value.String(), "[]"))
		}
	}
	return strings.Join(words, " ")
}
