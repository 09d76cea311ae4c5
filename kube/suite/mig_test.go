// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// divide makes MIG devices of the second GPU, or none of it again, as an administrator does.
func (c *cluster) divide(ctx context.Context, folder, mig string) {
	c.t.Helper()
	root := os.Getenv("DIVVY_ROOT")
	goal := filepath.Join(folder, "goal.yaml")
	text := "schema: divvy.partition/v1\ncards:\n  - match: {index: [1]}\n    mig: " + mig + "\n"
	if err := os.WriteFile(goal, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for _, args := range [][]string{
		{"partition", "apply", goal, "--driver-dir", filepath.Join(root, "lib", "divvy", "standin"), "--journal", "/var/lib/divvy/partition.journal"},
		{"cdi", "generate", "--agent", "/run/divvy/agent.sock", "--class", "part", "--output", "/run/cdi"},
	} {
		command := exec.CommandContext(ctx, filepath.Join(root, "bin", "divvy"), args...)
		command.Env = append(os.Environ(), "DIVVY_SIMULATOR="+simulator)
		if said, err := command.CombinedOutput(); err != nil {
			c.t.Fatalf("divvy %s: %v\n%s", args[0], err, said)
		}
	}
}

// MIG devices that are there are a resource of their profile: each container has one of its own,
// the next pod waits, and the other GPU goes on giving shares.
func TestPluginMIG(t *testing.T) {
	const profile = "divvy.dev/mig-3g.20gb"
	c, folder := byPlugin(t), t.TempDir()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		c.deletePods(ctx)
		c.wait(ctx, "no pod is left", func() error {
			pods, err := c.kube.CoreV1().Pods(c.space).List(ctx, metav1.ListOptions{})
			if err == nil && len(pods.Items) > 0 {
				err = fmt.Errorf("%d are", len(pods.Items))
			}
			return err
		})
		c.divide(ctx, folder, "{enabled: false}")
	})
	c.divide(t.Context(), folder, "{enabled: true, devices: {3g.20gb: 2}}")
	c.until("the node has MIG devices", patience, func() error {
		node, err := c.kube.CoreV1().Nodes().Get(t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := node.Status.Allocatable[profile]; n.Value() != 2 {
			return fmt.Errorf("it has %s", n.String())
		}
		return nil
	})
	migPod := func(name string) {
		t.Helper()
		grace := int64(1)
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(bool),
			Containers: []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullNever, Command: looks(),
				Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{profile: resource.MustParse("1")}}}},
		}}
		if _, err := c.kube.CoreV1().Pods(c.space).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"one", "two"} {
		migPod(name)
		c.says(name, "main", "sees 1 ")
		var count, cards int
		var total uint64
		if _, err := fmt.Sscanf(c.log(name, "main"), "sees %d %d %d", &count, &cards, &total); err != nil || total < 16*gib || total > 20*gib {
			t.Errorf("pod %s: %q (%v)", name, c.log(name, "main"), err)
		}
	}
	migPod("three")
	c.warned("three", "Insufficient "+profile)
	c.deletePod("one")
	c.says("three", "main", "sees 1 ")
}
