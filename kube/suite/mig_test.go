// SPDX-License-Identifier: Apache-2.0

//go:build cluster

package suite

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// Rules of partitions.
const (
	twoParts = "mig: {enabled: true, devices: {3g.20gb: 2}}"
	noParts  = "mig: {enabled: false}"
)

// divide makes of the second GPU what a rule says, as an administrator does.
func (c *cluster) divide(ctx context.Context, folder, rule string) {
	c.t.Helper()
	root := os.Getenv("DIVVY_ROOT")
	goal := filepath.Join(folder, "goal.yaml")
	text := "schema: divvy.partition/v1\ncards:\n  - match: {index: [1]}\n    " + rule + "\n"
	if err := os.WriteFile(goal, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	for _, args := range [][]string{
		{"partition", "apply", goal, "--driver-dir", filepath.Join(root, "lib", "divvy", "standin"), "--journal", "/var/lib/divvy/partition.journal", "--cdi-dir", "/run/cdi"},
		{"cdi", "generate", "--agent", "/run/divvy/agent.sock", "--class", "part", "--output", "/run/cdi"},
	} {
		command := exec.CommandContext(ctx, filepath.Join(root, "bin", "divvy"), args...)
		command.Env = append(os.Environ(), "DIVVY_SIMULATOR="+simulator)
		if said, err := command.CombinedOutput(); err != nil {
			c.t.Fatalf("divvy %s: %v\n%s", args[0], err, said)
		}
	}
}

// divided makes of the second GPU what a rule says, until the test's end, and then by another rule
// what it was.
func (c *cluster) divided(folder, rule, undo string) {
	c.t.Helper()
	c.t.Cleanup(func() {
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
		c.wait(ctx, "no MIG device is booked", func() error { // a pod that is deleted at once is gone before it has ended
			all, err := c.agent.Instances(ctx)
			if err == nil && len(all.Instances) > 0 {
				err = fmt.Errorf("%+v are", all.Instances)
			}
			return err
		})
		c.divide(ctx, folder, undo)
	})
	c.divide(c.t.Context(), folder, rule)
}

// seesPart waits until a pod has looked, and checks that it sees a 3g.20gb.
func (c *cluster) seesPart(pod string) {
	c.t.Helper()
	c.says(pod, "main", "sees 1 ")
	var count, cards int
	var total uint64
	if _, err := fmt.Sscanf(c.log(pod, "main"), "sees %d %d %d", &count, &cards, &total); err != nil || total < 16*gib || total > 20*gib {
		c.t.Errorf("pod %s: %q (%v)", pod, c.log(pod, "main"), err)
	}
}

// allocatable waits until the node has so much of a resource.
func (c *cluster) allocatable(name corev1.ResourceName, want int64) {
	c.t.Helper()
	c.until(fmt.Sprintf("the node has %d of %s", want, name), patience, func() error {
		node, err := c.kube.CoreV1().Nodes().Get(c.t.Context(), nodeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if n := node.Status.Allocatable[name]; n.Value() != want {
			return fmt.Errorf("it has %s", n.String())
		}
		return nil
	})
}

// MIG devices that are there are a resource of their profile: each container has one of its own,
// the next pod waits, and the other GPU goes on giving shares.
func TestPluginMIG(t *testing.T) {
	const profile = "divvy.dev/mig-3g.20gb"
	c, folder := byPlugin(t), t.TempDir()
	c.divided(folder, twoParts, noParts)
	c.allocatable(profile, 2)
	for _, name := range []string{"one", "two"} {
		c.limited(name, profile)
		c.seesPart(name)
	}
	c.booked(2)
	c.limited("three", profile)
	c.warned("three", "Insufficient "+profile)
	c.deletePod("one")
	c.says("three", "main", "sees 1 ")
	c.deletePod("two")
	c.booked(1)
}

// booked waits until so many MIG devices that were there are on the agent's ledger, all 3g.20gb.
func (c *cluster) booked(want int) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d MIG devices are booked", want), patience, func() error {
		all, err := c.agent.Instances(c.t.Context())
		if err != nil || len(all.Instances) != want {
			return fmt.Errorf("%+v (%w)", all.Instances, err)
		}
		for _, i := range all.Instances {
			if i.Device == "" || i.Profile != "3g.20gb" {
				return fmt.Errorf("%+v", i)
			}
		}
		return nil
	})
}

// publishedMIG waits until so many MIG devices of a profile are published, and no others, and none
// is tainted.
func (c *cluster) publishedMIG(profile string, want int) {
	c.t.Helper()
	c.until("MIG devices are published", patience, func() error {
		found := 0
		for _, d := range c.devices() {
			of := d.Attributes[names.AttributeProfile].StringValue
			if of == nil {
				continue
			}
			if *of != profile || len(d.Taints) > 0 {
				return fmt.Errorf("%s is a %s, taints %v", d.Name, *of, d.Taints)
			}
			found++
		}
		if found != want {
			return fmt.Errorf("%d are", found)
		}
		return nil
	})
}

// noMIG waits, in the end of a test, until no MIG device is published.
func (c *cluster) noMIG() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	c.wait(ctx, "no MIG device is published", func() error {
		if list, err := c.kube.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{}); err != nil || strings.Contains(list.String(), "MIG-") {
			return errors.Join(errors.New("there is one"), err)
		}
		return nil
	})
}

