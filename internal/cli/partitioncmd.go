// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/cdi"
	facts "github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/machine"
	"github.com/divvy-gpu/divvy/internal/partition/mig"
)

// maxPartitionFile bounds files of states and goals.
const maxPartitionFile = 1 << 20

func (a *app) partitionCommand() *cobra.Command {
	return a.group("partition", "Divide GPUs by hardware: MIG by a file of desired states",
		`  divvy partition plan goal.yaml --state state.yaml`,
		a.partitionShow(), a.partitionPlan(), a.partitionApply(), a.partitionConvert(), a.partitionExplain())
}

// partitionInput is what plan and show read.
type partitionInput struct {
	state, driver, root, mps, cdi, selected string
	library                                 string // folder of NVIDIA's, where driver is none; empty: the linker knows
	force, asJSON                           bool
	lock                                    *os.File // of an apply; programs that it runs hold it too
}

func (in *partitionInput) stateFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.state, "state", "", "`file` that says how the GPUs are; default: ask this machine")
	complete(cmd, "state", fileCompletion)
	in.driverFlag(cmd)
}

func (in *partitionInput) driverFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&in.driver, "driver-dir", "", "`folder` of NVIDIA's libraries: ask nothing else")
	complete(cmd, "driver-dir", fileCompletion)
	cmd.Flags().StringVar(&in.mps, "mps-dir", "", "`folder` of the GPUs' MPS daemons; default: the machine's agent's")
	complete(cmd, "mps-dir", fileCompletion)
	cmd.Flags().StringVar(&in.cdi, "cdi-dir", cdi.DynamicFolder, "`folder` of CDI files with the GPUs' replicas")
	complete(cmd, "cdi-dir", fileCompletion)
	cmd.Flags().StringVar(&in.root, "root", "", "ask only the files below this `folder` (or recorded)")
	complete(cmd, "root", fileCompletion)
}

func (a *app) selectFlag(cmd *cobra.Command, in *partitionInput) {
	cmd.Flags().StringVar(&in.selected, "select", "", "`configuration` of a mig-parted file")
	complete(cmd, "select", func(_ *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		if len(args) != 1 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		raw, err := a.readBounded(args[0])
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return startingWith(typed, mig.Selections(raw)), cobra.ShellCompDirectiveNoFileComp
	})
}

// readBounded reads a file, or standard input for "-".
func (a *app) readBounded(name string) ([]byte, error) {
	if name == "-" {
		return limited(a.stdin, "standard input")
	}
	file, err := os.Open(name)
	if errors.Is(err, os.ErrNotExist) {
		return nil, notThere(err)
	}
	if err != nil {
		return nil, err
	}
	raw, err := limited(file, name)
	return raw, errors.Join(err, file.Close())
}

func limited(from io.Reader, name string) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(from, maxPartitionFile+1))
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	if len(raw) > maxPartitionFile {
		return nil, usage(fmt.Errorf("read %s: longer than %d bytes", name, maxPartitionFile))
	}
	return raw, nil
}

// readState reads the file of a state, or asks the machine; with it come the
// techniques that plans can use.
func (a *app) readState(ctx context.Context, in partitionInput) (state partition.State, all partition.Techniques, err error) {
	if in.state == "" {
		cards, closeCards, failure := a.openCards(in)
		if failure != nil {
			return state, nil, failure
		}
		defer func() { err = errors.Join(err, closeCards()) }()
		state, err = a.observeCards(ctx, cards)
		return state, cards.Techniques, err
	}
	if in.driver != "" || in.root != "" {
		return state, nil, usage(errors.New("--state goes neither with --driver-dir nor with --root"))
	}
	products, err := facts.Default()
	if err != nil {
		return state, nil, err
	}
	raw, err := a.readBounded(in.state)
	if err != nil {
		return state, nil, err
	}
	all = machine.Techniques(products)
	if state, err = all.ParseState(raw); err != nil {
		return state, nil, usage(fmt.Errorf("%s: %w", in.state, err))
	}
	return state, all, nil
}

