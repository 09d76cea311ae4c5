// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// looks is a command that looks and stays.
func looks() []string { return []string{"/bin/sh", "-c", "python3 -c '" + look + "' && sleep 1000"} }

// Two whole GPUs for one container: it sees both, and no share is on them meanwhile; and no
// GPU that a share is on is a whole one.
func TestWholeGPUs(t *testing.T) {
	c := newCluster(t)
	devices := c.wholeDevices()
	whole := devices[0].Capacity[names.CapacityMemory].Value
	c.claim("both", request{name: "gpu", class: names.DeviceClassGPU, count: int64(len(devices))})
	c.pod("both", container{name: "main", claim: "both", command: looks()})
	c.says("both", "main", fmt.Sprintf("sees %d %d %d ", len(devices), len(devices), whole.Value()))
	if s := c.shareOf("both", 0); !s.Exclusive || len(s.CardUUIDs()) != len(devices) {
		t.Errorf("%+v", s)
	}
	c.claim("share", request{name: "gpu", memory: "1Gi"})
	c.pod("share", container{name: "main", claim: "share", command: looks()})
	c.unschedulable("share")
	c.deletePod("both")
	c.says("share", "main", "sees 1 1")
	c.gone("both")

	c.claim("again", request{name: "gpu", class: names.DeviceClassGPU, count: int64(len(devices))})
	c.pod("again", container{name: "main", claim: "again", command: looks()})
	c.unschedulable("again")
	c.claim("one", request{name: "gpu", class: names.DeviceClassGPU})
	c.pod("one", container{name: "main", claim: "one", command: looks()})
	c.says("one", "main", "sees 1 1")
	if one, share := c.shareOf("one", 0), c.shareOf("share", 0); one.CardUUID == share.CardUUID {
		t.Errorf("a whole GPU with a share on it: %+v", one)
	}
}

func (c *cluster) unschedulable(name string) {
	c.t.Helper()
	c.until("pod "+name+" is unschedulable", patience, func() error {
		p := c.get(name)
		for _, condition := range p.Status.Conditions {
			if condition.Type == corev1.PodScheduled && condition.Reason == corev1.PodReasonUnschedulable {
				return nil
			}
		}
		return errors.New(phase(p))
	})
}
