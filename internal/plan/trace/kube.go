// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/mig"
	"github.com/divvy-gpu/divvy/internal/placement"
)

// What the cluster calls things.
const (
	labelProduct   = "nvidia.com/gpu.product"
	labelCount     = "nvidia.com/gpu.count"
	labelMemory    = "nvidia.com/gpu.memory"
	labelReplicas  = "nvidia.com/gpu.replicas"
	resourceWhole  = "nvidia.com/gpu"
	resourceMIG    = "nvidia.com/mig-"
	resourceShare  = "divvy.dev/gpu"
	resourceMemory = "divvy.dev/memory"
	resourceCores  = "divvy.dev/cores"
)

var (
	rackLabels = []string{"topology.kubernetes.io/rack", "divvy.dev/rack"}
	gangLabels = []string{"divvy.dev/gang", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"}
)

// kubeObject has the fields of a Node or Pod that matter. It takes any others:
// the decoder's strictness is for our own shapes.
type kubeObject struct {
	kubeFields
}

func (o *kubeObject) UnmarshalJSON(text []byte) error { return json.Unmarshal(text, &o.kubeFields) }

type kubeFields struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name              string            `json:"name"`
		Namespace         string            `json:"namespace"`
		Labels            map[string]string `json:"labels"`
		CreationTimestamp string            `json:"creationTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Unschedulable  bool              `json:"unschedulable"`
		NodeName       string            `json:"nodeName"`
		Priority       int               `json:"priority"`
		NodeSelector   map[string]string `json:"nodeSelector"`
		Affinity       kubeAffinity      `json:"affinity"`
		Containers     []kubeContainer   `json:"containers"`
		InitContainers []kubeContainer   `json:"initContainers"`
		Overhead       map[string]string `json:"overhead"`
		Group          struct {
			Name string `json:"podGroupName"`
		} `json:"schedulingGroup"`
	} `json:"spec"`
	Status struct {
		Phase       string            `json:"phase"`
		Allocatable map[string]string `json:"allocatable"`
		Conditions  []struct {
			Type   string `json:"type"`
			Status string `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
}

type kubeContainer struct {
	RestartPolicy string `json:"restartPolicy"`
	Resources     struct {
		Requests map[string]string `json:"requests"`
		Limits   map[string]string `json:"limits"`
	} `json:"resources"`
}

type kubeAffinity struct {
	Node struct {
		Required struct {
			Terms []struct {
				Expressions []struct {
					Key      string   `json:"key"`
					Operator string   `json:"operator"`
					Values   []string `json:"values"`
				} `json:"matchExpressions"`
			} `json:"nodeSelectorTerms"`
		} `json:"requiredDuringSchedulingIgnoredDuringExecution"`
	} `json:"nodeAffinity"`
}

// addKube takes a Node that can run pods now.
func (l *Nodes) addKube(o *kubeObject, line int, seen map[string]int) error {
	if o.Kind != "Node" {
		if o.Kind != "Pod" {
			note(&l.Notes, "%s: %ss in the list have no bearing on a plan", l.File, o.Kind)
		}
		return nil
	}
	name := o.Metadata.Name
	if o.Spec.Unschedulable {
		note(&l.Notes, "node %s is cordoned: left out, with what runs there", name)
		return nil
	}
	for _, c := range o.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			note(&l.Notes, "node %s is not ready: left out, with what runs there", name)
			return nil
		}
	}
	fail := func(format string, args ...any) error {
		return &InputError{l.File, line, fmt.Sprintf("node %s: ", name) + fmt.Sprintf(format, args...)}
	}
	amounts := map[string]float64{}
	divided := false
	for key, text := range o.Status.Allocatable {
		amount, err := quantity(text)
		if err != nil {
			return fail("allocatable %s: %v", key, err)
		}
		amounts[key] = amount
		divided = divided || strings.HasPrefix(key, resourceMIG) && amount > 0
	}
	label := func(key string) (int64, error) {
		text := o.Metadata.Labels[key]
		if text == "" {
			return 0, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil || n < 0 || n > mostMiB {
			return 0, fail("label %s is %q, want a whole number", key, text)
		}
		return n, nil
	}
	count, err := label(labelCount)
	if err != nil {
		return err
	}
	replicas, err := label(labelReplicas)
	if err != nil {
		return err
	}
	memory, err := label(labelMemory)
	if err != nil {
		return err
	}
	cards := int64(amounts[resourceWhole]) / max(1, replicas)
	if divided || cards == 0 {
		cards = count
	} else if replicas > 1 {
		note(&l.Notes, "node %s slices its %d GPUs by time: a pod there counts as a whole GPU", name, cards)
	}
	if cards == 0 && amounts[resourceShare] > 0 {
		return fail("has %s but no label %s to tell how many GPUs", resourceShare, labelCount)
	}
	if cards > placement.MaxCards {
		return fail("%d GPUs, want at most %d", cards, placement.MaxCards)
	}
	model := o.Metadata.Labels[labelProduct]
	var product *mig.Product
	if divided {
		if product, err = l.product(model); err != nil {
			return fail("%v", err)
		}
		if product == nil {
			return fail("serves partitions, but no partitioning rules are known for GPU model %q", model)
		}
	}
	if cards > 0 && memory == 0 && product == nil {
		note(&l.Notes, "node %s has no label %s: the memory of its GPUs is not looked at", name, labelMemory)
	}
	n := placement.Node{
		Name: name, Model: model, Rack: firstLabel(o.Metadata.Labels, rackLabels),
		CPUMilli: clamp(amounts["cpu"]*1000, mostMilli), MemoryMiB: clamp(amounts["memory"]/(1<<20), mostMiB),
		Cards: make([]placement.Card, cards),
	}
	for i := range n.Cards {
		n.Cards[i] = placement.Card{MemoryMiB: memory, MIG: product}
	}
	return l.add(n, line, seen)
}

