// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// A GPU that is lost is tainted within 2 s and its pods' status says so; when it is well
// again both recover within 10 s, and it takes claims, without a restart of anything.
func TestLostCard(t *testing.T) {
	c := newCluster(t)
	truth := c.truth()
	c.wholeDevices()
	cards, err := truth.Cards(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	lost := cards[0]
	c.claim("share", request{name: "gpu", memory: "1Gi", uuid: lost.UUID})
	c.pod("pod", container{name: "main", claim: "share", command: staying(example("vectoradd", 1))})
	c.says("pod", "main", "done")
	c.within("the pod's GPU is healthy", patience, func() error { return c.health("pod", corev1.ResourceHealthStatusHealthy) })

	if _, _, err := truth.Inject(t.Context(), simgpu.Injection{Fault: condition.Fault{Card: lost.Index, Kind: condition.CardLost}}); err != nil {
		t.Fatal(err)
	}
	c.within("the lost GPU is tainted", 2*time.Second, c.tainted(lost.UUID, true))
	c.within("the pod's GPU is unhealthy", 2*time.Second, func() error { return c.health("pod", corev1.ResourceHealthStatusUnhealthy) })
	c.claim("late", request{name: "gpu", memory: "1Gi", uuid: lost.UUID})
	c.pod("late", container{name: "main", claim: "late", command: example("vectoradd", 1)})
	c.warned("late", "cannot allocate all claims")
	c.deletePod("pod")

	if _, err := truth.ClearFaults(t.Context(), lost.Index); err != nil {
		t.Fatal(err)
	}
	// It fell off the bus: somebody has to look at it before it takes shares again.
	if _, err := c.agent.Uncordon(t.Context(), lost.UUID); err != nil {
		t.Fatal(err)
	}
	c.within("the GPU has no taint", 10*time.Second, c.tainted(lost.UUID, false))
	checkExample(t, c.succeeded("late")["main"], gib)
}

// tainted says whether a GPU is, or is not.
func (c *cluster) tainted(uuid string, want bool) func() error {
	return func() error {
		for _, d := range c.devices() {
			if d.Name == names.Device(uuid) && (len(d.Taints) > 0) == want {
				return nil
			}
		}
		return fmt.Errorf("tainted: not %v", want)
	}
}

// A GPU that is cordoned takes no new claim, and what runs on it goes on; when it is let go, what
// waited runs.
func TestCordon(t *testing.T) {
	c := newCluster(t)
	uuid, _ := names.UUID(c.wholeDevices()[0].Name)
	c.claim("share", request{name: "gpu", memory: "2Gi", uuid: uuid})
	c.pod("pod", container{name: "main", claim: "share", command: staying(example("vectoradd", 5))})
	c.says("pod", "main", "sees 1 1")
	if _, err := c.agent.Cordon(t.Context(), uuid, "a test"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if _, err := c.agent.Uncordon(ctx, uuid); err != nil {
			t.Error(err)
		}
	})
	c.within("the cordoned GPU is tainted", 2*time.Second, c.tainted(uuid, true))
	c.claim("late", request{name: "gpu", memory: "1Gi", uuid: uuid})
	c.pod("late", container{name: "main", claim: "late", command: example("vectoradd", 1)})
	c.unschedulable("late")
	c.says("pod", "main", "done")
	checkExample(t, c.log("pod", "main"), 2*gib)
	if p := c.get("late"); p.Status.Phase != corev1.PodPending {
		t.Errorf("the late pod: %s", phase(p))
	}
	if _, err := c.agent.Uncordon(t.Context(), uuid); err != nil {
		t.Fatal(err)
	}
	c.within("the GPU has no taint", 10*time.Second, c.tainted(uuid, false))
	checkExample(t, c.succeeded("late")["main"], gib)
}

// within measures how long something takes, and fails when it is too long.
func (c *cluster) within(what string, limit time.Duration, check func() error) {
	c.t.Helper()
	began := time.Now()
	c.until(what, patience, check)
	if took := time.Since(began); took > limit {
		c.t.Errorf("%s after %.1f s", what, took.Seconds())
	} else {
		c.t.Logf("%s after %.1f s", what, took.Seconds())
	}
}

// health says whether a pod's status has a GPU in some health.
func (c *cluster) health(pod string, want corev1.ResourceHealthStatus) error {
	p := c.get(pod)
	for _, s := range p.Status.ContainerStatuses {
		if len(s.AllocatedResourcesStatus) == 0 {
			continue
		}
		r := s.AllocatedResourcesStatus[0]
		if len(r.Resources) != 1 {
			return fmt.Errorf("%d resources of %s", len(r.Resources), r.Name)
		}
		if h := r.Resources[0]; h.Health != want {
			return fmt.Errorf("%s is %s", h.ResourceID, h.Health)
		}
		return nil
	}
	return errors.New("the pod's status has no resources")
}
