// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
)

const (
	defaultCards  = silicon.DefaultSpec
	defaultDriver = "12.2"
)

// target says which agent a command talks to.
type target struct {
	socket   string // --agent
	simulate string // --simulate: cards of the user's private simulator
	driver   string // --driver: generation that the simulator plays
	identity string // --identity: file of a certificate, for a server

	gone bool // an agent that seemed to be there does not answer
}

// targetFlags adds the flags that choose an agent.
func (a *app) targetFlags(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&a.target.simulate, "simulate", "", "use simulated `GPUs`, like 2xA100-40GB,L4")
	flags.Lookup("simulate").NoOptDefVal = defaultCards
	flags.StringVar(&a.target.driver, "driver", defaultDriver, "CUDA `version` that simulated GPUs play")
	a.agentFlag(cmd)
	complete(cmd, "simulate", a.completeModels)
	complete(cmd, "driver", words("11.8", "12.2", "13.0", "13.1"))
}

// agentFlag adds --agent.
func (a *app) agentFlag(cmd *cobra.Command) {
	cmd.Flags().StringVar(&a.target.socket, "agent", "", "`socket` of an agent; default: the machine's, else your own")
	complete(cmd, "agent", fileCompletion)
}

// place is an agent; what a program needs to come under it, the agent tells
// (api.Version).
type place struct {
	client *client.Client
}

// errNoAgent says that there is nothing to talk to.
var errNoAgent = errclass.Of(client.ErrUnreachable, errors.New("no agent is running"))

// errSeveral says that none of several private agents was meant.
var errSeveral = errors.New("several private agents are running")

func (a *app) checkTarget() error {
	if a.target.socket != "" && a.target.simulate != "" {
		return usage(errors.New("--agent and --simulate exclude each other"))
	}
	if a.target.simulate != "" {
		if _, err := silicon.ParseSpec(a.target.simulate, 0); err != nil {
			return withHint(usage(fmt.Errorf("--simulate: %w", err)), "divvy run --simulate=2xA100-40GB -- COMMAND")
		}
	}
	switch a.target.driver {
	case "", "11.8", "12.2", "13.0", "13.1":
	default:
		return usage(fmt.Errorf("--driver: %q is not 11.8, 12.2, 13.0 or 13.1", a.target.driver))
	}
	return nil
}

func (a *app) privateRoot() private.Root {
	return private.Locate(a.getenv("XDG_RUNTIME_DIR"), os.Geteuid())
}

// find returns the agent that is meant, without starting one.
func (a *app) find(ctx context.Context) (place, error) {
	if err := a.checkTarget(); err != nil {
		return place{}, err
	}
	if socket := a.chosenSocket(); socket != "" {
		return placeAt(socket), nil
	}
	if a.target.simulate != "" {
		spec, err := a.simulatedSpec()
		if err != nil {
			return place{}, err
		}
		end, ok := a.privateRoot().Find(ctx, spec)
		if !ok {
			return place{}, withHint(errNoAgent, "divvy run --simulate="+a.target.simulate+" -- COMMAND starts one")
		}
		return placeOf(end), nil
	}
	if system := agent.System().APISocket(); exists(system) {
		return placeAt(system), nil
	}
	return a.findPrivate(ctx)
}

// chosenSocket is the agent named by hand.
func (a *app) chosenSocket() string {
	if a.target.socket != "" {
		return a.target.socket
	}
	if a.target.simulate != "" {
		return ""
	}
	return a.getenv("DIVVY_AGENT")
}

// findPrivate returns the user's only private agent.
func (a *app) findPrivate(ctx context.Context) (place, error) {
	all, err := a.privateRoot().List(ctx)
	if err != nil {
		return place{}, err
	}
	var live []private.Status
	for _, s := range all {
		if s.Answers {
			live = append(live, s)
		}
	}
	switch len(live) {
	case 0:
		return place{}, withHint(errNoAgent, "divvy run --simulate -- COMMAND starts one with a simulated GPU")
	case 1:
		return placeOf(live[0].Endpoint), nil
	}
	var names []string
	for _, s := range live {
		if s.Simulated {
			name := "--simulate=" + s.Spec.Cards
			if s.Spec.Driver != defaultDriver {
				name += " --driver " + s.Spec.Driver
			}
			names = append(names, name)
		} else {
			names = append(names, "--agent "+s.Endpoint.AgentSocket)
		}
	}
	return place{}, withHint(usage(errSeveral), "say which: "+strings.Join(names, " or "))
}

// findOrStart returns the agent that is meant and starts a private one where
// none is running.
func (a *app) findOrStart(ctx context.Context) (place, error) {
	if err := a.checkTarget(); err != nil {
		return place{}, err
	}
	if socket := a.chosenSocket(); socket != "" {
		return placeAt(socket), nil
	}
	var spec private.Spec
	var err error
	switch system := agent.System().APISocket(); {
	case a.target.simulate != "":
		spec, err = a.simulatedSpec()
	case exists(system):
		return placeAt(system), nil
	default:
		spec, err = a.realSpec()
	}
	if err != nil {
		return place{}, err
	}
	if end, ok := a.privateRoot().Seen(spec); ok && !a.target.gone {
		return placeOf(end), nil
	}
	program, err := self()
	if err != nil {
		return place{}, err
	}
	end, err := a.privateRoot().Ensure(ctx, program, spec)
	if err != nil {
		return place{}, err
	}
	return placeOf(end), nil
}

// findRunning returns the agent that runs already, as a declared share's does,
// and starts one only where there is none.
func (a *app) findRunning(ctx context.Context) (place, error) {
	at, err := a.find(ctx)
	if errors.Is(err, client.ErrUnreachable) {
		return a.findOrStart(ctx)
	}
	return at, err
}

func placeOf(end private.Endpoint) place { return placeAt(end.AgentSocket) }

func placeAt(socket string) place { return place{client: client.New(socket)} }

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// self is the path by which this program can be started again. The name it was
// called by is kept when that leads here.
func self() (string, error) {
	real, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("find the divvy program: %w", err)
	}
	named, err := exec.LookPath(os.Args[0])
	if err == nil {
		named, err = filepath.Abs(named)
	}
	if err != nil {
		return real, nil
	}
	a, errA := os.Stat(named)
	b, errB := os.Stat(real)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return named, nil
	}
	return real, nil
}

// explain words the error of a call to the agent.
func (p place) explain(err error) error {
	if errors.Is(err, client.ErrUnreachable) && hintOf(err) == "" {
		gone := fmt.Errorf("no agent answers at %s", p.client.Socket())
		return withHint(errclass.Of(client.ErrUnreachable, gone), "divvy doctor")
	}
	return err
}