func firstLabel(labels map[string]string, keys []string) string {
	for _, key := range keys {
		if v := labels[key]; v != "" {
			return v
		}
	}
	return ""
}

func clamp(x float64, most int64) int64 { return int64(math.Floor(math.Min(x, float64(most)))) }

// kubePods counts what is left out of a list of pods.
type kubePods struct {
	finished  int
	selectors map[string]bool
}

func newKubePods() *kubePods { return &kubePods{selectors: map[string]bool{}} }

func (c *kubePods) conclude(l *Jobs) {
	if c.finished > 0 {
		note(&l.Notes, "%s: %d finished pods hold nothing and are left out", l.File, c.finished)
	}
	keys := make([]string, 0, len(c.selectors))
	for key := range c.selectors {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	if len(keys) > 0 {
		note(&l.Notes, "%s: node selectors other than %s are not looked at: %s", l.File, labelProduct, strings.Join(keys, ", "))
	}
}

// addKube takes a Pod that runs or waits.
func (l *Jobs) addKube(c *kubePods, o *kubeObject, line int) error {
	if o.Kind != "Pod" {
		if o.Kind != "Node" {
			note(&l.Notes, "%s: %ss in the list have no bearing on a plan", l.File, o.Kind)
		}
		return nil
	}
	if o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" {
		c.finished++
		return nil
	}
	name := o.Metadata.Namespace + "/" + o.Metadata.Name
	asked, err := o.asked()
	if err != nil {
		return &InputError{l.File, line, fmt.Sprintf("pod %s: %v", name, err)}
	}
	j := Job{Line: line, Node: o.Spec.NodeName, Gang: firstLabel(o.Metadata.Labels, gangLabels), Request: placement.Request{
		Name: name, Tenant: o.Metadata.Namespace, Priority: o.Spec.Priority, Models: o.models(c),
		CPUMilli: int64(math.Ceil(asked["cpu"] * 1000)), MemoryMiB: int64(math.Ceil(asked["memory"] / (1 << 20))),
	}}
	if o.Spec.Group.Name != "" {
		j.Gang = o.Spec.Group.Name
	}
	if j.Gang != "" {
		j.Gang = o.Metadata.Namespace + "/" + j.Gang
	}
	if at, err := time.Parse(time.RFC3339, o.Metadata.CreationTimestamp); err == nil {
		j.Created = float64(at.Unix())
	}
	if reason := j.askCards(asked); reason != "" {
		note(&l.Notes, "pod %s %s: left out", name, reason)
		return nil
	}
	if j.CPUMilli > mostMilli || j.MemoryMiB > mostMiB || j.GPUMemoryMiB > mostMiB {
		return &InputError{l.File, line, fmt.Sprintf("pod %s asks for too much", name)}
	}
	return l.add(j)
}

// asked is what one container asks: its requests, and limits where it has no
// request.
func (c *kubeContainer) asked() (map[string]float64, error) {
	out := map[string]float64{}
	for _, amounts := range []map[string]string{c.Resources.Limits, c.Resources.Requests} {
		for key, text := range amounts {
			amount, err := quantity(text)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", key, err)
			}
			out[key] = amount
		}
	}
	return out, nil
}

