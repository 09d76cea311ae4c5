// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

func (a *app) shareCommand() *cobra.Command {
	return a.group("share", "Create, change, delete and list declared shares",
		`  divvy share create alice --mem 8GiB --simulate`,
		a.shareCreateCommand(), a.shareSetCommand(), a.sharePauseCommand(true), a.sharePauseCommand(false),
		a.shareDeleteCommand(), a.shareListCommand())
}

// promise is what a share is asked to be, as flags.
type promise struct {
	mem      string
	cores    int
	policy   string
	weight   int
	priority int
	gpu      string
	gpus     int
	tenant   string
	enforce  string
	threads  int
	open     bool
	user     string
	labels   []string
	whole    bool
}

func (p *promise) addChangeable(a *app, cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&p.mem, "mem", "", "memory `quota`, like 8GiB or 8192 (MiB); default: the GPU")
	flags.IntVar(&p.cores, "cores", 0, "`percent` of the GPU's time (policy fixed)")
	flags.StringVar(&p.policy, "policy", "", "`policy` of time: "+share.Or(share.Policies()))
	flags.IntVar(&p.weight, "weight", 0, "`part` of the time under the weighted policy")
	flags.IntVar(&p.priority, "priority", 0, fmt.Sprintf("higher `number` goes first: %d to %d", share.Priority.Least, share.Priority.Most))
	complete(cmd, "policy", words(share.Policies()...))
	complete(cmd, "mem", words("1GiB", "2GiB", "4GiB", "8GiB", "16GiB"))
	complete(cmd, "cores", words("10", "25", "30", "50", "100"))
}

func (p *promise) addAll(a *app, cmd *cobra.Command) {
	p.addChangeable(a, cmd)
	flags := cmd.Flags()
	flags.StringVar(&p.gpu, "gpu", "", "`GPUs` by UUID, its start, or PCI address; default: most free")
	flags.IntVar(&p.gpus, "gpus", 1, "`number` of GPUs, each with this quota and time")
	flags.StringVar(&p.tenant, "tenant", "", "`name` of who pays")
	flags.StringVar(&p.enforce, "enforce", "", "least `level` to hold it: "+share.Or(share.Enforcements()))
	flags.IntVar(&p.threads, "mps-threads", 0, "`percent` of the processors for each process, by MPS")
	flags.BoolVar(&p.open, "open", false, "let programs of every user join it")
	flags.StringVar(&p.user, "user", "", "let programs of this `user` join it, by name or number")
	flags.BoolVar(&p.whole, "exclusive", false, "the whole GPU, with no other share on it")
	flags.StringArrayVar(&p.labels, "label", nil, "`KEY=VALUE` to find it by; may be repeated")
	complete(cmd, "gpu", a.completeCards)
	complete(cmd, "gpus", words("1", "2", "4", "8"))
	complete(cmd, "enforce", words(share.Enforcements()...))
}

// memory reads --mem.
func (p *promise) memory() (uint64, error) {
	if p.mem == "" {
		return 0, nil
	}
	bytes, err := size.Parse(p.mem)
	if err != nil {
		return 0, usage(fmt.Errorf("--mem: %w", err))
	}
	if bytes == 0 {
		return 0, withHint(usage(errors.New("--mem: a share of no memory cannot run anything")), "leave --mem out for the whole GPU")
	}
	if bytes%size.MiB != 0 {
		return 0, withHint(usage(fmt.Errorf("--mem: %s is no whole number of MiB", p.mem)),
			fmt.Sprintf("--mem %dMiB", bytes/size.MiB+1))
	}
	return bytes, nil
}

// joinUID reads --user; nil: it was not given.
func (p *promise) joinUID() (*int, error) {
	if p.user == "" {
		return nil, nil
	}
	if p.open {
		return nil, usage(errors.New("--user and --open exclude each other"))
	}
	uid, err := userNumber(p.user)
	if err != nil {
		return nil, usage(fmt.Errorf("--user: %w", err))
	}
	return &uid, nil
}

// userNumber is the uid of a user, by name or number.
func userNumber(name string) (int, error) {
	number := name
	if known, err := user.Lookup(name); err == nil {
		number = known.Uid
	}
	uid, err := strconv.ParseUint(number, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("no user %q", name)
	}
	return int(uid), nil
}