func (a *app) readGoal(name, selected string) (partition.Goal, error) {
	raw, err := a.readBounded(name)
	if err != nil {
		return partition.Goal{}, err
	}
	goal, err := mig.ParseGoal(raw, selected, machine.Techniques(nil))
	if err != nil {
		err = usage(fmt.Errorf("%s: %w", name, err))
		if names := mig.Selections(raw); len(names) > 1 {
			err = withHint(err, "add --select "+names[0])
		}
	}
	return goal, err
}

// oneFile is the Args of a command that reads one file.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) == 1 {
		return nil
	}
	return withHint(errors.New("one file: what the GPUs should be"), cmd.CommandPath()+" --help")
}

// cardState is a card in `divvy partition show --json`.
type cardState struct {
	partition.Card
	Room []string // what more fits beside, each alone
	Note string
}

// MarshalJSON adds to the card what is said of it.
func (c cardState) MarshalJSON() ([]byte, error) {
	raw, err := c.Card.MarshalJSON()
	if err == nil {
		raw, err = partition.Append(raw, "room", c.Room)
	}
	if err == nil && c.Note != "" {
		raw, err = partition.Append(raw, "note", c.Note)
	}
	return raw, err
}

func (a *app) partitionShow() *cobra.Command {
	var in partitionInput
	var form string
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Show how GPUs are partitioned, and what more fits",
		Long: `Shows how each GPU is divided, who uses its parts, and what more would fit beside
them. With -o libvirt or qemu: what a virtual machine needs to get the GPUs and
parts that are there for guests.`,
		Example: `  divvy partition show --state state.yaml
  divvy partition show -o libvirt`,
		Args: noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		if form != formTable && form != formLibvirt && form != formQEMU {
			return usage(fmt.Errorf("--output: %q is not table, libvirt or qemu", form))
		}
		state, _, err := a.readState(cmd.Context(), in)
		if err != nil {
			return err
		}
		if form != formTable {
			return a.showGuests(state, form)
		}
		products, err := facts.Default()
		if err != nil {
			return err
		}
		cards := []cardState{}
		for _, c := range state.Cards {
			shown := cardState{Card: c, Room: []string{}}
			if !mayHaveMIG(c) {
				cards = append(cards, shown)
				continue
			}
			if room, err := mig.New(products, nil).Room(c); err != nil {
				shown.Note = err.Error()
			} else if room != nil {
				shown.Room = room
			}
			cards = append(cards, shown)
		}
		if in.asJSON {
			return a.writeJSON(struct {
				Schema string      `json:"schema"`
				Cards  []cardState `json:"cards"`
			}{"divvy.partitions/v1", cards})
		}
		for _, c := range cards {
			a.showCard(c)
		}
		return nil
	})
	in.stateFlag(cmd)
	a.agentFlag(cmd)
	cmd.Flags().StringVarP(&form, "output", "o", formTable, "`form`: table, libvirt, qemu")
	complete(cmd, "output", words(formTable, formLibvirt, formQEMU))
	jsonFlag(cmd, &in.asJSON)
	return cmd
}

// mayHaveMIG says whether MIG is worth a word: on cards of NVIDIA whose driver
// was asked.
func mayHaveMIG(c partition.Card) bool {
	return c.NVIDIA() && !mig.Of(c).Unknown
}

func (a *app) showCard(c cardState) {
	divided := mig.Of(c.Card)
	mode := map[bool]string{true: "  MIG on", false: "  MIG off"}[divided.On]
	if !mayHaveMIG(c.Card) {
		mode = ""
	}
	fmt.Fprintf(a.stdout, "GPU %d  %s  %s%s\n", c.Index, oneLine(c.UUID), oneLine(c.Name), mode)
	for _, line := range c.Lines() {
		fmt.Fprintf(a.stdout, "  %s\n", oneLine(line))
	}
	if len(c.Shares) > 0 {
		fmt.Fprintf(a.stdout, "  shares: %s\n", oneLine(strings.Join(c.Shares, ", ")))
	}
	for _, p := range c.Processes {
		fmt.Fprintf(a.stdout, "  used by %d %s\n", p.PID, oneLine(p.Command))
	}
	for _, i := range divided.Instances {
		line := fmt.Sprintf("at %-2d %s", i.Start, i.Profile)
		if i.Compute != nil {
			line += fmt.Sprintf("  compute instances of %v", i.Compute)
		}
		if i.Devices != nil {
			line += "  " + strings.Join(i.Devices, " ")
		}
		for _, p := range i.Processes {
			line += fmt.Sprintf("  used by %d %s", p.PID, p.Command)
		}
		fmt.Fprintf(a.stdout, "  %s\n", oneLine(line))
	}
	switch {
	case c.Note != "":
		fmt.Fprintf(a.stdout, "  note: %s\n", oneLine(c.Note))
	case divided.On && len(c.Room) == 0:
		fmt.Fprintln(a.stdout, "  full")
	case divided.On:
		fmt.Fprintf(a.stdout, "  room for %s\n", strings.Join(c.Room, " or "))
	}
}

