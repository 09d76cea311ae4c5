// SPDX-License-Identifier: Apache-2.0

// Package doctor says whether a node can give shares of GPUs to pods. It looks at facts that
// others have gathered and decides by them alone. It is pure.
package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

// Outcomes of a check.
const (
	OK   = "ok"
	Note = "note" // works, with a limit worth knowing
	Fail = "fail"
)

// Check is one line of the doctor.
type Check struct {
	Name   string `json:"name"`
	Status string `json:"status"` // ok, note, fail
	Detail string `json:"detail"`
	Hint   string `json:"hint,omitempty"`
}

// Facts are what was found of a node; an error stands for what could not be.
type Facts struct {
	Agent      api.Version
	AgentError error // then there are no Devices and Shares
	Devices    []api.Card
	Shares     []api.Share // made for pods

	Runtime      cri.Version
	CDI          cri.CDI
	RuntimeError error

	Node       *corev1.Node
	Slices     []resourceapi.ResourceSlice // of the node, whoever published them
	Exists     map[string]bool             // claims and pods of Shares, by UID
	NodeError  error
	KubeletDir error // its folders are not there
}

// Examine makes checks of facts.
func Examine(f Facts) []Check {
	checks := []Check{f.agent()}
	if f.AgentError == nil {
		checks = append(checks, f.gpus(), f.front())
	}
	checks = append(checks, f.runtime()...)
	checks = append(checks, f.kubelet())
	if f.NodeError == nil {
		checks = append(checks, f.published(), f.others())
		if f.AgentError == nil {
			checks = append(checks, f.leftovers())
		}
	}
	return checks
}

// Fit says whether no check failed.
func Fit(checks []Check) bool {
	return !slices.ContainsFunc(checks, func(c Check) bool { return c.Status == Fail })
}

func (f Facts) agent() Check {
	if f.AgentError != nil {
		return Check{"agent", Fail, f.AgentError.Error(), "systemctl start divvy-agent"}
	}
	return Check{"agent", OK, "divvy " + f.Agent.Version, ""}
}

func (f Facts) gpus() Check {
	if len(f.Devices) == 0 {
		return Check{"driver", Fail, "the agent has no GPU", "divvy doctor"}
	}
	var ill []string
	for _, card := range f.Devices {
		if !nodeagent.TakesShares(card.Health) {
			ill = append(ill, fmt.Sprintf("%s is %s (%s)", card.UUID, card.Health, card.HealthDetail))
		}
	}
	if ill != nil {
		return Check{"driver", Fail, strings.Join(ill, "; "), "divvy devices"}
	}
	detail := fmt.Sprintf("%d GPUs (%s), driver %s", len(f.Devices), f.Devices[0].Name, f.Devices[0].DriverVersion)
	if f.Agent.Simulated {
		return Check{"driver", Note, detail + ", simulated", ""}
	}
	return Check{"driver", OK, detail, ""}
}

func (f Facts) front() Check {
	for _, card := range f.Devices {
		if card.Enforcement == share.Booked {
			return Check{"front", Fail, "nothing would hold a share of " + card.UUID + ": the front library is not there for its driver", "divvy doctor"}
		}
	}
	return Check{"front", OK, "shares are held at level " + string(f.weakest()), ""}
}

func (f Facts) weakest() share.Enforcement {
	levels := share.Enforcements()
	weakest := share.Enforcement("")
	for _, card := range f.Devices {
		if slices.Index(levels, card.Enforcement) > slices.Index(levels, weakest) {
			weakest = card.Enforcement
		}
	}
	return weakest
}