// check refuses flags that make no sense whatever the machine has.
func (p *promise) check(cmd *cobra.Command) error {
	if cmd.Flags().Changed("gpus") && p.gpus < 1 {
		return usage(fmt.Errorf("--gpus: %d is no number of GPUs", p.gpus))
	}
	for _, f := range []struct {
		flag   string
		within share.Range
		value  int
	}{
		{"cores", share.Cores, p.cores}, {"weight", share.Weight, p.weight}, {"mps-threads", share.Threads, p.threads}, {"priority", share.Priority, p.priority},
	} {
		if !cmd.Flags().Changed(f.flag) {
			continue
		}
		if err := f.within.Check(f.value); err != nil {
			return usage(fmt.Errorf("--%s: %w", f.flag, err))
		}
	}
	if p.policy != "" && share.Policy(p.policy).Validate() != nil {
		return usage(fmt.Errorf("--policy: %q is not %s", p.policy, share.Or(share.Policies())))
	}
	if p.enforce != "" && share.Enforcement(p.enforce).Validate() != nil {
		return usage(fmt.Errorf("--enforce: %q is not %s", p.enforce, share.Or(share.Enforcements())))
	}
	return nil
}

// spec is the request for a share of this promise.
func (p *promise) spec(cmd *cobra.Command) (api.ShareSpec, error) {
	if err := p.check(cmd); err != nil {
		return api.ShareSpec{}, err
	}
	bytes, err := p.memory()
	if err != nil {
		return api.ShareSpec{}, err
	}
	joins, err := p.joinUID()
	if err != nil {
		return api.ShareSpec{}, err
	}
	gpus := 0 // as many as --gpu names
	if cmd.Flags().Changed("gpus") {
		gpus = p.gpus
	}
	labels, err := share.ParseLabels(p.labels)
	if err != nil {
		return api.ShareSpec{}, usage(fmt.Errorf("--label: %w", err))
	}
	return api.ShareSpec{
		Exclusive: p.whole, Labels: labels, Open: p.open, JoinUID: joins, GPU: p.gpu, GPUs: gpus, MemoryBytes: bytes, CoresPercent: p.cores, Policy: share.Policy(p.policy), Weight: p.weight,
		Priority: p.priority, Tenant: p.tenant, Enforce: share.Enforcement(p.enforce), ThreadsPercent: p.threads,
	}, nil
}

func (a *app) shareCreateCommand() *cobra.Command {
	var p promise
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Declare a share",
		Long:  "Declares a share that stays until it is deleted. Programs join it with divvy run --share NAME.",
		Example: `  divvy share create alice --mem 8GiB --simulate
  divvy run --share alice --simulate -- divvy devices`,
		Args: oneName,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		spec, err := p.spec(cmd)
		if err != nil {
			return err
		}
		spec.Name = args[0]
		share, err := a.createShare(cmd.Context(), spec)
		if err != nil {
			return err
		}
		a.tellUnheld(share.Enforcement, share.EnforcementWhy)
		if asJSON {
			return a.writeJSON(share)
		}
		_, err = fmt.Fprintf(a.stdout, "share %s: %s on %s\n", share.Name, quota(share), gpusOf(share))
		return err
	})
	p.addAll(a, cmd)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// tellUnheld says of a share that nothing enforces that it is so.
func (a *app) tellUnheld(level share.Enforcement, why string) {
	if level == share.Booked {
		a.note("nothing enforces this share (level %s): %s", level, why)
	}
}

// createShare asks for a share. A private agent that leaves while it is asked
// is started again.
func (a *app) createShare(ctx context.Context, spec api.ShareSpec) (api.Share, error) {
	var share api.Share
	err := a.withAgent(ctx, func(p place) error {
		var err error
		share, err = p.client.CreateShare(ctx, spec)
		return err
	})
	return share, err
}

// leaveRaces is how often a private agent may leave under our hands.
const leaveRaces = 5

// withAgent calls the agent that is meant, starting a private one where none
// runs, and again when that one was just leaving.
func (a *app) withAgent(ctx context.Context, call func(place) error) error {
	return a.withPlace(ctx, a.findOrStart, call)
}