func (a *app) partitionPlan() *cobra.Command {
	var in partitionInput
	cmd := &cobra.Command{
		Use:   "plan FILE",
		Short: "Show the steps from what GPUs are to what a file says",
		Long: `Compares the GPUs with a file of desired states (Divvy's form, or one of NVIDIA's
mig-parted as it is) and shows the steps, each with its reason: as few instances
destroyed as possible, new ones where they leave the most room. Exit code 4 when
a GPU is refused: the goal is impossible, or what is in use would have to go.`,
		Example: `  divvy partition plan config.yaml --select all-balanced --state state.yaml`,
		Args:    oneFile,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		goal, err := a.readGoal(args[0], in.selected)
		if err != nil {
			return err
		}
		state, all, err := a.readState(cmd.Context(), in)
		if err != nil {
			return err
		}
		return a.tellPlan(partition.Planner{Techniques: all, Force: in.force}.Plan(state, goal), in.asJSON)
	})
	in.stateFlag(cmd)
	a.agentFlag(cmd)
	a.selectFlag(cmd, &in)
	cmd.Flags().BoolVar(&in.force, "force", false, "plan to destroy even what is in use, and to take the console's GPU")
	jsonFlag(cmd, &in.asJSON)
	return cmd
}

// tellPlan prints a plan; one that is refused ends with a code of its own.
func (a *app) tellPlan(plan partition.Plan, asJSON bool) error {
	if !asJSON {
		a.printPlan(plan)
	} else if err := a.writeJSON(plan); err != nil {
		return err
	}
	if !plan.Possible {
		return &exitError{exitNotAllowed}
	}
	return nil
}

func (a *app) printPlan(plan partition.Plan) {
	for _, c := range plan.Cards {
		fmt.Fprintf(a.stdout, "GPU %d  %s  %s\n", c.Index, oneLine(c.UUID), oneLine(c.Name))
		switch {
		case c.Refused != "":
			fmt.Fprintf(a.stdout, "  refused, %s\n", oneLine(c.Reason))
			switch {
			case c.Refused == partition.RefusedSpared:
				fmt.Fprintln(a.stdout, "  hint: --force, where that screen is not needed")
			case c.Refused != partition.RefusedInUse:
			case len(c.Before.Shares) > 0:
				fmt.Fprintf(a.stdout, "  hint: divvy share delete %s\n", oneLine(c.Before.Shares[0]))
			case slices.ContainsFunc(mig.Of(c.Before).Instances, func(i mig.Instance) bool { return i.Booked != "" }):
				fmt.Fprintln(a.stdout, "  hint: end these processes, and what has booked (a pod's claim), first")
			default:
				fmt.Fprintln(a.stdout, "  hint: end these processes first")
			}
			continue
		case c.Joined != nil:
			others := slices.DeleteFunc(slices.Clone(c.Joined), func(id string) bool { return id == c.Before.ID() })
			fmt.Fprintf(a.stdout, "  together with %s, each step on all of them before the next: their driver lets go of all, then takes all again\n", oneLine(strings.Join(others, ", ")))
		case len(c.Steps) == 0:
			fmt.Fprintln(a.stdout, "  as wanted: nothing to do")
			continue
		}
		a.printSteps(c.Steps, 0)
		if c.Awaits != "" {
			fmt.Fprintf(a.stdout, "  then: %s\n", oneLine(c.Awaits))
		}
		if len(c.Before.Shares) > 0 && c.Force {
			fmt.Fprintf(a.stdout, "  whatever becomes of its shares: %s\n", oneLine(strings.Join(c.Before.Shares, ", ")))
		}
		if c.Kept+c.Destroyed > 0 {
			fmt.Fprintf(a.stdout, "  %d instances stay, %d are destroyed\n", c.Kept, c.Destroyed)
		}
	}
	if len(plan.Cards) == 0 {
		fmt.Fprintln(a.stdout, "no GPU is meant by this file")
	}
}