func (f Facts) runtime() []Check {
	if f.RuntimeError != nil {
		return []Check{{"runtime", Fail, f.RuntimeError.Error(), "divvy-kube doctor --runtime SOCKET"}}
	}
	who := f.Runtime.Name + " " + f.Runtime.Version
	checks := []Check{}
	major, minor, ok := version(f.Runtime.Version)
	switch {
	case !ok:
		checks = append(checks, Check{"runtime", Note, who + ": a version that is not known here", ""})
	case f.Runtime.Name == "containerd" && (major < 1 || major == 1 && minor < 7):
		checks = append(checks, Check{"runtime", Fail, who + " drops CDI devices silently: 1.7 is the least", "update containerd"})
	case f.Runtime.Name == "cri-o" && major == 1 && minor < 24:
		checks = append(checks, Check{"runtime", Fail, who + " takes no CDI devices: 1.24 is the least", "update CRI-O"})
	default:
		checks = append(checks, Check{"runtime", OK, who, ""})
	}
	reads := func(folder string) bool { return slices.Contains(f.CDI.Folders, folder) }
	switch {
	case !f.CDI.Known && f.Runtime.Name == "cri-o":
		checks = append(checks, Check{"cdi", OK, "on in every CRI-O that has it", ""})
	case !f.CDI.Known:
		checks = append(checks, Check{"cdi", Note, "the runtime does not say whether it takes CDI devices", ""})
	case !f.CDI.Enabled:
		checks = append(checks, Check{"cdi", Fail, "off in the runtime's configuration", "enable_cdi = true, in containerd's configuration for the kubelet"})
	case !reads("/var/run/cdi") && !reads("/run/cdi"):
		checks = append(checks, Check{"cdi", Fail, fmt.Sprintf("the runtime reads CDI files in %q", f.CDI.Folders), `cdi_spec_dirs = ["/etc/cdi", "/var/run/cdi"]`})
	default:
		checks = append(checks, Check{"cdi", OK, "on, files in " + strings.Join(f.CDI.Folders, ", "), ""})
	}
	return checks
}

func (f Facts) kubelet() Check {
	switch {
	case f.NodeError != nil:
		return Check{"kubelet", Fail, f.NodeError.Error(), "divvy-kube doctor --node NAME --kubeconfig FILE"}
	case f.KubeletDir != nil:
		return Check{"kubelet", Fail, f.KubeletDir.Error(), "divvy-kube doctor --kubelet-dir FOLDER"}
	}
	text := f.Node.Status.NodeInfo.KubeletVersion
	major, minor, ok := version(text)
	switch {
	case !ok:
		return Check{"kubelet", Note, text + ": a version that is not known here", ""}
	case major == 1 && minor < 29:
		return Check{"kubelet", Fail, text + " passes on no CDI devices of device plugins: 1.29 is the least", "update Kubernetes"}
	case major == 1 && minor < 34:
		return Check{"kubelet", Note, text + ": by --device-plugin; --dra needs 1.36", ""}
	case major == 1 && minor < 36:
		return Check{"kubelet", Note, text + ": by --device-plugin, or by --dra where the gate DRAConsumableCapacity is on in all components", ""}
	}
	return Check{"kubelet", OK, text, ""}
}

// published looks at what the API server kept of the node part's slices: what a gate that is
// off takes away is gone.
func (f Facts) published() Check {
	slots := f.Node.Status.Allocatable[names.ResourceGPU]
	devices := 0
	for _, slice := range f.Slices {
		if slice.Spec.Driver != names.Driver {
			continue
		}
		for _, device := range slice.Spec.Devices {
			devices++
			if device.AllowMultipleAllocations == nil || !*device.AllowMultipleAllocations {
				return Check{"gates", Fail, "the API server has dropped what makes a GPU one for several claims", "--feature-gates=DRAConsumableCapacity=true"}
			}
		}
	}
	switch {
	case devices > 0:
		return Check{"gates", OK, fmt.Sprintf("%d GPUs are published for claims, with their capacities", devices), ""}
	case slots.Value() > 0:
		return Check{"gates", OK, fmt.Sprintf("%d slots of %s", slots.Value(), names.ResourceGPU), ""}
	}
	return Check{"gates", Note, "the node part has published nothing yet", "kubectl -n divvy logs daemonset/divvy-node"}
}