// limited makes a pod with one of a resource, that Kubernetes' scheduler puts on the node.
func (c *cluster) limited(name string, of corev1.ResourceName) {
	c.t.Helper()
	grace := int64(1)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever, TerminationGracePeriodSeconds: &grace, AutomountServiceAccountToken: new(bool),
		Containers: []corev1.Container{{Name: "main", Image: image, ImagePullPolicy: corev1.PullNever, Command: looks(),
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{of: resource.MustParse("1")}}}},
	}}
	if _, err := c.kube.CoreV1().Pods(c.space).Create(c.t.Context(), pod, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// Replicas are as many names of a whole GPU: so many pods see all of it, and one more waits.
func TestPluginReplicas(t *testing.T) {
	c, folder := byPlugin(t), t.TempDir()
	c.divided(folder, "replicas: {count: 2}", "replicas: {count: 0}")
	c.allocatable(names.ResourceReplica, 2)
	for _, name := range []string{"one", "two"} {
		c.limited(name, names.ResourceReplica)
		c.says(name, "main", "sees 1 ") // by CUDA; a simulated NVML tells of all GPUs
		var count, cards int
		var total uint64
		if _, err := fmt.Sscanf(c.log(name, "main"), "sees %d %d %d", &count, &cards, &total); err != nil || total < 39*gib {
			t.Errorf("pod %s: %q (%v)", name, c.log(name, "main"), err)
		}
	}
	c.limited("three", names.ResourceReplica)
	c.warned("three", "Insufficient "+names.ResourceReplica)
	c.deletePod("one")
	c.says("three", "main", "sees 1 ")
}

// By claims, too: each has one MIG device by a CDI device, the next one waits until one is free, the
// other GPU goes on giving shares, and what is no more is not published.
func TestMIGClaims(t *testing.T) {
	c, folder := newCluster(t), t.TempDir()
	t.Cleanup(c.noMIG)
	c.divided(folder, twoParts, noParts)
	c.publishedMIG("3g.20gb", 2)
	mig := func(profile string) request {
		return request{name: "mig", class: names.DeviceClassMIG, selector: fmt.Sprintf(`device.attributes["divvy.dev"].profile == %q`, profile)}
	}
	for _, name := range []string{"one", "two"} {
		c.claim(name, mig("3g.20gb"))
		c.pod(name, container{name: "main", claim: name, command: looks()})
		c.seesPart(name)
	}
	c.booked(2)
	claim, err := c.kube.ResourceV1().ResourceClaims(c.space).Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil || len(claim.Status.Devices) != 1 || !strings.Contains(string(claim.Status.Devices[0].Data.Raw), `"profile":"3g.20gb"`) {
		t.Errorf("%+v (%v)", claim.Status, err)
	}
	c.claim("small", mig("1g.5gb"))
	c.pod("small", container{name: "main", claim: "small", command: looks()})
	c.unschedulable("small")
	c.claim("three", mig("3g.20gb"))
	c.pod("three", container{name: "main", claim: "three", command: looks()})
	c.unschedulable("three")
	c.claim("share", request{name: "gpu", memory: "2Gi"})
	c.pod("share", container{name: "main", claim: "share", command: looks()})
	c.says("share", "main", fmt.Sprintf("sees 1 1 %d", 2*gib))
	c.deletePod("one")
	c.seesPart("three")
	c.deletePod("two")
	c.booked(1)
}

// On a GPU in MIG mode they are made for claims, and are gone after: of two that do not go together the
// second waits until the first is released.
func TestMIGMadeForClaims(t *testing.T) {
	c, folder := newCluster(t), t.TempDir()
	c.divided(folder, "mig: {enabled: true}", noParts)
	has := func(want string) {
		t.Helper()
		c.until("the GPU has "+want, patience, func() error {
			all, err := c.agent.Instances(t.Context())
			if err != nil || len(all.Cards) != 1 {
				return fmt.Errorf("%+v (%w)", all, err)
			}
			var profiles []string
			for _, part := range all.Cards[0].Has {
				profiles = append(profiles, part.Profile)
			}
			if got := strings.Join(profiles, ","); got != want || len(all.Instances) != len(profiles) {
				return fmt.Errorf("it has %q, of %d claims", got, len(all.Instances))
			}
			return nil
		})
	}
	claim := func(name, profile string) {
		t.Helper()
		c.claim(name, request{name: "mig", class: names.DeviceClassMIG, selector: fmt.Sprintf(`device.attributes["divvy.dev"].profile == %q`, profile)})
		c.pod(name, container{name: "main", claim: name, command: looks()})
	}
	claim("one", "3g.20gb")
	c.seesPart("one")
	has("3g.20gb")
	claim("whole", "7g.40gb")
	c.unschedulable("whole")
	claim("small", "1g.5gb")
	c.says("small", "main", "sees 1 ")
	c.deletePod("small")
	c.deletePod("one")
	c.says("whole", "main", "sees 1 ")
	has("7g.40gb")
	c.deletePod("whole")
	has("")
}

// A node part in a pod sees the files of MIG devices, and not what these need of the host.
func TestMIGInPods(t *testing.T) {
	c, folder := newCluster(t), t.TempDir()
	c.host("stop", "node", false)
	t.Cleanup(func() {
		c.host("start", "node", false)
		c.noMIG()
	})
	c.divided(folder, twoParts, noParts)
	for _, name := range []string{"node.yaml", "device-plugin.yaml"} {
		manifest := filepath.Join(os.Getenv("DIVVY_ROOT"), "deploy", "kubernetes", name)
		c.kubectl("apply", "-f", manifest)
		t.Cleanup(func() { c.unapply("--ignore-not-found", "-f", manifest) })
		c.kubectl("-n", "divvy", "rollout", "status", "daemonset/divvy-node", "--timeout", "60s")
		if name == "node.yaml" {
			c.publishedMIG("3g.20gb", 2)
		} else {
			c.allocatable("divvy.dev/mig-3g.20gb", 2)
		}
		c.kubectl("delete", "--wait", "-f", manifest)
	}
}