// printSteps prints steps, numbered after those that went before.
func (a *app) printSteps(steps []partition.Step, before int) {
	for n, s := range steps {
		line := fmt.Sprintf("%2d. %s", before+n+1, s)
		if s.Why != "" {
			line += " (" + s.Why + ")"
		}
		fmt.Fprintf(a.stdout, "  %s\n", oneLine(line))
	}
}

func (a *app) partitionConvert() *cobra.Command {
	var in partitionInput
	var to string
	cmd := &cobra.Command{
		Use:   "convert FILE",
		Short: "Turn a file of mig-parted into Divvy's form, or back",
		Long: `Prints a file of desired states in Divvy's form or in that of NVIDIA's mig-parted.
Both are accepted by plan, so converting is never necessary.`,
		Example: `  divvy partition convert config.yaml --select all-balanced`,
		Args:    oneFile,
	}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		if to != "divvy" && to != "mig-parted" {
			return usage(fmt.Errorf("--to: %q is not divvy or mig-parted", to))
		}
		goal, err := a.readGoal(args[0], in.selected)
		if err != nil {
			return err
		}
		if in.asJSON {
			return a.writeJSON(goal)
		}
		text, err := goal.YAML()
		if to == "mig-parted" {
			name := in.selected
			if name == "" {
				name = "default"
			}
			text, err = mig.PartedYAML(goal, name)
		}
		if err != nil {
			return err
		}
		_, err = a.stdout.Write(text)
		return err
	})
	a.selectFlag(cmd, &in)
	cmd.Flags().StringVar(&to, "to", "divvy", "`form`: divvy or mig-parted")
	complete(cmd, "to", words("divvy", "mig-parted"))
	jsonFlag(cmd, &in.asJSON)
	return cmd
}

func (a *app) partitionExplain() *cobra.Command {
	var asJSON bool
	names := []string{}
	explanations := machine.Techniques(nil).Explanations()
	for _, t := range explanations {
		names = append(names, t.Name)
	}
	cmd := &cobra.Command{
		Use:   "explain [TECHNIQUE]",
		Short: "Tell ways of dividing a GPU apart: isolation, cost, needs",
		Long: `Says of each way of dividing a GPU how far it isolates memory, compute, faults and
side channels, what it costs, what it needs and what it excludes. TECHNIQUE is a name
as it is printed, or a field of a rule.`,
		Example:   `  divvy partition explain mig`,
		ValidArgs: names,
		Args:      cobra.MaximumNArgs(1),
	}
	cmd.RunE = a.action(func(_ *cobra.Command, args []string) error {
		chosen := explanations
		if len(args) == 1 {
			chosen = nil
			for _, t := range explanations {
				if t.Answers(args[0]) {
					chosen = append(chosen, t)
				}
			}
			if chosen == nil {
				return withHint(usage(fmt.Errorf("no technique %q", args[0])), "one of "+strings.Join(names, ", "))
			}
		}
		if asJSON {
			return a.writeJSON(struct {
				Schema     string                  `json:"schema"`
				Techniques []partition.Explanation `json:"techniques"`
			}{"divvy.techniques/v1", chosen})
		}
		for n, t := range chosen {
			if n > 0 {
				fmt.Fprintln(a.stdout)
			}
			fmt.Fprintf(a.stdout, "%s: %s\n  GPUs      %s\n", t.Name, t.Title, t.Vendors)
			for i, line := range t.Isolation {
				fmt.Fprintf(a.stdout, "  %-10s %s\n", map[bool]string{true: "isolation"}[i == 0], line)
			}
			fmt.Fprintf(a.stdout, "  cost       %s\n  needs      %s\n  excludes   %s\n", t.Cost, t.Needs, t.Excludes)
			if t.Goal != "" {
				fmt.Fprintf(a.stdout, "  in a rule  %s\n", t.Goal)
			}
		}
		return nil
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}