// withPlace calls the agent that find returns, again if it left meanwhile.
func (a *app) withPlace(ctx context.Context, find func(context.Context) (place, error), call func(place) error) error {
	var err error
	for range leaveRaces {
		var p place
		if p, err = find(ctx); err != nil {
			return err
		}
		if err = p.explain(call(p)); !errors.Is(err, client.ErrUnreachable) || a.chosenSocket() != "" {
			return err
		}
		a.target.gone = true
	}
	return err
}

func (a *app) shareSetCommand() *cobra.Command {
	var p promise
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "set NAME",
		Short: "Change a share while its programs run",
		Long: `Changes a share in place. A larger quota holds at once; a smaller one blocks
new allocations until use has fallen under it. Parts of the GPU's time and
priorities hold from the next launch on.`,
		Example:           `  divvy share set alice --mem 12GiB --priority 10`,
		Args:              oneName,
		ValidArgsFunction: a.completeShares,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		change, err := p.change(cmd)
		if err != nil {
			return err
		}
		at, err := a.find(cmd.Context())
		if err != nil {
			return err
		}
		share, err := at.client.ChangeShare(cmd.Context(), args[0], change)
		if err != nil {
			return at.explain(err)
		}
		if asJSON {
			return a.writeJSON(share)
		}
		_, err = fmt.Fprintf(a.stdout, "share %s: %s, %s\n", share.Name, quota(share), share.State)
		return err
	})
	p.addChangeable(a, cmd)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// change is what the given flags ask for.
func (p *promise) change(cmd *cobra.Command) (api.ShareChange, error) {
	var change api.ShareChange
	if err := p.check(cmd); err != nil {
		return change, err
	}
	given := cmd.Flags().Changed
	if given("mem") {
		bytes, err := p.memory()
		if err != nil {
			return change, err
		}
		change.MemoryBytes = &bytes
	}
	if given("cores") {
		change.CoresPercent = &p.cores
	}
	if given("policy") {
		policy := share.Policy(p.policy)
		change.Policy = &policy
	}
	if given("weight") {
		change.Weight = &p.weight
	}
	if given("priority") {
		change.Priority = &p.priority
	}
	if change == (api.ShareChange{}) {
		return change, withHint(usage(errors.New("nothing to change")), cmd.CommandPath()+" NAME --mem 12GiB")
	}
	return change, nil
}

// sharePauseCommand pauses a share, or lets it go on.
func (a *app) sharePauseCommand(pause bool) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:               "pause NAME",
		Short:             "Let a share's programs launch nothing until it is resumed",
		Long:              "Takes the GPU's time from a share. Its programs keep their memory; their launches wait.",
		Example:           `  divvy share pause alice`,
		Args:              oneName,
		ValidArgsFunction: a.completeShares,
	}
	if !pause {
		cmd.Use, cmd.Short, cmd.Example = "resume NAME", "Let a paused share's programs go on", `  divvy share resume alice`
		cmd.Long = "Gives a paused share its part of the GPU's time again."
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		at, err := a.find(cmd.Context())
		if err != nil {
			return err
		}
		share, err := at.client.ChangeShare(cmd.Context(), args[0], api.ShareChange{Paused: &pause})
		if err != nil {
			return at.explain(err)
		}
		if asJSON {
			return a.writeJSON(share)
		}
		_, err = fmt.Fprintf(a.stdout, "share %s: %s\n", share.Name, share.State)
		return err
	})
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) shareDeleteCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "delete NAME",
		Short: "Delete a share",
		Long: `Deletes a share. It is refused while processes are attached, but waits up to two
seconds for those that are just being ended; with --force they stay, and each
allocation of theirs fails from then on.`,
		Example:           `  divvy share delete alice`,
		Args:              oneName,
		ValidArgsFunction: a.completeShares,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		at, err := a.find(cmd.Context())
		if err != nil {
			return err
		}
		return at.explain(at.client.DeleteShare(cmd.Context(), args[0], force))
	})
	cmd.Flags().BoolVar(&force, "force", false, "also while processes are attached")
	a.targetFlags(cmd)
	return cmd
}

