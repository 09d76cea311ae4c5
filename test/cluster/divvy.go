// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Ways in which divvy-kube node runs.
const (
	nodePod     = "pod"     // all of Divvy in pods, as deploy/kubernetes has it
	nodeService = "service" // of the host, as simulator and agent are, so that a suite can kill and start them
	nodeNone    = "none"
)

const (
	simulatorSocket = "/run/divvy-simulator/simulator.sock"
	agentSocket     = "/run/divvy/agent.sock"
	manifestCards   = "2xA100-40GB" // of deploy/kubernetes/simulated.yaml
)

// startDivvy starts the simulated GPUs and the agent as services of the host, unless they
// come in pods.
func (n *node) startDivvy(ctx context.Context) error {
	if n.node == nodePod {
		return nil
	}
	divvy := filepath.Join(n.divvy, "bin", "divvy")
	folders := func(paths ...string) func() error {
		return func() error {
			var err error
			for _, path := range paths {
				err = errors.Join(err, os.MkdirAll(path, 0o755))
			}
			return err
		}
	}
	if err := n.runAfter(folders(filepath.Dir(simulatorSocket)), "simulator",
		divvy, "simulate", "--gpus", n.cards, "--socket", simulatorSocket); err != nil {
		return err
	}
	if err := n.until(ctx, "the simulator", "simulator", func() error {
		connection, err := net.Dial("unixpacket", simulatorSocket)
		if err == nil {
			connection.Close()
		}
		return err
	}); err != nil {
		return err
	}
	if err := n.runAfter(folders("/run/divvy", "/run/cdi", "/var/lib/divvy"), agentService,
		divvy, "agent", "--driver-dir", filepath.Join(n.divvy, "lib", "divvy", "standin"), "--simulator", simulatorSocket,
		"--cdi-dir", "/run/cdi", "--creation", "owner"); err != nil {
		return err
	}
	return n.until(ctx, "the agent", agentService, func() error {
		return exec.CommandContext(ctx, divvy, "devices", "--agent", agentSocket).Run()
	})
}

// startNodePart applies what every cluster with Divvy has, and starts divvy-kube node.
func (n *node) startNodePart(ctx context.Context) error {
	manifest := func(name string) string { return filepath.Join(n.divvy, "deploy", "kubernetes", name) }
	if _, err := n.kubectl(ctx, "apply", "-f", manifest("base.yaml")); err != nil {
		return err
	}
	switch n.node {
	case nodePod:
		raw, err := os.ReadFile(manifest("simulated.yaml"))
		if err != nil {
			return err
		}
		file := n.at("simulated.yaml")
		if err := os.WriteFile(file, []byte(strings.Replace(string(raw), manifestCards, n.cards, 1)), 0o644); err != nil {
			return err
		}
		if _, err := n.kubectl(ctx, "apply", "-f", file, "-f", manifest("node.yaml")); err != nil {
			return err
		}
	case nodeService:
		// As in a pod, its token is its node's.
		token, err := n.kubectl(ctx, "create", "token", "--namespace", "divvy", "divvy-node", "--duration", "24h",
			"--bound-object-kind", "Node", "--bound-object-name", nodeName)
		if err != nil {
			return err
		}
		authority, err := os.ReadFile(n.at("pki", "ca.crt"))
		if err != nil {
			return err
		}
		file := n.at("pki", "node.kubeconfig")
		text := kubeconfig(base64.StdEncoding.EncodeToString(authority), "token: "+strings.TrimSpace(token))
		if err := os.WriteFile(file, text, 0o600); err != nil {
			return err
		}
		if err := n.run("node", filepath.Join(n.divvy, "bin", "divvy-kube"), "node", "--dra", "--node", nodeName, "--kubeconfig", file); err != nil {
			return err
		}
	case nodeNone:
		return nil
	}
	return n.until(ctx, "the node's GPUs", "kubelet", func() error {
		var list struct{ Items []struct{} }
		if err := n.get(ctx, "/apis/resource.k8s.io/v1/resourceslices", &list); err != nil {
			return err
		}
		if len(list.Items) == 0 {
			return errors.New("no slice is published")
		}
		return nil
	})
}

func (n *node) kubectl(ctx context.Context, args ...string) (string, error) {
	command := exec.CommandContext(ctx, n.program("kubectl"), append([]string{"--kubeconfig", n.at("pki", "admin.kubeconfig")}, args...)...)
	command.Env = n.environment()
	text, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, exit.Stderr)
		}
		return "", fmt.Errorf("kubectl %s: %w", strings.Join(args, " "), err)
	}
	return string(text), nil
}
