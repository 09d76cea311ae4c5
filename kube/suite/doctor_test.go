// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

type doctorReport struct {
	Fit    bool
	Checks []struct{ Name, Status, Detail string }
}

// doctor examines the node of the cluster.
func (c *cluster) doctor(args ...string) (report doctorReport, code int) {
	c.t.Helper()
	args = append([]string{"doctor", "--node", nodeName, "--kubeconfig", os.Getenv("KUBECONFIG"), "--json"}, args...)
	text, err := exec.CommandContext(c.t.Context(), filepath.Join(os.Getenv("DIVVY_ROOT"), "bin", "divvy-kube"), args...).Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	if err := json.Unmarshal(text, &report); err != nil {
		c.t.Fatalf("%v: %q", err, text)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return report, code
}

// The doctor finds this node fit, and no longer when another plugin gives GPUs away; its
// labels are on the node.
func TestDoctor(t *testing.T) {
	c := newCluster(t)
	c.wholeDevices()
	report, code := c.doctor("--label")
	if !report.Fit || code != 0 {
		t.Errorf("exit code %d: %+v", code, report)
	}
	for _, name := range []string{"agent", "driver", "front", "runtime", "cdi", "kubelet", "gates", "others", "leftovers"} {
		if !slices.ContainsFunc(report.Checks, func(k struct{ Name, Status, Detail string }) bool { return k.Name == name }) {
			t.Errorf("%s was not looked at", name)
		}
	}
	node, err := c.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
	if err != nil || node.Labels["divvy.dev/fit"] != "true" || node.Labels["divvy.dev/gpu.count"] != fmt.Sprint(len(c.gpus())) {
		t.Errorf("%v (%v)", node.Labels, err)
	}
	patch := func(text string) {
		if _, err := c.kube.CoreV1().Nodes().Patch(t.Context(), nodeName, types.JSONPatchType, []byte(text), metav1.PatchOptions{}, "status"); err != nil {
			t.Fatal(err)
		}
	}
	patch(`[{"op":"add","path":"/status/capacity/nvidia.com~1gpu","value":"2"},{"op":"add","path":"/status/allocatable/nvidia.com~1gpu","value":"2"}]`)
	defer patch(`[{"op":"remove","path":"/status/capacity/nvidia.com~1gpu"},{"op":"remove","path":"/status/allocatable/nvidia.com~1gpu"}]`)
	if report, code := c.doctor(); report.Fit || code != 1 {
		t.Errorf("exit code %d: %+v", code, report)
	}
}
