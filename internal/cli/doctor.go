// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/private"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// doctorDeadline bounds all questions to agents together.
const doctorDeadline = 5 * time.Second

// Outcomes of a check.
const (
	checkOK   = "ok"
	checkNote = "note" // works, with a limit worth knowing
	checkFail = "fail"
)

// checkup is one line of the doctor.
type checkup struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, note, fail
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// doctorReport is `divvy doctor --json`.
type doctorReport struct {
	Schema string    `json:"schema"`
	OK     bool      `json:"ok"` // nothing failed
	Checks []checkup `json:"checks"`
}

func (a *app) doctorCommand() *cobra.Command {
	var asJSON bool
	var remote string
	cmd := &cobra.Command{
		Use:   "doctor [PROGRAM]",
		Short: "Check that shares can work here, and for a program",
		Long: `Checks libraries, driver, agent, sockets and cgroups of this machine and, when a
program is given, whether a share can hold it and whether it can run on a
simulated GPU. PROGRAM may be a script or the folder of a Python environment.
With --remote, whether a server's GPU can be used from here, and by PROGRAM: it
makes a share there for a moment.
Exit code 1 if something is broken; a "note" is a limit worth knowing.`,
		Example: `  divvy doctor /usr/bin/ffmpeg
  divvy doctor --remote gpu1`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return nil, cobra.ShellCompDirectiveDefault
		},
	}
	cmd.RunE = a.action(func(cmd *cobra.Command, args []string) error {
		ctx, cancel := context.WithTimeout(cmd.Context(), doctorDeadline)
		defer cancel()
		report := newReport()
		if remote != "" {
			if a.target.simulate != "" || a.chosenSocket() != "" {
				return usage(errors.New("--remote is about a server: --simulate and --agent cannot go with it"))
			}
			a.examineRemote(cmd.Context(), remote, args, report)
		} else {
			a.examine(ctx, args, report)
		}
		if asJSON {
			if err := a.writeJSON(report); err != nil {
				return err
			}
		} else {
			for _, c := range report.Checks {
				fmt.Fprintf(a.stdout, "%-5s %-10s %s\n", c.Status, c.Name, oneLine(c.Detail))
				if c.Hint != "" {
					fmt.Fprintf(a.stdout, "%-5s %-10s try: %s\n", "", "", oneLine(c.Hint))
				}
			}
		}
		if !report.OK {
			return &exitError{code: exitFailed}
		}
		return nil
	})
	a.targetFlags(cmd)
	a.remoteFlags(cmd, &remote, "look at a `server` instead: HOST[:PORT] or unix:/path")
	jsonFlag(cmd, &asJSON)
	return cmd
}

func newReport() *doctorReport { return &doctorReport{Schema: "divvy.doctor/v1", OK: true} }

func (r *doctorReport) add(name, status, detail, hint string) {
	r.Checks = append(r.Checks, checkup{Name: name, Status: status, Detail: detail, Hint: hint})
	r.OK = r.OK && status != checkFail
}

func (r *doctorReport) failed(name string, err error) {
	r.add(name, checkFail, err.Error(), hintOf(err))
}

func (a *app) examine(ctx context.Context, programs []string, report *doctorReport) {
	add, failed := report.add, report.failed
	add("version", checkOK, fmt.Sprintf("divvy %s, wire %d", version, wire.Version), "")
	dir, err := a.libraries()
	if err == nil {
		err = completeBuild(dir)
	}
	if err != nil {
		failed("libraries", err)
	} else {
		add("libraries", checkOK, string(dir), "")
		a.examineDriver(dir, add)
	}
	if err := a.examineRoot(); err != nil {
		failed("folder", err)
	} else {
		add("folder", checkOK, a.privateRoot().Path()+" (private agents and simulators)", "")
	}
	a.examineAgent(ctx, add)
	a.examineServe(ctx, report)
	add("cgroup", checkOK, cgroupVersion("/")+": labels of processes; no limit depends on it", "")
	for _, program := range programs {
		if !isFolder(program) {
			status, detail, hint := examineProgram(program)
			add("program", status, detail, hint)
		}
		examineSimulated(program, a.getenv("LD_LIBRARY_PATH"), add)
	}
}

// completeBuild says which part of the build is not there.
func completeBuild(dir library.Dir) error {
	var missing []string
	for _, part := range []string{"front/libcuda.so.1", "front/base/libcuda.so.1", "standin/libcuda.so.1", "null/libcuda.so.1", "tools/memload"} {
		if !exists(filepath.Join(string(dir), part)) {
			missing = append(missing, part)
		}
	}
	if missing != nil {
		return withHint(fmt.Errorf("%s lacks %q", dir, missing), "make build")
	}
	return nil
}

type addCheck = func(name, status, detail, hint string)

// examineDriver looks at the installed driver and prepares the front for it,
// or for the stand-in where there is none.
func (a *app) examineDriver(dir library.Dir, add addCheck) {
	folder := ""
	found, err := private.FindDriver("/")
	if err == nil {
		folder = found.Folder()
		add("driver", checkOK, "NVIDIA driver in "+folder, "")
	} else {
		add("driver", checkNote, "no NVIDIA driver: simulated GPUs only", "divvy run --simulate -- COMMAND")
		if folder, err = dir.Standin(defaultDriver); err != nil {
			add("front", checkFail, err.Error(), "make build")
			return
		}
	}
	front, err := a.frontForInstalled(found, folder)
	if err != nil {
		add("front", checkFail, err.Error(), "make build")
		return
	}
	add("front", checkOK, "prepared for "+folder+" in "+front, "")
}

