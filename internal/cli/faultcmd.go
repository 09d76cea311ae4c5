// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
)

// faultDeadline bounds what a simulator is asked.
const faultDeadline = 10 * time.Second

// faultTarget says which simulator, and which of its cards.
type faultTarget struct {
	socket string
	card   string
}

// injected is `divvy simulate fault inject --json`.
type injected struct {
	Schema    string `json:"schema"`
	Number    uint64 `json:"number"`
	CardUUID  string `json:"cardUuid"`
	Processes int    `json:"processes"` // whose contexts it ended
}

// faultList is `divvy simulate fault list --json`.
type faultList struct {
	Schema string       `json:"schema"`
	Faults []faultEntry `json:"faults"`
}

type faultEntry struct {
	Number    uint64  `json:"number"`
	AgoSec    float64 `json:"agoSeconds"`
	CardUUID  string  `json:"cardUuid"`
	Kind      string  `json:"kind"`
	XID       uint32  `json:"xid,omitempty"`
	PID       int     `json:"pid,omitempty"`
	Processes int     `json:"processes"`
	Error     uint32  `json:"cudaError,omitempty"`
	Active    bool    `json:"active"`
	Injected  bool    `json:"injected"` // else the process's own kernel did it
}

// cleared is `divvy simulate fault clear --json`.
type cleared struct {
	Schema string `json:"schema"`
	Faults int    `json:"faults"` // that were in force
}

func (a *app) faultCommand() *cobra.Command {
	return a.group("fault", "Make simulated GPUs fail, and heal them",
		`  divvy simulate fault inject --kind xid --xid 31 --process 4711`,
		a.faultInjectCommand(), a.faultListCommand(), a.faultClearCommand())
}

func (a *app) faultFlags(cmd *cobra.Command, t *faultTarget) {
	flags := cmd.Flags()
	flags.StringVar(&t.socket, "socket", "", "`path` of the simulator; default: that of the agent")
	flags.StringVar(&t.card, "gpu", "", "`GPU` by number or UUID (or its start)")
	complete(cmd, "socket", fileCompletion)
	complete(cmd, "gpu", a.completeCards)
	formerly(cmd, "card", "gpu")
	a.targetFlags(cmd)
}

func (a *app) faultInjectCommand() *cobra.Command {
	var t faultTarget
	var kind string
	var what simgpu.Injection
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inject",
		Short: "Make a fault happen on a simulated GPU",
		Long: `Makes a fault happen: contexts end with the error that a driver gives them,
counters count, and NVML tells of it. docs/simulated-faults.md has the table of
kinds and XIDs. Faults that hit one process need --process, unless one alone is on
the GPU.`,
		Example: `  divvy simulate fault inject --gpu 0 --kind card-lost`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		var err error
		if what.Kind, err = condition.ParseKind(kind); err != nil {
			return usage(fmt.Errorf("--kind: %w", err))
		}
		if (what.Kind == condition.XID) != cmd.Flags().Changed("xid") {
			return withHint(usage(errors.New("--kind xid and --xid belong together")), "divvy simulate fault inject --kind xid --xid 31")
		}
		if what.PID < 0 {
			return usage(fmt.Errorf("--process: %d is no process", what.PID))
		}
		return a.withSimulator(cmd.Context(), t, func(ctx context.Context, truth *simgpu.Truth, cards []simgpu.CardState) error {
			if what.Card, err = t.index(cards); err != nil {
				return err
			}
			if what.Card < 0 {
				if len(cards) > 1 {
					return withHint(usage(fmt.Errorf("the simulator has %d GPUs: say which", len(cards))), "--gpu 0")
				}
				what.Card = 0
			}
			number, hit, err := truth.Inject(ctx, what)
			if err != nil {
				return explainFault(err)
			}
			card := cards[what.Card]
			if asJSON {
				return a.writeJSON(injected{Schema: "divvy.simulate.fault/v1", Number: number, CardUUID: card.UUID, Processes: hit})
			}
			fmt.Fprintf(a.stdout, "fault %d on GPU %d (%s): contexts of %s ended\n", number, what.Card, shortUUID(card.UUID), counted(hit, "process", "processes"))
			return nil
		})
	})
	flags := cmd.Flags()
	flags.StringVar(&kind, "kind", "", "`kind`: "+strings.Join(condition.Kinds(), ", "))
	flags.Uint32Var(&what.XID, "xid", 0, "`number` of the XID, for that kind")
	flags.IntVar(&what.PID, "process", 0, "process `id` of the victim")
	flags.Uint64Var(&what.Count, "count", 1, "`number` of ECC errors")
	complete(cmd, "kind", words(condition.Kinds()...))
	complete(cmd, "xid", completeXids)
	a.faultFlags(cmd, &t)
	jsonFlag(cmd, &asJSON)
	_ = cmd.MarkFlagRequired("kind") // fails only for a flag that is not there
	return cmd
}

