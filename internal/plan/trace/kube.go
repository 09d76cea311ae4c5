// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"cmp"
	"fmt"
	"maps"
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
	labelProduct     = "nvidia.com/gpu.product"
	labelCount       = "nvidia.com/gpu.count"
	labelMemory      = "nvidia.com/gpu.memory"
	labelReplicas    = "nvidia.com/gpu.replicas"
	resourceWhole    = "nvidia.com/gpu"
	resourceMIG      = "nvidia.com/mig-"
	resourceShare    = "divvy.dev/gpu"
	resourceMemory   = "divvy.dev/memory"
	resourceCores    = "divvy.dev/cores"
	resourcePods     = "pods"
	annotationPart   = "gpu-fraction" // of Run:ai and KAI
	annotationPartOf = "gpu-memory"
)

var (
	rackLabels = []string{"topology.kubernetes.io/rack", "divvy.dev/rack"}
	gangLabels = []string{"divvy.dev/gang", "scheduling.x-k8s.io/pod-group", "pod-group.scheduling.sigs.k8s.io"}
)

// vendors give whole GPUs by a resource of their own.
var vendors = []struct {
	resource string
	product  []string // labels
}{
	{resourceWhole, []string{labelProduct}},
	{"amd.com/gpu", []string{"amd.com/gpu.product-name", "beta.amd.com/gpu.product-name"}},
	{"gpu.intel.com/xe", []string{"gpu.intel.com/product"}},
	{"gpu.intel.com/i915", []string{"gpu.intel.com/product"}},
	{"habana.ai/gaudi", nil},
}

// sharings are how others call parts of GPUs: HAMi, and Volcano's device plugin. Memory is
// in MiB.
var sharings = []struct{ cards, memory, percent, cores string }{
	{resourceWhole, "nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"},
	{"volcano.sh/vgpu-number", "volcano.sh/vgpu-memory", "volcano.sh/vgpu-memory-percentage", "volcano.sh/vgpu-cores"},
}

// sums are resources of which a node lists what all its GPUs have together; which of them
// has room, only their own schedulers know.
var sums = []string{
	"aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage",
	"tencent.com/vcuda-core", "tencent.com/vcuda-memory",
	"tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory",
}

// given says that a resource is modelled, or given by something else than the scheduler's
// counting.
func given(name string) bool {
	switch name {
	case "cpu", "memory", resourceShare, resourceMemory, resourceCores:
		return true
	}
	for _, s := range sharings {
		if name == s.memory || name == s.percent || name == s.cores {
			return true
		}
	}
	return name == "nvidia.com/priority" // of HAMi: no amount
}