func (a *app) shareListCommand() *cobra.Command {
	var asJSON bool
	var form string
	var labels []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List shares, what they may use and what they use",
		Example: `  divvy share list --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		wide, err := isWide(form)
		if err != nil {
			return err
		}
		at, err := a.findLabelled(cmd.Context(), labels)
		if err != nil {
			return err
		}
		list, err := at.client.Shares(cmd.Context())
		if err != nil {
			return at.explain(err)
		}
		a.warnUnresponsive(list.Unresponsive)
		if asJSON {
			if list.Shares == nil {
				list.Shares = []api.Share{}
			}
			return a.writeJSON(list)
		}
		head := []string{"NAME", "GPU", "MEMORY", "USED", "PEAK", "DENIED", "CLIENTS", "ENFORCED", "STATE"}
		if wide {
			head = append(head, "DEMANDED", "WHY NOT STRONGER")
		}
		rows := newTable(head...)
		for _, s := range list.Shares {
			row := []string{s.Name, onGPU(s.CardUUID, len(s.Cards)), quota(s), size.Short(s.UsedBytes), size.Short(s.PeakBytes),
				strconv.FormatUint(s.Denials, 10), strconv.Itoa(s.Clients), string(s.Enforcement), s.State}
			if wide {
				row = append(row, cmp.Or(string(s.Enforce), "-"), cmp.Or(s.EnforcementWhy, "-"))
			}
			rows.add(row...)
			for i, c := range s.Cards {
				rows.add("GPU "+strconv.Itoa(i), shortUUID(c.CardUUID), memory(s), size.Short(c.UsedBytes), size.Short(c.PeakBytes),
					strconv.FormatUint(c.Denials, 10), "", "", c.Health)
			}
		}
		return rows.write(a.stdout)
	})
	wideFlag(cmd, &form)
	labelFlag(cmd, &labels)
	a.targetFlags(cmd)
	jsonFlag(cmd, &asJSON)
	return cmd
}

// labelFlag is of commands that list what belongs to shares.
func labelFlag(cmd *cobra.Command, labels *[]string) {
	cmd.Flags().StringArrayVar(labels, "label", nil, "only of shares with this `KEY=VALUE`; may be repeated")
}

// findLabelled is find, for what belongs to shares with these labels.
func (a *app) findLabelled(ctx context.Context, texts []string) (place, error) {
	labels, err := share.ParseLabels(texts)
	if err != nil {
		return place{}, usage(fmt.Errorf("--label: %w", err))
	}
	at, err := a.find(ctx)
	if err == nil && len(labels) > 0 {
		at.client = at.client.Labelled(labels)
	}
	return at, err
}

// memory is a share's quota on a GPU for people.
func memory(s api.Share) string {
	if s.MemoryBytes == 0 {
		return "the GPU"
	}
	return size.Format(s.MemoryBytes)
}

// quota is a share's memory for people.
func quota(s api.Share) string {
	if len(s.Cards) > 1 {
		return fmt.Sprintf("%d x %s", len(s.Cards), memory(s))
	}
	return memory(s)
}

// onGPU names the GPU of a share in a table, or how many it has.
func onGPU(s string, cards int) string {
	if cards > 1 {
		return fmt.Sprintf("%d GPUs", cards)
	}
	return shortUUID(s)
}

// gpusOf names the GPUs of a share, and says where they differ.
func gpusOf(s api.Share) string {
	if len(s.Cards) < 2 {
		return fmt.Sprintf("%s (%s)", s.CardName, shortUUID(s.CardUUID))
	}
	var names []string
	for _, c := range s.Cards {
		names = append(names, fmt.Sprintf("%s (%s)", c.CardName, shortUUID(c.CardUUID)))
	}
	text := strings.Join(names, ", ")
	if differ(s) {
		text += ": different models"
	}
	return text
}

// differ says whether the GPUs of a share are of different models.
func differ(s api.Share) bool {
	return slices.ContainsFunc(s.Cards, func(c api.ShareCard) bool { return c.CardName != s.CardName })
}

// oneName takes exactly one argument, a name.
func oneName(cmd *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return withHint(errors.New("no name given"), cmd.CommandPath()+" NAME")
	case 1:
		return nil
	}
	return fmt.Errorf("one name, not %d arguments", len(args))
}