// asked adds up a pod's requests as the scheduler does: the containers and
// sidecars together, or the largest of the containers that run before them.
func (o *kubeObject) asked() (map[string]float64, error) {
	total, before := map[string]float64{}, map[string]float64{}
	sidecars := map[string]float64{}
	for _, c := range o.Spec.InitContainers {
		amounts, err := c.asked()
		if err != nil {
			return nil, err
		}
		for key, amount := range amounts {
			if c.RestartPolicy == "Always" {
				sidecars[key] += amount
				total[key] += amount
			} else {
				before[key] = math.Max(before[key], amount+sidecars[key])
			}
		}
	}
	for _, c := range o.Spec.Containers {
		amounts, err := c.asked()
		if err != nil {
			return nil, err
		}
		for key, amount := range amounts {
			total[key] += amount
		}
	}
	for key, amount := range before {
		total[key] = math.Max(total[key], amount)
	}
	for key, text := range o.Spec.Overhead {
		amount, err := quantity(text)
		if err != nil {
			return nil, fmt.Errorf("overhead %s: %w", key, err)
		}
		total[key] += amount
	}
	return total, nil
}

// models reads which card models the pod accepts.
func (o *kubeObject) models(c *kubePods) []string {
	var out []string
	for key, value := range o.Spec.NodeSelector {
		if key == labelProduct {
			out = []string{value}
		} else {
			c.selectors[key] = true
		}
	}
	for _, term := range o.Spec.Affinity.Node.Required.Terms {
		for _, e := range term.Expressions {
			if e.Key == labelProduct && e.Operator == "In" {
				out = append(out, e.Values...)
			} else {
				c.selectors[e.Key] = true
			}
		}
	}
	return out
}

// askCards fills in what the pod wants of cards; the reason says what cannot
// be planned.
func (j *Job) askCards(asked map[string]float64) string {
	whole, shares := asked[resourceWhole], asked[resourceShare]
	var profiles []string
	partitions := 0.0
	for key, amount := range asked {
		if name, ok := strings.CutPrefix(key, resourceMIG); ok && amount > 0 {
			profiles = append(profiles, strings.ReplaceAll(name, ".me", "+me"))
			partitions += amount
		}
	}
	sorts := 0
	for _, n := range []float64{whole, shares, partitions} {
		if n > 0 {
			sorts++
		}
	}
	memory, cores := asked[resourceMemory], asked[resourceCores]
	switch {
	case sorts > 1:
		return "asks for GPUs in more than one way"
	case whole > placement.MaxCards || shares > placement.MaxCards:
		return fmt.Sprintf("asks for more than %d GPUs", placement.MaxCards)
	case whole > 0:
		j.GPUs, j.GPUMilli = int(whole), placement.WholeCard
	case partitions > 1:
		return "asks for several partitions"
	case partitions > 0:
		j.GPUs, j.Profile = 1, profiles[0]
	case shares == 0 && memory+cores == 0:
	case shares <= 1 && cores > 100:
		return "asks for more cores than a GPU has"
	case shares > 1 && (memory > 0 || cores > 0 && cores != 100):
		return "asks for parts of several GPUs"
	default:
		j.GPUs, j.GPUMilli = max(1, int(shares)), placement.WholeCard
		if memory > 0 || cores > 0 {
			// Memory without cores is a promise of memory alone.
			j.GPUMilli = max(1, int64(math.Ceil(cores*10)))
			j.GPUMemoryMiB = int64(math.Ceil(memory / (1 << 20)))
		}
	}
	return ""
}

// quantity reads a Kubernetes amount such as 250m, 4, 1.5e3, 8Gi or 500M.
func quantity(text string) (float64, error) {
	number := strings.TrimRight(text, "numkMGTPEi")
	suffix := text[len(number):]
	factors := map[string]float64{
		"": 1, "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
		"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40, "Pi": 1 << 50, "Ei": 1 << 60,
	}
	factor, ok := factors[suffix]
	n, err := strconv.ParseFloat(number, 64)
	switch {
	case err != nil || !ok || math.IsNaN(n) || math.IsInf(n*factor, 0) || strings.ContainsAny(number, "xXpP_"):
		return 0, fmt.Errorf("%q is no amount", text)
	case n < 0:
		return 0, fmt.Errorf("%q is negative", text)
	}
	return n * factor, nil
}