// addKube takes a Node that can run pods now.
func (l *Nodes) addKube(o *kubeObject, line int, seen map[string]int) error {
	if o.Kind != "Node" {
		return nil
	}
	if l.kube == nil {
		l.kube = map[string]kubeNode{}
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
	has := map[string]float64{}
	counted := placement.Counted{}
	divided := false
	for key, text := range o.Status.Allocatable {
		n, err := quantity(text)
		if err != nil {
			return fail("allocatable %s: %v", key, err)
		}
		has[key] = n
		if !given(key) {
			counted[key] = clamp(n, mostMiB)
		}
		divided = divided || strings.HasPrefix(key, resourceMIG) && n > 0
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
	cards, model := l.cards(name, has, o.Metadata.Labels, count, replicas, divided)
	if cards == 0 && has[resourceShare] > 0 {
		return fail("has %s but no label %s to tell how many GPUs", resourceShare, labelCount)
	}
	if cards > placement.MaxCards {
		return fail("%d GPUs, want at most %d", cards, placement.MaxCards)
	}
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
		CPUMilli: clamp(has["cpu"]*1000, mostMilli), MemoryMiB: clamp(has["memory"]/(1<<20), mostMiB),
		Cards: make([]placement.Card, cards), Counted: counted,
	}
	for i := range n.Cards {
		n.Cards[i] = placement.Card{MemoryMiB: memory, MIG: product}
	}
	l.kube[name] = kubeNode{Labels: withName(o.Metadata.Labels, name), Taints: o.Spec.Taints}
	return l.add(n, line, seen)
}

// withName adds the label that every node has.
func withName(labels map[string]string, name string) map[string]string {
	const host = "kubernetes.io/hostname"
	if _, there := labels[host]; there {
		return labels
	}
	all := maps.Clone(labels)
	if all == nil {
		all = map[string]string{}
	}
	all[host] = name
	return all
}

// cards says how many GPUs a node has, and of which model.
func (l *Nodes) cards(name string, has map[string]float64, labels map[string]string, count, replicas int64, divided bool) (int64, string) {
	for _, v := range vendors {
		n, listed := has[v.resource]
		cards := int64(n) / max(1, replicas)
		model := firstLabel(labels, v.product)
		switch {
		case v.resource == resourceWhole && (divided || has[resourceShare] > 0 && cards == 0 || !listed && count > 0):
			return count, model
		case cards == 0:
			continue
		case v.resource == resourceWhole && replicas > 1:
			note(&l.Notes, "node %s slices its %d GPUs by time: a pod there counts as a whole GPU", name, cards)
		case v.resource == resourceWhole && count > 0 && cards > count:
			cards = count // HAMi: each is given out several times
		}
		return cards, model
	}
	if n := has["volcano.sh/vgpu-number"]; n > 0 {
		return cmp.Or(count, 1), labels[labelProduct]
	}
	return 0, firstLabel(labels, []string{labelProduct})
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

// kubePods is a list of pods while it is read, and what it leaves out.
type kubePods struct {
	pods   []podAt
	seen   map[string]bool
	claims claims
	left   tally
}

type podAt struct {
	*kubeObject
	line int
}

func newKubePods() *kubePods {
	return &kubePods{seen: map[string]bool{}, left: tally{}, claims: newClaims()}
}

// take keeps a pod until all of the list is read: claims may come after it.
func (c *kubePods) take(o *kubeObject, line int) {
	switch o.Kind {
	case "Pod":
		key := o.Metadata.Namespace + "/" + o.Metadata.Name
		if o.Metadata.Name != "" && c.seen[key] {
			c.left["%d pods stand in the list twice: counted once"]++
			return
		}
		c.seen[key] = true
		c.pods = append(c.pods, podAt{o, line})
	case "ResourceClaim", "ResourceClaimTemplate":
		c.claims.take(o)
	case "Node", "ResourceSlice", "DeviceClass":
	default:
		if c.claims.kinds[o.Kind]++; len(c.claims.kinds) > mostKinds {
			delete(c.claims.kinds, o.Kind)
		}
	}
}

// mostKinds bounds what is said of kinds that have no bearing.
const mostKinds = 20

func (c *kubePods) conclude(l *Jobs) error {
	for _, p := range c.pods {
		if err := l.addPod(c, p.kubeObject, p.line); err != nil {
			return err
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(c.claims.kinds)) {
		note(&l.Notes, "%s: %ss in the list have no bearing on a plan", l.File, kind)
	}
	c.left.notes(l.File, &l.Notes)
	return nil
}

// addPod takes a Pod that runs or waits.
func (l *Jobs) addPod(c *kubePods, o *kubeObject, line int) error {
	if o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" {
		c.left["%d finished pods hold nothing and are left out"]++
		return nil
	}
	name := o.Metadata.Namespace + "/" + o.Metadata.Name
	asked, resized, err := o.asked()
	if err != nil {
		return &InputError{l.File, line, fmt.Sprintf("pod %s: %v", name, err)}
	}
	rules := &kubeRules{Selector: o.Spec.NodeSelector, Terms: o.Spec.Affinity.Node.Required.Terms, Tolerations: o.Spec.Tolerations}
	j := Job{Line: line, Node: o.Spec.NodeName, Gang: firstLabel(o.Metadata.Labels, gangLabels), rules: rules, Request: placement.Request{
		Name: name, Tenant: o.Metadata.Namespace, Priority: o.Spec.Priority, Models: rules.models(),
		CPUMilli: int64(math.Ceil(asked["cpu"] * 1000)), MemoryMiB: int64(math.Ceil(asked["memory"] / (1 << 20))),
		Counted: placement.Counted{resourcePods: 1},
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
	for key, n := range asked {
		if n > 0 && !given(key) {
			j.Counted[key] = int64(math.Ceil(math.Min(n, mostMiB)))
		}
	}
	if resized {
		c.left["%d pods are being resized: counted by the most of what they ask, have and are allocated"]++
	}
	c.count(o)
	for _, name := range sums {
		if asked[name] > 0 {
			c.left["%d pods ask for a part of a GPU by "+name+": counted by node, whichever of its GPUs has room"]++
		}
	}
	asked[resourceWhole+" by claims"] = c.claims.cards(c, o)
	if reason := j.askCards(c, asked); reason != "" && j.Node == "" {
		note(&l.Notes, "pod %s %s: left out", name, reason)
		return nil
	} else if reason != "" {
		// It runs, and holds what it holds.
		j.Profile, j.GPUs = "", min(int(asked[resourceShare]), placement.MaxCards)
		if j.GPUMilli = 0; j.GPUs > 0 {
			j.GPUMilli = placement.WholeCard
		}
		note(&l.Notes, "pod %s %s: counted as %d whole GPUs where it runs", name, reason, j.GPUs)
	}
	if j.CPUMilli > mostMilli || j.MemoryMiB > mostMiB || j.GPUMemoryMiB > mostMiB {
		return &InputError{l.File, line, fmt.Sprintf("pod %s asks for too much", name)}
	}
	return l.add(j)
}

// count notes what a pod says of where it runs, and of what it needs, that a plan does not
// consider.
func (c *kubePods) count(o *kubeObject) {
	const notConsidered = ": not considered"
	s := &o.Spec
	is := func(what string, it bool) {
		if it {
			c.left[what+notConsidered]++
		}
	}
	is("%d pods with pod affinity", len(s.Affinity.Pod.Required) > 0)
	is("%d pods with anti-affinity", len(s.Affinity.Anti.Required) > 0)
	is("%d pods with topology spread constraints", slices.ContainsFunc(s.Spread, func(k kubeSpread) bool { return k.WhenUnsatisfiable != "ScheduleAnyway" }))
	is("%d pods with scheduling gates", s.NodeName == "" && len(s.SchedulingGates) > 0)
	is("%d pods for which a node is nominated", s.NodeName == "" && o.Status.Nominated != "")
	is("%d pods with volumes that may be tied to nodes", slices.ContainsFunc(s.Volumes, func(v kubeVolume) bool { return v.Claim != nil || v.Own != nil }))
	is("%d pods with ports of their host", slices.ContainsFunc(slices.Concat(s.Containers, s.InitContainers), func(k kubeContainer) bool {
		for _, p := range k.Ports {
			if p.HostPort > 0 {
				return true
			}
		}
		return false
	}))
	is("%d pods with a part of a GPU by annotation", o.Metadata.Annotations[annotationPart] != "" || o.Metadata.Annotations[annotationPartOf] != "")
}

// models reads which card models the pod accepts.
func (r *kubeRules) models() []string {
	if value, there := r.Selector[labelProduct]; there {
		return []string{value}
	}
	if len(r.Terms) != 1 {
		return nil // what other terms say of other labels decides too
	}
	for _, e := range r.Terms[0].Expressions {
		if e.Key == labelProduct && e.Operator == "In" {
			return e.Values
		}
	}
	return nil
}

// askCards fills in what the pod wants of cards; the reason says what cannot
// be planned.
func (j *Job) askCards(c *kubePods, asked map[string]float64) string {
	whole := asked[resourceWhole+" by claims"]
	for _, v := range vendors {
		whole += asked[v.resource]
	}
	if number := asked["volcano.sh/vgpu-number"]; number > 0 {
		whole += number
	}
	shares := asked[resourceShare]
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
		j.GPUs, j.GPUMilli = int(math.Ceil(whole)), placement.WholeCard
		return j.part(c, asked)
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

// part is what HAMi and the like give of a GPU.
func (j *Job) part(c *kubePods, asked map[string]float64) string {
	for _, s := range sharings {
		memory, percent, cores := asked[s.memory], asked[s.percent], asked[s.cores]
		if asked[s.cards] == 0 || memory+percent+cores == 0 || percent >= 100 && memory == 0 {
			continue // all of the GPU's memory
		}
		if cores > 100 {
			return "asks for more cores than a GPU has"
		}
		if j.GPUs > 1 {
			c.left["%d pods ask for parts of several GPUs: counted as whole ones"]++
			continue
		}
		if memory == 0 && percent == 0 {
			continue // some of its cores, and all of its memory
		}
		if memory == 0 {
			c.left["%d pods ask for a percentage of a GPU's memory: counted as that part of its cores too"]++
			cores = math.Max(cores, percent)
		}
		j.GPUMilli, j.GPUMemoryMiB = max(1, int64(math.Ceil(cores*10))), int64(math.Ceil(math.Min(memory, 2*mostMiB)))
	}
	return ""
}