func (f Facts) others() Check {
	if found := Others(f.Node, f.Slices, f.Devices); len(found) > 0 {
		return Check{"others", Fail, strings.Join(found, "; "), "remove it from this node, or divvy-kube node --beside-others"}
	}
	return Check{"others", OK, "no other plugin or driver serves these GPUs", ""}
}

// Others lists what else gives the node's GPUs to pods, which would not know of shares.
func Others(node *corev1.Node, all []resourceapi.ResourceSlice, cards []api.Card) []string {
	var found []string
	for resource, amount := range node.Status.Allocatable {
		domain, _, _ := strings.Cut(string(resource), "/")
		if amount.Value() > 0 && slices.Contains([]string{"nvidia.com", "volcano.sh", "aliyun.com", "tencent.com", "amd.com", "gpu.intel.com"}, domain) {
			found = append(found, fmt.Sprintf("a device plugin gives away %s of %s", amount.String(), resource))
		}
	}
	slices.Sort(found)
	ours := map[string]bool{}
	for _, card := range cards {
		ours[card.UUID] = true
	}
	for _, slice := range all {
		if slice.Spec.Driver == names.Driver || slice.Spec.NodeName == nil || *slice.Spec.NodeName != node.Name {
			continue
		}
		for _, device := range slice.Spec.Devices {
			uuid := device.Attributes["uuid"].StringValue
			if uuid != nil && ours[*uuid] {
				found = append(found, fmt.Sprintf("the DRA driver %s gives away GPU %s", slice.Spec.Driver, *uuid))
			}
		}
	}
	return found
}

func (f Facts) leftovers() Check {
	var left []string
	for _, s := range f.Shares {
		of := s.Labels[names.LabelClaim] + s.Labels[names.LabelPod] // it has one of them
		if !f.Exists[of] {
			left = append(left, s.Name)
		}
	}
	if left != nil {
		return Check{"leftovers", Fail, fmt.Sprintf("shares of claims or pods that are gone: %s", strings.Join(left, ", ")), "divvy share delete --force " + left[0]}
	}
	return Check{"leftovers", OK, fmt.Sprintf("none: each of %d shares has its claim or pod", len(f.Shares)), ""}
}

// Labels are what the node's labels say: for selectors of people, and of schedulers that know
// nothing else.
func Labels(f Facts, checks []Check) map[string]string {
	labels := map[string]string{
		names.LabelNodeFit: strconv.FormatBool(Fit(checks)), names.LabelNodeGPUs: strconv.Itoa(len(f.Devices)),
	}
	if len(f.Devices) > 0 {
		labels[names.LabelNodeProduct] = label(f.Devices[0].Name)
		labels[names.LabelNodeMemory] = strconv.FormatUint(f.Devices[0].MemoryBytes>>20, 10)
		labels[names.LabelNodeEnforcement] = string(f.weakest())
		labels[names.LabelNodeSimulated] = strconv.FormatBool(f.Agent.Simulated)
	}
	return labels
}

// label makes a text one that a label may have.
func label(text string) string {
	text = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' {
			return r
		}
		return '-'
	}, text)
	return strings.Trim(text[:min(len(text), 63)], "-_.")
}

// version is the first two numbers of v1.37.2, 2.4.2+unknown and the like.
func version(text string) (major, minor int, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(text, "v"), ".", 3)
	if len(parts) < 2 {
		return 0, 0, false
	}
	digits := strings.IndexFunc(parts[1], func(r rune) bool { return r < '0' || r > '9' })
	if digits >= 0 {
		parts[1] = parts[1][:digits]
	}
	major, majorErr := strconv.Atoi(parts[0])
	minor, minorErr := strconv.Atoi(parts[1])
	return major, minor, majorErr == nil && minorErr == nil
}
