// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/doctor"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
	"github.com/divvy-gpu/divvy/kube/internal/server"
)

// doctorDeadline bounds all questions together.
const doctorDeadline = 20 * time.Second

type doctorFlags struct {
	agent, node, kubeconfig, kubelet, runtime string
	json, label                               bool
}

// doctorReport is `divvy-kube doctor --json`.
type doctorReport struct {
	Schema string            `json:"schema"`
	Fit    bool              `json:"fit"` // nothing failed
	Checks []doctor.Check    `json:"checks"`
	Labels map[string]string `json:"labels"` // of the node, with --label
}

var errUnfit = errors.New("this node is not fit")

func doctorCommand() *cobra.Command {
	var f doctorFlags
	command := &cobra.Command{
		Use:   "doctor",
		Short: "Check that a node can give shares to pods",
		Long: `Checks a node: agent, driver and front, the container runtime and whether it takes CDI
devices, the kubelet's version and gates, other plugins and drivers that give the same
GPUs away, and what is left over. Exit code 1 if something is broken; a "note" is a
limit worth knowing.`,
		Example: "  divvy-kube doctor --node $(hostname) --kubeconfig /etc/divvy/kubeconfig",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runDoctor(cmd.Context(), f) },
	}
	command.Flags().StringVar(&f.agent, "agent", "/run/divvy/agent.sock", "`socket` of the agent")
	command.Flags().StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "`name` of this node (default: $NODE_NAME)")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the API server (default: the pod's service account)")
	command.Flags().StringVar(&f.kubelet, "kubelet-dir", "/var/lib/kubelet", "`folder` of the kubelet")
	command.Flags().StringVar(&f.runtime, "runtime", "/run/containerd/containerd.sock", "`socket` of the container runtime")
	command.Flags().BoolVar(&f.json, "json", false, "print JSON")
	command.Flags().BoolVar(&f.label, "label", false, "write what was found into the node's labels")
	return command
}

func runDoctor(ctx context.Context, f doctorFlags) error {
	if f.node == "" {
		return fmt.Errorf("%w: --node or NODE_NAME is missing", errUsage)
	}
	ctx, cancel := context.WithTimeout(ctx, doctorDeadline)
	defer cancel()
	api, err := f.server()
	facts := f.gather(ctx, api, err)
	report := doctorReport{Schema: "divvy-kube.doctor/v1", Checks: doctor.Examine(facts)}
	report.Fit = doctor.Fit(report.Checks)
	report.Labels = doctor.Labels(facts, report.Checks)
	if f.json {
		raw, err := json.MarshalIndent(report, "", "  ")
		if err != nil {
			return err
		}
		fmt.Println(string(raw))
	} else {
		for _, c := range report.Checks {
			fmt.Printf("%-5s %-10s %s\n", c.Status, c.Name, c.Detail)
			if c.Hint != "" {
				fmt.Printf("%-5s %-10s try: %s\n", "", "", c.Hint)
			}
		}
	}
	if f.label {
		if err != nil {
			return err
		}
		if err := api.LabelNode(ctx, f.node, report.Labels); err != nil {
			return fmt.Errorf("label node %s: %w", f.node, err)
		}
	}
	if !report.Fit {
		return errUnfit
	}
	return nil
}

func (f doctorFlags) server() (*server.Server, error) {
	kube, err := apiServer(f.kubeconfig)
	if err != nil {
		return nil, err
	}
	return server.New(kube), nil
}

// gather asks everybody; what one does not say stops no other.
func (f doctorFlags) gather(ctx context.Context, api *server.Server, noServer error) doctor.Facts {
	var facts doctor.Facts
	f.askAgent(ctx, &facts)
	f.askRuntime(ctx, &facts)
	for _, folder := range []string{"device-plugins", "plugins_registry"} {
		if _, err := os.Stat(filepath.Join(f.kubelet, folder)); err != nil {
			facts.KubeletDir = err
		}
	}
	facts.NodeError = noServer
	if noServer != nil {
		return facts
	}
	if facts.Node, facts.NodeError = api.Node(ctx, f.node); facts.NodeError != nil {
		return facts
	}
	facts.Slices, facts.NodeError = api.Slices(ctx, f.node)
	facts.Exists = map[string]bool{}
	for _, s := range facts.Shares {
		l := s.Labels
		if uid := l[names.LabelClaim]; uid != "" {
			claim, err := api.Claim(ctx, l[names.LabelNamespace], l[names.LabelClaimName])
			facts.Exists[uid] = err == nil && string(claim.UID) == uid || err != nil && !server.IsNotFound(err)
		}
		if uid := l[names.LabelPod]; uid != "" {
			pod, err := api.Pod(ctx, l[names.LabelNamespace], l[names.LabelPodName])
			facts.Exists[uid] = err == nil && string(pod.UID) == uid || err != nil && !server.IsNotFound(err)
		}
	}
	return facts
}

func (f doctorFlags) askAgent(ctx context.Context, facts *doctor.Facts) {
	c := client.New(f.agent)
	if facts.Agent, facts.AgentError = c.Version(ctx); facts.AgentError != nil {
		return
	}
	devices, err := c.Devices(ctx)
	facts.Devices, facts.AgentError = devices.Cards, err
	for _, by := range []string{names.ByDRA, names.ByPlugin} {
		if facts.AgentError == nil {
			shares, err := nodeagent.New(f.agent).SharesWith(ctx, share.Labels{names.LabelBy: by})
			facts.Shares, facts.AgentError = append(facts.Shares, shares.Shares...), err
		}
	}
}

func (f doctorFlags) askRuntime(ctx context.Context, facts *doctor.Facts) {
	runtime, err := cri.New(f.runtime)
	if err != nil {
		facts.RuntimeError = err
		return
	}
	defer runtime.Close()
	if facts.Runtime, facts.RuntimeError = runtime.Version(ctx); facts.RuntimeError == nil {
		facts.CDI, facts.RuntimeError = runtime.CDI(ctx)
	}
}