// frontForInstalled prepares the front for an installed driver, whose two
// libraries may lie apart; without one, for the driver in folder.
func (a *app) frontForInstalled(found private.Driver, folder string) (string, error) {
	if found == (private.Driver{}) {
		return a.frontFor(folder)
	}
	temporary, err := os.MkdirTemp("", "divvy-doctor-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temporary)
	if err := private.LinkDriver(found, temporary, 0o700); err != nil {
		return "", err
	}
	return a.frontFor(temporary)
}

// examineRoot says whether private agents could live in their folder.
func (a *app) examineRoot() error {
	root := a.privateRoot()
	if !exists(root.Path()) {
		return nil
	}
	return root.Create()
}

// examineAgent asks the agent that commands would talk to.
func (a *app) examineAgent(ctx context.Context, add addCheck) {
	at, err := a.find(ctx)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		add("agent", checkNote, "none is running; divvy run starts a private one", "")
		return
	case errors.Is(err, errSeveral):
		add("agent", checkNote, err.Error(), hintOf(err))
		return
	case err != nil:
		add("agent", checkFail, err.Error(), hintOf(err))
		return
	}
	socket := at.client.Socket()
	answer, err := at.client.Version(ctx)
	if err != nil {
		add("agent", checkFail, at.explain(err).Error(), "systemctl restart divvy-agent, or divvy cleanup for a private one")
		return
	}
	if answer.Wire != wire.Version {
		add("agent", checkFail, fmt.Sprintf("%s speaks wire %d, this build %d: its programs would be refused", socket, answer.Wire, wire.Version),
			"restart the agent with this version")
	} else {
		add("agent", checkOK, fmt.Sprintf("%s answers: version %s, wire %d, process %d", socket, answer.Version, answer.Wire, answer.PID), "")
	}
	a.examineSockets(ctx, at, add)
	examineCards(ctx, at, add)
}

// examineCards says which cards are not well, by the agent's account.
func examineCards(ctx context.Context, at place, add addCheck) {
	list, err := at.client.Devices(ctx)
	if err != nil {
		add("cards", checkFail, at.explain(err).Error(), hintOf(err))
		return
	}
	well := 0
	for _, c := range list.Cards {
		switch c.Health {
		case "lost", "needs-reset":
			add("cards", checkFail, fmt.Sprintf("%s (%s): %s: %s", c.Name, c.UUID, c.Health, c.HealthDetail), "end its programs and reset it (nvidia-smi --gpu-reset), or restart the machine")
		case "unresponsive":
			add("cards", checkFail, fmt.Sprintf("%s (%s): %s", c.Name, c.UUID, c.HealthDetail), "wait until it answers; else end its programs and reset it (nvidia-smi --gpu-reset), or restart the machine")
		case "unshareable":
			add("cards", checkNote, fmt.Sprintf("%s (%s) cannot be shared: %s", c.Name, c.UUID, c.HealthDetail), "divvy partition show, or nvidia-smi -i "+c.UUID+" -c DEFAULT")
		case "degraded":
			add("cards", checkNote, fmt.Sprintf("%s (%s): %s", c.Name, c.UUID, c.HealthDetail), "")
		default:
			well++
		}
	}
	if well > 0 {
		add("cards", checkOK, fmt.Sprintf("%s well", counted(well, "GPU is", "GPUs are")), "")
	}
}

// examineSockets compares the modes of sockets with what they should be: a
// private agent's are its user's alone.
func (a *app) examineSockets(ctx context.Context, at place, add addCheck) {
	sockets := []string{at.client.Socket()}
	if list, err := at.client.Shares(ctx); err == nil {
		for _, share := range list.Shares {
			sockets = append(sockets, share.Socket)
		}
	}
	private := at.client.Socket() != agent.System().APISocket()
	for _, socket := range sockets {
		info, err := os.Stat(socket)
		switch {
		case err != nil:
			add("sockets", checkFail, err.Error(), "restart the agent")
			return
		case info.Mode().Type() != os.ModeSocket:
			add("sockets", checkFail, socket+" is no socket", "remove it and restart the agent")
			return
		case private && info.Mode().Perm()&0o077 != 0:
			add("sockets", checkNote, fmt.Sprintf("%s has mode %#o: others can reach it if its folder lets them", socket, info.Mode().Perm()), "")
			return
		}
	}
	add("sockets", checkOK, fmt.Sprintf("%d looked at", len(sockets)), "")
}

// cgroupVersion says which cgroup hierarchy is mounted under root.
func cgroupVersion(root string) string {
	switch {
	case exists(filepath.Join(root, "sys/fs/cgroup/cgroup.controllers")):
		return "v2"
	case exists(filepath.Join(root, "sys/fs/cgroup/memory")), exists(filepath.Join(root, "sys/fs/cgroup/unified")):
		return "v1"
	}
	return "none"
}
