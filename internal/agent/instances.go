// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

// Instances makes MIG instances for who asks, each by a name, and remembers them. Its methods may
// be called from any goroutine, take as long as a driver does, and return *api.Error where it is
// known what is wrong.
type Instances interface {
	// Ensure makes one, or finds it as asked for.
	Ensure(ctx context.Context, spec api.InstanceSpec) (i api.Instance, made bool, err error)
	// Delete destroys one that no program uses.
	Delete(ctx context.Context, name string) error
	List(ctx context.Context) (api.Instances, error)
	// Settle ends what an earlier agent had begun, and lets containers have what it had made. It
	// is called again while it fails.
	Settle(ctx context.Context) error
}

// settleAgain is how long after a failure Settle is called again.
const settleAgain = 5 * time.Second

// Bounds of what is asked for, and of the placement units of any GPU.
const (
	maxProfileBytes = 40
	maxDeviceBytes  = 100 // MIG-, a GPU's UUID, and two numbers, in the form of before driver 470
	mostUnits       = 64
)

// settleInstances sees to the instances of an earlier agent, until ctx ends or it is done. A driver
// that does not answer does not keep the agent from ending.
func (d *daemon) settleInstances(ctx context.Context) {
	if d.cfg.Instances == nil {
		return
	}
	for {
		settled := make(chan error, 1)
		go func() { settled <- d.cfg.Instances.Settle(ctx) }()
		var err error
		select {
		case err = <-settled:
		case <-ctx.Done():
		}
		if err == nil || ctx.Err() != nil {
			return
		}
		d.cfg.Logger.Warn("MIG instances of before", "error", err)
		if !pauseFor(ctx, settleAgain) {
			return
		}
	}
}

var errNoInstances = &api.Error{Code: api.CodeNotFound, Message: "this agent makes no MIG instances", Hint: "ask the agent of the machine"}

func (h handlers) getInstances(w http.ResponseWriter, r *http.Request, _ asker) error {
	wanted, err := wantedLabels(r)
	if err != nil {
		return err
	}
	if h.cfg.Instances == nil {
		return errNoInstances
	}
	all, err := h.cfg.Instances.List(r.Context())
	if err != nil {
		return err
	}
	all.Schema = api.SchemaInstances
	all.Instances = slices.DeleteFunc(all.Instances, func(i api.Instance) bool { return !i.Labels.Match(wanted) })
	write(w, http.StatusOK, all)
	return nil
}

// putInstance makes a MIG instance, or finds it as asked for.
func (h handlers) putInstance(w http.ResponseWriter, r *http.Request, peer asker) error {
	var spec api.InstanceSpec
	if err := h.read(w, r, &spec); err != nil {
		return err
	}
	name, err := namedByPath(r, "instance", spec.Name)
	if err != nil {
		return err
	}
	spec.Name = name
	auditOf(r).about(name)
	if err := h.mayMakeInstances(peer); err != nil {
		return err
	}
	if err := checkInstance(spec); err != nil {
		return &api.Error{Code: api.CodeUsage, Message: err.Error()}
	}
	if err := h.ask(r, func(l *loop) error { return l.takesInstances(spec.GPU) }); err != nil {
		return err
	}
	i, made, err := h.cfg.Instances.Ensure(r.Context(), spec)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if !made {
		auditOf(r).unchanged()
		status = http.StatusOK
	}
	write(w, status, i)
	return nil
}

func (h handlers) deleteInstance(w http.ResponseWriter, r *http.Request, peer asker) error {
	auditOf(r).about(r.PathValue("name"))
	err := h.mayMakeInstances(peer)
	if err == nil {
		err = h.cfg.Instances.Delete(r.Context(), r.PathValue("name"))
	}
	if err == nil {
		w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func (h handlers) mayMakeInstances(peer asker) error {
	switch {
	case h.cfg.Instances == nil:
		return errNoInstances
	case !h.trusted(peer):
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("only root, uid %d and operators divide GPUs by this agent", h.uid)}
	}
	return nil
}

func checkInstance(spec api.InstanceSpec) error {
	if err := share.CheckName(spec.Name); err != nil {
		return fmt.Errorf("an instance has a name as a share has: %w", err)
	}
	if len(spec.Device) > maxDeviceBytes {
		return fmt.Errorf("device %.50q... is no UUID", spec.Device)
	}
	if spec.Profile == "" && spec.Device == "" || len(spec.Profile) > maxProfileBytes {
		return fmt.Errorf("profile %.50q is none, as 1g.5gb is", spec.Profile)
	}
	if spec.Start != nil && (*spec.Start < 0 || *spec.Start >= mostUnits) {
		return fmt.Errorf("no GPU has placement unit %d", *spec.Start)
	}
	return share.CheckLabels(spec.Labels)
}

// takesInstances says why a GPU takes no new instance.
func (l *loop) takesInstances(uuid string) error {
	cards := l.core.Cards()
	at := slices.IndexFunc(cards, func(c core.CardView) bool { return c.UUID == uuid })
	switch {
	case at < 0:
		return &api.Error{Code: api.CodeNotFound, Message: fmt.Sprintf("no GPU has the UUID %.50q", uuid), Hint: "divvy devices"}
	case cards[at].Cordon != nil:
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("GPU %s is cordoned: %s", uuid, cards[at].Cordon.Reason), Hint: "divvy devices uncordon " + uuid}
	}
	return nil
}
