// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/environment"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/wire"
)

func (a *app) runCommand() *cobra.Command {
	var p promise
	var name, share, remote string
	var isolated bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENTS...]",
		Short: "Run a command under a share of a GPU",
		Long: `Runs an unmodified command under a share: a new one that goes with the command,
or a declared one (--share). The command sees the share as its GPU. Exit code:
the command's own, 128+n when signal n ended it, 125 if Divvy failed.`,
		Example: `  divvy run --simulate --mem 2GiB -- divvy devices`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return withHint(errors.New("no command given"), "divvy run --simulate --mem 2GiB -- COMMAND")
			}
			return nil
		},
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		spec, err := p.spec(cmd)
		if err != nil {
			return err
		}
		if share != "" {
			fixed := []string{"mem", "cores", "policy", "weight", "priority", "gpu", "gpus", "name", "tenant", "mps-threads", "open", "user"}
			if remote == "" {
				fixed = append(fixed, "enforce") // there it is known; of a server's it can be demanded
			}
			for _, flag := range fixed {
				if cmd.Flags().Changed(flag) {
					return withHint(usage(fmt.Errorf("--share joins a declared share: --%s cannot go with it", flag)),
						"divvy share set "+share+" changes the share")
				}
			}
		}
		if remote != "" {
			if err := checkRemote(cmd, p); err != nil {
				return err
			}
		}
		spec.Name, spec.Ephemeral = name, true
		path, err := findCommand(args[0])
		if err != nil {
			return err
		}
		if grace < 0 {
			return usage(fmt.Errorf("--enforce-grace: %v is negative", grace))
		}
		u := under{declared: share, spec: spec, isolated: isolated, grace: grace}
		if remote != "" {
			return runFailed(a.runRemote(cmd.Context(), remote, u, path, args))
		}
		return runFailed(a.runUnder(cmd.Context(), u, path, args))
	})
	cmd.Flags().SetInterspersed(false)
	p.addAll(a, cmd)
	cmd.Flags().StringVar(&name, "name", "", "`name` of the new share; fails if there is one")
	cmd.Flags().StringVar(&share, "share", "", "join the declared share with this `name`")
	a.remoteFlags(cmd, &remote, "use a GPU of this `server`: HOST[:PORT] or unix:/path")
	cmd.Flags().BoolVar(&isolated, "isolate", false, "also hold programs that open the driver by its full path")
	cmd.Flags().DurationVar(&grace, "enforce-grace", defaultGrace, "`time` until a run ends that is held too little")
	complete(cmd, "share", a.completeShares)
	a.targetFlags(cmd)
	return cmd
}

// under says what to run a command under.
type under struct {
	declared string        // join this share, or
	spec     api.ShareSpec // make this one
	isolated bool
	grace    time.Duration // until a run ends that is not held as was demanded
}

// runUnder runs the command under the declared share, or a new one by spec.
func (a *app) runUnder(ctx context.Context, u under, path string, args []string) error {
	joined, err := a.join(ctx, u.declared, u.spec)
	if err != nil {
		return err
	}
	defer joined.leave()
	if err := checkWire(joined.Version); err != nil {
		return err
	}
	front, err := a.frontFor(joined.Version.DriverDirectory)
	if err != nil {
		return err
	}
	if entry := joined.Entry; entry.Enforcement == share.Booked {
		a.tellUnheld(entry.Enforcement, cmp.Or(entry.Why, joined.Share.EnforcementWhy))
	} else if entry.Why != "" {
		a.note("held at level %s: %s", entry.Enforcement, entry.Why)
	}
	if differ(joined.Share) {
		a.note("the share is on %s", gpusOf(joined.Share))
	}
	loads, err := a.checkHeld(joined.Share.Enforce, joined.Entry.Enforcement, path)
	if err != nil {
		return err
	}
	env := shareEnvironment(joined, front, loads)
	child := &exec.Cmd{Path: path, Args: args, Env: env}
	if u.isolated {
		if child, err = a.isolate(joined, front, child); err != nil {
			return err
		}
	}
	code, err := a.passOn(child, joined.watch(ctx, u.grace))
	if u.isolated && errors.Is(err, fs.ErrPermission) {
		return withHint(&codedError{code: exitRunFailed, cause: fmt.Errorf("--isolate: no right to a mount namespace: %w", err)},
			"run as root, or allow user namespaces (sysctl kernel.unprivileged_userns_clone=1)")
	}
	if err != nil {
		return err
	}
	if code != 0 {
		return &exitError{code: code}
	}
	return nil
}

