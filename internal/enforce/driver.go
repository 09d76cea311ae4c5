// SPDX-License-Identifier: Apache-2.0

package enforce

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/divvy-gpu/divvy/internal/cgroup"
	"github.com/divvy-gpu/divvy/internal/share"
)

// Limiter is a driver that limits what control groups hold of a card.
type Limiter interface {
	// LimitsMemory says why the driver of a card has no such limits; nil: it has.
	LimitsMemory(uuid string) error
	// SetMemoryLimit sets a limit and reads it back; 0 takes it away.
	SetMemoryLimit(uuid, group string, bytes uint64) error
	// MemoryLimit returns the limit, 0 for none, and what is held.
	MemoryLimit(uuid, group string) (limit, held uint64, err error)
}

const dropEvery = 20 * time.Millisecond

// Driver holds the memory of shares by the driver's limits on control groups: each
// share has a group, and whatever runs in it is held, however it reaches the
// driver. It takes root.
type Driver struct {
	limits Limiter
	proc   string
	folder string // of the groups, from the root of the tree
}

var _ Enforcer = (*Driver)(nil)

// NewDriver holds shares by limits, in groups below folder.
func NewDriver(limits Limiter, proc, folder string) *Driver {
	return &Driver{limits: limits, proc: proc, folder: folder}
}

// Serves is false: programs reach a card with or without limits.
func (d *Driver) Serves(context.Context, string) bool { return false }

// Offers looks whether the driver has limits, and the machine control groups.
func (d *Driver) Offers(_ context.Context, cardUUID string) error {
	if err := d.can(Share{CardUUIDs: []string{cardUUID}, MemoryBytes: 1}); err != nil {
		return err
	}
	if _, err := cgroup.Find(d.proc); err != nil {
		return fmt.Errorf("%w: %w", ErrCannot, err)
	}
	return nil
}

// Level is that of the driver.
func (d *Driver) Level() share.Enforcement { return share.EnforcedDriver }

func (d *Driver) group(s Share) (cgroup.Tree, string, error) {
	tree, err := cgroup.Find(d.proc)
	if err != nil {
		return tree, "", err
	}
	return tree, tree.Path(d.folder + "/" + s.Name), nil
}

// can says why the driver holds no such share. Not by a limit that is read: drivers
// do not agree on what that says of a group without one.
func (d *Driver) can(s Share) error {
	if s.MemoryBytes == 0 {
		return fmt.Errorf("%w: the driver limits memory, and the share has no quota of it", ErrCannot)
	}
	for _, card := range s.CardUUIDs {
		if err := d.limits.LimitsMemory(card); err != nil {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
	}
	return nil
}

// Hold makes the share's group and limits it.
func (d *Driver) Hold(_ context.Context, s Share) error {
	if err := d.can(s); err != nil {
		return err
	}
	tree, path, err := d.group(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannot, err)
	}
	if _, err := tree.Make(d.folder + "/" + s.Name); err != nil {
		return fmt.Errorf("%w: %w", ErrCannot, err)
	}
	for i, card := range s.CardUUIDs {
		err := d.limits.SetMemoryLimit(card, path, s.MemoryBytes)
		if err == nil {
			continue
		}
		for _, limited := range s.CardUUIDs[:i] {
			err = errors.Join(err, d.limits.SetMemoryLimit(limited, path, 0))
		}
		return fmt.Errorf("%w: %w", ErrCannot, errors.Join(err, tree.Remove(path), d.tidy(tree)))
	}
	return nil
}

// Holds reads the limit back.
func (d *Driver) Holds(_ context.Context, s Share) error {
	if err := d.can(s); err != nil {
		return err
	}
	_, path, err := d.group(s)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrCannot, err)
	}
	for _, card := range s.CardUUIDs {
		limit, _, err := d.limits.MemoryLimit(card, path)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrCannot, err)
		}
		if limit == 0 || limit > s.MemoryBytes {
			return fmt.Errorf("%w: the driver's limit is %d bytes, not %d", ErrCannot, limit, s.MemoryBytes)
		}
	}
	return nil
}

// Enter moves a process into the share's group, unless it would escape from limits
// of the one that it is in.
func (d *Driver) Enter(_ context.Context, s Share, pid int) ([]string, error) {
	tree, path, err := d.group(s)
	if err != nil {
		return nil, err
	}
	in, err := tree.Of(pid)
	if err != nil {
		return nil, err
	}
	if bound := tree.Bound(in); bound != "" && !cgroup.Within(in, path) {
		return nil, fmt.Errorf("%w of the share's control group: it would escape from %s", ErrOutside, bound)
	}
	return nil, tree.Enter(path, pid)
}

// Admit looks whether a process is in the share's group.
func (d *Driver) Admit(_ context.Context, s Share, pid, _ int) error {
	tree, path, err := d.group(s)
	if err != nil {
		return err
	}
	in, err := tree.Of(pid)
	if err != nil {
		return err
	}
	if !cgroup.Within(in, path) {
		return fmt.Errorf("%w of the share's control group, in %s", ErrOutside, in)
	}
	return nil
}

// ShareOf names the share in whose group a process is; false: it is in none.
func (d *Driver) ShareOf(pid int) (string, bool) {
	tree, err := cgroup.Find(d.proc)
	if err != nil {
		return "", false
	}
	in, err := tree.Of(pid)
	if err != nil {
		return "", false
	}
	rest, below := strings.CutPrefix(in, tree.Path(d.folder)+"/")
	name, _, _ := strings.Cut(rest, "/")
	return name, below && name != ""
}

// Verify is Admit: a process can be moved while it runs.
func (d *Driver) Verify(ctx context.Context, s Share, pid int) error {
	return d.Admit(ctx, s, pid, 0)
}

// Rest removes the share's group, and with it the limit, if no process is in it.
func (d *Driver) Rest(s Share) error {
	tree, path, err := d.group(s)
	if err != nil {
		return nil // there is no such group
	}
	if err := tree.Remove(path); err != nil && !errors.Is(err, syscall.EBUSY) {
		return err
	}
	return d.tidy(tree)
}

// Drop takes the limit away and removes the group, which takes until the last
// process in it has ended, or ctx.
func (d *Driver) Drop(ctx context.Context, s Share) error {
	tree, path, err := d.group(s)
	if err != nil || !tree.Has(path) {
		return nil // there is no such group
	}
	// The limit first: an ancestor may count what a removed group had reserved.
	var failed error
	for _, card := range s.CardUUIDs {
		failed = errors.Join(failed, d.limits.SetMemoryLimit(card, path, 0))
	}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errors.Join(failed, fmt.Errorf("control group %s: processes are left in it: %w", path, ctx.Err()))
		}
		if tree.Remove(path) == nil {
			return errors.Join(failed, d.tidy(tree))
		}
		timer.Reset(dropEvery)
	}
}

// tidy removes the folder of the groups, unless other shares have one there.
func (d *Driver) tidy(tree cgroup.Tree) error {
	err := tree.Remove(tree.Path(d.folder))
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.ENOTEMPTY) {
		return nil
	}
	return err
}
