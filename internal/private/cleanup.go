// SPDX-License-Identifier: Apache-2.0

package private

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/client"
)

// Status is what is known of one private agent.
type Status struct {
	Path      string
	Spec      Spec
	Endpoint  Endpoint
	Answers   bool
	Simulated bool
}

// List tells of every folder under the root.
func (r Root) List(ctx context.Context) ([]Status, error) {
	folders, err := r.folders()
	if err != nil {
		return nil, err
	}
	var all []Status
	for _, f := range folders {
		s := Status{Path: f.path}
		if known, err := f.readRecord(); err == nil {
			s.Spec, s.Endpoint, s.Simulated = known.Spec, f.endpoint(known.Spec), known.Spec.Simulated()
		}
		s.Answers = agentAnswers(ctx, f.agentSocket())
		all = append(all, s)
	}
	return all, nil
}

// Outcome says what Clean did with one folder.
type Outcome struct {
	Path   string `json:"path"`
	Action string `json:"action"` // removed, stopped, kept
	Reason string `json:"reason,omitempty"`
}

// Clean stops private daemons that nobody uses and removes their folders; with
// force also those in use.
func (r Root) Clean(ctx context.Context, force bool) ([]Outcome, error) {
	folders, err := r.folders()
	if err != nil {
		return nil, err
	}
	var all []Outcome
	kept := false
	for _, f := range folders {
		outcome, err := f.clean(ctx, force)
		if err != nil {
			return all, err
		}
		kept = kept || outcome.Action == "kept"
		all = append(all, outcome)
	}
	if !kept {
		r.removeDriverFolders()
	}
	if err := r.cleanRelays(ctx, force); err != nil {
		return all, err
	}
	return all, r.removeEmpty()
}

// removeEmpty removes the root if nothing is left in it.
func (r Root) removeEmpty() error {
	err := unix.Rmdir(r.path)
	if err == nil || errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.ENOENT) {
		return nil
	}
	return &os.PathError{Op: "rmdir", Path: r.path, Err: err}
}

// removeDriverFolders removes the folders of links that no agent uses any more.
// The mount point stays: removing it would take the mounts of running commands.
func (r Root) removeDriverFolders() {
	if checkPrivate(r.path) != nil {
		return
	}
	matches, _ := filepath.Glob(filepath.Join(r.path, ".driver-*"))
	for _, match := range matches {
		_ = os.RemoveAll(match)
	}
}

// Remove stops the daemons behind an endpoint, used or not, and removes their
// folder.
func (r Root) Remove(ctx context.Context, end Endpoint) error {
	if _, err := (&Folder{path: filepath.Dir(end.AgentSocket)}).clean(ctx, true); err != nil {
		return err
	}
	return r.removeEmpty()
}

func (f *Folder) clean(ctx context.Context, force bool) (Outcome, error) {
	unlock, err := f.lock(ctx)
	if err != nil {
		return Outcome{}, err
	}
	defer unlock()
	action := "removed"
	if why := f.usedBy(ctx); why != "" && !force {
		return Outcome{Path: f.path, Action: "kept", Reason: why}, nil
	}
	if known, err := f.readRecord(); err == nil {
		if known.Agent.alive() || known.Simulator.alive() {
			action = "stopped"
		}
		known.Agent.stop(ctx)
		known.Simulator.stop(ctx)
	}
	return Outcome{Path: f.path, Action: action}, f.remove()
}

// usedBy says who uses the agent of this folder, empty for nobody.
func (f *Folder) usedBy(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, askDeadline)
	defer cancel()
	c := client.New(f.agentSocket())
	shares, err := c.Shares(ctx)
	switch {
	case errors.Is(err, client.ErrUnreachable):
		return ""
	case err != nil:
		return "its agent does not say who uses it: " + err.Error()
	case len(shares.Shares) > 0:
		return "its agent has shares"
	}
	return ""
}

// remove deletes the folder; the lock file goes last, by name of this folder
// only, and nothing outside it is followed.
func (f *Folder) remove() error {
	entries, err := os.ReadDir(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if entry.Name() == filepath.Base(f.lockFile()) {
			continue
		}
		if err := os.RemoveAll(filepath.Join(f.path, entry.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(f.path)
}