func completeXids(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	var list []string
	for _, x := range condition.Xids() {
		list = append(list, fmt.Sprintf("%d\t%s", x.Number, x.Name))
	}
	return startingWith(typed, list), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

func (a *app) faultListCommand() *cobra.Command {
	var t faultTarget
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the faults that happened",
		Example: `  divvy simulate fault list --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		return a.withSimulator(cmd.Context(), t, func(ctx context.Context, truth *simgpu.Truth, cards []simgpu.CardState) error {
			only, err := t.index(cards)
			if err != nil {
				return err
			}
			all, err := truth.Faults(ctx)
			if err != nil {
				return err
			}
			now, err := truth.Now(ctx)
			if err != nil {
				return err
			}
			list := faultList{Schema: "divvy.simulate.faults/v1", Faults: []faultEntry{}}
			for _, f := range all {
				if f.Card < len(cards) && (only < 0 || f.Card == only) {
					list.Faults = append(list.Faults, faultEntry{Number: f.Number, AgoSec: float64((now-f.TimeNS)/1e6) / 1e3, CardUUID: cards[f.Card].UUID,
						Kind: f.Kind.String(), XID: f.XID, PID: f.PID, Processes: f.Hit, Error: f.Error, Active: f.Active, Injected: !f.Reported})
				}
			}
			if asJSON {
				return a.writeJSON(list)
			}
			return a.writeFaults(list)
		})
	})
	a.faultFlags(cmd, &t)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func (a *app) writeFaults(list faultList) error {
	rows := newTable("NUMBER", "AGO", "GPU", "KIND", "XID", "PROCESS", "CONTEXTS ENDED", "CUDA ERROR", "IN FORCE", "BY")
	number := func(n uint32) string {
		if n == 0 {
			return ""
		}
		return strconv.FormatUint(uint64(n), 10)
	}
	for _, f := range list.Faults {
		active, by := "no", "hand"
		if !f.Injected {
			by = "kernel"
		}
		if f.Active {
			active = "yes"
		}
		ago := time.Duration(f.AgoSec * float64(time.Second)).Round(time.Second)
		rows.add(strconv.FormatUint(f.Number, 10), ago.String(), shortUUID(f.CardUUID), f.Kind, number(f.XID), number(uint32(f.PID)),
			strconv.Itoa(f.Processes), number(f.Error), active, by)
	}
	return rows.write(a.stdout)
}

func (a *app) faultClearCommand() *cobra.Command {
	var t faultTarget
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "clear",
		Short: "Reset simulated GPUs: what was lost is back",
		Long: `Resets a GPU, or all: a lost GPU is back, slowdowns end, volatile counters are 0
and repairs of memory are done. Contexts that a fault has ended stay ended.`,
		Example: `  divvy simulate fault clear --gpu 0`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, _ []string) error {
		return a.withSimulator(cmd.Context(), t, func(ctx context.Context, truth *simgpu.Truth, cards []simgpu.CardState) error {
			card, err := t.index(cards)
			if err != nil {
				return err
			}
			n, err := truth.ClearFaults(ctx, card)
			if err != nil {
				return explainFault(err)
			}
			if asJSON {
				return a.writeJSON(cleared{Schema: "divvy.simulate.cleared/v1", Faults: n})
			}
			fmt.Fprintf(a.stdout, "%s cleared\n", counted(n, "fault", "faults"))
			return nil
		})
	})
	a.faultFlags(cmd, &t)
	jsonFlag(cmd, &asJSON)
	return cmd
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// withSimulator connects to the simulator that is meant.
func (a *app) withSimulator(ctx context.Context, t faultTarget, f func(context.Context, *simgpu.Truth, []simgpu.CardState) error) error {
	ctx, cancel := context.WithTimeout(ctx, faultDeadline)
	defer cancel()
	socket, err := a.simulatorSocket(ctx, t)
	if err != nil {
		return err
	}
	truth, err := simgpu.Dial(ctx, socket)
	if err != nil {
		if errors.Is(err, simgpu.ErrNotListening) {
			err = withHint(errclass.Of(client.ErrUnreachable, fmt.Errorf("no simulator listens at %s", socket)), "divvy simulate --socket "+socket)
		}
		return err
	}
	defer truth.Close()
	cards, err := truth.Cards(ctx)
	if err != nil {
		return err
	}
	return f(ctx, truth, cards)
}

// simulatorSocket is the one that is named, the agent's, or the user's own.
func (a *app) simulatorSocket(ctx context.Context, t faultTarget) (string, error) {
	if t.socket != "" {
		return t.socket, nil
	}
	at, err := a.find(ctx)
	own := filepath.Join(a.privateRoot().Path(), "simulator.sock")
	switch {
	case errors.Is(err, client.ErrUnreachable) && exists(own):
		return own, nil
	case err != nil:
		return "", err
	}
	version, err := at.client.Version(ctx)
	if err != nil {
		return "", at.explain(err)
	}
	if version.Simulator == "" {
		return "", withHint(notThere(errors.New("the agent's GPUs are real: only simulated ones take faults")), "divvy simulate fault inject --socket PATH")
	}
	return version.Simulator, nil
}

// index finds the card that is named; -1: none was.
func (t faultTarget) index(cards []simgpu.CardState) (int, error) {
	if t.card == "" {
		return -1, nil
	}
	if n, err := strconv.Atoi(t.card); err == nil && len(t.card) <= 2 {
		if n < 0 || n >= len(cards) {
			return 0, notThere(fmt.Errorf("GPU %d: the simulator has %s", n, counted(len(cards), "GPU", "GPUs")))
		}
		return n, nil
	}
	found := -1
	for i, c := range cards {
		wanted := strings.ToLower(t.card)
		if len(wanted) < 4 || !strings.HasPrefix(strings.TrimPrefix(strings.ToLower(c.UUID), "gpu-"), strings.TrimPrefix(wanted, "gpu-")) {
			continue
		}
		if found >= 0 {
			return 0, usage(fmt.Errorf("--gpu: %q means more than one GPU", t.card))
		}
		found = i
	}
	if found < 0 {
		return 0, notThere(fmt.Errorf("the simulator has no GPU %q", t.card))
	}
	return found, nil
}

// explainFault gives an error of the simulator its class.
func explainFault(err error) error {
	switch {
	case errors.Is(err, condition.ErrInvalid):
		return withHint(usage(err), "divvy simulate fault inject --help")
	case errors.Is(err, condition.ErrNotFound):
		return withHint(notThere(err), "divvy ps shows processes")
	case errors.Is(err, simgpu.ErrDenied):
		return &codedError{code: exitNotAllowed, cause: err}
	}
	return err
}