// isolate returns child as it runs in a mount namespace of its own.
func (a *app) isolate(m membership, front string, child *exec.Cmd) (*exec.Cmd, error) {
	mount, err := a.privateRoot().MountPoint()
	if err != nil {
		return nil, err
	}
	i := isolation{front: filepath.Join(front, library.CUDAName), driver: m.Version.DriverDirectory, mount: mount}
	path, err := filepath.Abs(child.Path) // as seen from here
	if err != nil {
		return nil, err
	}
	program, args, err := i.wrap(path, child.Args)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{Path: program, Args: args, Env: child.Env, SysProcAttr: namespaces()}, nil
}

// membership is a share that we may use while we are here.
type membership struct {
	api.Run
	hold *client.Hold // nil: we did not get that far
}

func (m membership) leave() {
	if m.hold != nil {
		m.hold.Close()
	}
}

// watch is what the run hears while it is here.
func (m membership) watch(ctx context.Context, grace time.Duration) watch {
	if m.hold == nil {
		return watch{}
	}
	w := watch{notices: m.hold.Notices(), grace: grace}
	if m.Share.Enforce != "" {
		w.all = func() []api.Notice {
			ctx, cancel := context.WithTimeout(ctx, lastWord)
			defer cancel()
			all, _ := m.hold.Noticed(ctx) // an agent that is away has none
			return all
		}
	}
	return w
}

// join gets hold of a share: it finds the declared one, or makes a new one
// that goes with us.
func (a *app) join(ctx context.Context, declared string, spec api.ShareSpec) (membership, error) {
	var m membership
	find, wanted := a.findOrStart, api.RunSpec{New: &spec}
	if declared != "" {
		find, wanted = a.findRunning, api.RunSpec{Share: declared}
	}
	err := a.withPlace(ctx, find, func(p place) (err error) {
		if err := a.heed(ctx, p, &wanted); err != nil {
			return err
		}
		m.Run, m.hold, err = p.client.Run(ctx, wanted)
		if err == nil || errors.Is(err, client.ErrUnreachable) {
			return err
		}
		// It may be so old that it does not know what was asked.
		if version, failed := p.client.Version(ctx); failed == nil && checkWire(version) != nil {
			return checkWire(version)
		}
		return err
	})
	if declared != "" && exitCode(err) == exitNotThere && hintOf(err) == "" {
		err = withHint(err, "divvy share list")
	}
	err = limitedChoice(err, spec.Among)
	return m, err
}

// checkWire says whether the agent's processes can be this version's.
func checkWire(agent api.Version) error {
	if agent.Wire == wire.Version {
		return nil
	}
	return withHint(fmt.Errorf("the agent speaks wire %d, this divvy %d", agent.Wire, wire.Version),
		"restart the agent with this version: systemctl restart divvy-agent, or divvy cleanup")
}

// checkHeld says whether the program loads the front library. One that does not is
// refused where nothing else holds it as strongly as its share demands; else its user
// is told.
func (a *app) checkHeld(demanded, level share.Enforcement, path string) (loads bool, err error) {
	status, detail, hint := examineProgram(path)
	if status == checkOK || level.Meets(share.EnforcedDriver) {
		return status == checkOK, nil
	}
	if !share.Booked.Meets(demanded) {
		return false, withHint(&codedError{code: exitNotAllowed, cause: fmt.Errorf("--enforce %s: %s", demanded, detail)}, hint)
	}
	a.note("held at level %s only: %s", share.Booked, detail)
	return false, nil
}

// shareEnvironment is the environment that puts a program under a share.
func shareEnvironment(m membership, front string, loads bool) []string {
	return environment.Share{
		Front: front, Socket: m.Share.Socket, DriverDirectory: m.Version.DriverDirectory, Simulator: m.Version.Simulator,
		Entry: m.Entry.Environment, CardUUIDs: m.Share.CardUUIDs(), Loads: loads,
	}.Over(os.Environ())
}

// findCommand looks a command up as a shell does, and tells "not found" from
// "not executable".
func findCommand(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err == nil || errors.Is(err, exec.ErrDot) {
		return path, nil
	}
	if errors.Is(err, fs.ErrPermission) || !strings.Contains(name, "/") && inPath(name) || isDirectory(name) {
		return "", &codedError{code: exitNotExecutable, cause: fmt.Errorf("%s: not executable", name)}
	}
	return "", &codedError{code: exitNotFound, cause: fmt.Errorf("%s: command not found", name)}
}

func inPath(name string) bool {
	for _, folder := range filepath.SplitList(os.Getenv("PATH")) {
		if st, err := os.Stat(filepath.Join(folder, name)); err == nil && st.Mode().IsRegular() {
			return true
		}
	}
	return false
}

func isDirectory(name string) bool {
	st, err := os.Stat(name)
	return err == nil && st.IsDir() && strings.Contains(name, "/")
}
