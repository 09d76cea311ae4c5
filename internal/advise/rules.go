// SPDX-License-Identifier: Apache-2.0

package advise

import "slices"

// Says is what a rule does to the techniques that it names.
type Says string

// What rules say.
const (
	Denies      Says = "no"         // a hard filter
	Discourages Says = "rather not" // only where no other technique is left
	Notes       Says = "note"
)

// Rule is a piece of advice on techniques, for cases in which all of When hold.
type Rule struct {
	ID         string
	Group      string // of the tree
	When       Conditions
	Techniques []string
	Says       Says
	Text       string
	Source     string
}

// Conditions are words that facts must have, one of each list.
type Conditions []Condition

// Condition is a fact and the words of which it must have one.
type Condition struct {
	Fact string
	Is   []string
}

// when makes conditions from pairs of a fact and a word.
func when(pairs ...string) Conditions {
	var all Conditions
	for i := 0; i+1 < len(pairs); i += 2 {
		at := slices.IndexFunc(all, func(c Condition) bool { return c.Fact == pairs[i] })
		if at < 0 {
			all = append(all, Condition{Fact: pairs[i]})
			at = len(all) - 1
		}
		all[at].Is = append(all[at].Is, pairs[i+1])
	}
	return all
}

func holds(all Conditions, words map[string]string) bool {
	for _, c := range all {
		if !slices.Contains(c.Is, words[c.Fact]) {
			return false
		}
	}
	return true
}

func (r *Rule) holds(words map[string]string) bool { return holds(r.When, words) }

// Where rules come from.
const (
	docPage      = "docs/advise.md"
	docEstimate  = "docs/estimate.md"
	docSecurity  = "docs/security.md"
	docPartition = "docs/partition.md"
	docTime      = "docs/sharing-time.md"
	nvMPS        = "https://docs.nvidia.com/deploy/mps/"
	nvMIG        = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
	nvVGPU       = "https://docs.nvidia.com/vgpu/"
	nvWSL        = "https://docs.nvidia.com/cuda/wsl-user-guide/"
	nvPlugin     = "https://github.com/NVIDIA/k8s-device-plugin"
	k8sDRA       = "https://kubernetes.io/docs/concepts/scheduling-eviction/dynamic-resource-allocation/"
	amdModes     = "https://rocm.docs.amd.com/projects/amdgpu-docs/"
	rowSlicing   = "data/llm-reference.yaml: nos-time-slicing-1, nos-time-slicing-3, nos-time-slicing-7"
	rowMPS       = "data/llm-reference.yaml: nos-mps-1, nos-mps-7"
	rowMIG       = "data/llm-reference.yaml: nos-mig-1g.10gb-7"
	rowLLM       = "data/llm-reference.yaml: aks-4way-rps, pebble-tput"
)

// Groups of the tree, in order.
const (
	groupTenants    = "1. Who shares"
	groupWhere      = "2. Where it runs"
	groupSize       = "3. Does one instance fit one GPU"
	groupHardware   = "4. What the hardware and this version can do"
	groupKubernetes = "5. Kubernetes"
	groupWorkload   = "6. What the workload rules out"
	groupTies       = "7. Between those that are left"
	groupScene      = "8. What limits it, and what matters"
)

// rules are the hard filters, in order, and what workloads rule out.
var rules = []Rule{
	{"T-MPS", groupTenants, when("tenants", "strangers"), []string{MPS}, Denies, "strangers: a fatal fault of one program ends all programs of its MPS server", nvMPS},
	{"T-REPLICAS", groupTenants, when("tenants", "strangers"), []string{Replicas}, Denies, "strangers: replicas separate neither memory nor faults", docPartition},
	{"T-SHARE", groupTenants, when("tenants", "strangers"), []string{Share, Movable}, Denies,
		"strangers: a library in the program's own process enforces a share, and a hostile program can get around it; faults are not isolated", docSecurity},
	{"T-REMOTE", groupTenants, when("tenants", "strangers"), []string{Remote}, Denies, "strangers: programs of several tenants run beside each other on the other machine", docPage},
	{"T-MODES", groupTenants, when("tenants", "strangers"), []string{AMDModes}, Denies, "strangers: partition modes divide a GPU for one owner; AMD does not document them as isolation between tenants", amdModes},
	{"T-WALL", groupTenants, when("tenants", "strangers"), []string{Whole, Passthrough, MIG, VGPU, SRIOV}, Notes, "strangers: hardware or its driver isolates memory and faults here", docPartition},

	{"V-GUEST", groupWhere, when("in", "vm"), []string{Whole, MIG, Share, MPS, Replicas, Movable, AMDModes, Remote, Queue}, Denies,
		"a virtual machine gets a GPU by passthrough, or a part of one as a vGPU or a virtual function", docPartition},
	{"V-HOST", groupWhere, when("in", "container", "in", "kubernetes"), []string{Passthrough, VGPU}, Denies, "this is for virtual machines", docPartition},
	{"V-LICENCE", groupWhere, when("in", "vm", "licence", "no"), []string{VGPU}, Denies, "NVIDIA's vGPU needs a licence (--licences vgpu)", nvVGPU},
	{"V-LINK", groupWhere, when("in", "vm", "one-card", "no"), []string{Passthrough}, Notes, "NVLink inside a guest needs passthrough, or a vGPU type of the whole frame buffer", nvVGPU},

	{"F-SEVERAL", groupSize, when("one-card", "no"), []string{MIG, VGPU, Share, MPS, Replicas, SRIOV, AMDModes, Movable}, Denies,
		"one instance takes several GPUs: whole ones with their link, all or none; NCCL does not run across MIG instances", nvMIG},
	{"F-REMOTE", groupSize, when("one-card", "no"), []string{Remote}, Denies, "GPUs that work on one thing wait for each other, and a network of calls is too slow for that", docPage},
	{"S-LESS", groupSize, when("share-size", "too-small"), []string{Share, MPS, Movable}, Denies, "a share of {share} is smaller than weights and context, {least}", docEstimate},

	{"H-WSL", groupHardware, when("wsl", "yes"), []string{MPS}, Denies, "WSL has no MPS daemon", nvWSL},
	{"P-MOVE", groupHardware, when("move", "yes"), []string{Movable}, Denies, "{p99} at the 99th percentile is less than one move of a share takes", docPage},
	{"B-MOVABLE", groupHardware, when("movable-built", "no"), []string{Movable}, Denies, "this version of Divvy does not move shares out of a GPU", docPage},
	{"B-REMOTE", groupHardware, when("remote-built", "no"), []string{Remote}, Denies, "this version of Divvy does not reach a GPU of another machine", docPage},
	{"P-ALONE", groupHardware, when("neighbours", "none"), []string{Share, MPS, Replicas, Movable}, Denies,
		"{p99} at the 99th percentile: a token alone takes {alone}, and a busy neighbour takes half of the bandwidth", docEstimate},
	{"P-TIGHT", groupHardware, when("p99", "tight"), []string{Replicas}, Denies, "{p99} at the 99th percentile: replicas take turns as the driver likes, and each waits for all others", rowSlicing},

	{"K-SHARE", groupKubernetes, when("in", "kubernetes", "kubernetes-built", "no"), []string{Share, Movable}, Denies, "pods get shares through divvy-kube, which this version does not have", docPage},
	{"K-REMOTE", groupKubernetes, when("in", "kubernetes", "kubernetes-built", "no"), []string{Remote}, Denies, "pods get remote GPUs through divvy-kube, which this version does not have", docPage},
	{"K-STATIC", groupKubernetes, when("in", "kubernetes", "dra", "before-1.34", "dra", "unknown"), []string{MIG, MPS, Replicas}, Notes,
		"before Kubernetes 1.34 the device plugin of a node has one way of sharing for all its GPUs", nvPlugin},
	{"K-DRA", groupKubernetes, when("dra", "from-1.34"), []string{MIG, Share}, Notes, "from Kubernetes 1.34 on, claims name devices (DRA); parts are made beforehand", k8sDRA},
	{"K-PARTS", groupKubernetes, when("dra", "from-1.36"), []string{MIG, Share}, Notes, "from Kubernetes 1.36 on, a driver may make parts for claims (partitionable devices, consumable capacity)", k8sDRA},

	{"W-LARGE", groupWorkload, when("workload", "large-serve"), []string{Share, MPS, Replicas, Movable, SRIOV, AMDModes}, Denies,
		"serving of large models: decoding waits for memory bandwidth, so a neighbour costs token for token, and the engine batches already", rowLLM},
	{"W-LARGE-SMALL", groupWorkload, when("workload", "small-serve", "size", "large"), []string{Share, MPS, Replicas, Movable}, Denies,
		"{memory} is over half of the largest GPU: that is serving of a large model, which a neighbour slows token for token", rowLLM},
	{"W-LARGE-REMOTE", groupWorkload, when("workload", "large-serve"), []string{Remote}, Denies, "each token is many small calls", docPage},
	{"W-TRAIN", groupWorkload, when("workload", "train"), []string{Share, MPS, Replicas, Movable, MIG, SRIOV, AMDModes, VGPU}, Denies,
		"training of all weights keeps GPU and link busy: a part of a GPU only makes it longer for everybody", docPage},
	{"W-TRAIN-REMOTE", groupWorkload, when("workload", "train"), []string{Remote}, Denies, "synchronous training waits for the slowest call of every step", docPage},
	{"W-TUNE-LARGE", groupWorkload, when("workload", "finetune", "size", "large"), []string{Share, MPS, Replicas, Movable}, Discourages, "{memory} is over half of the largest GPU: a second job does not fit beside it", docEstimate},
	{"W-SMALL-REPLICAS", groupWorkload, when("workload", "small-serve", "workload", "finetune", "workload", "hpc"), []string{Replicas}, Discourages,
		"replicas do not limit memory: the first to ask gets it, and another fails", docPartition},
	{"W-OWNERS-MPS", groupWorkload, when("workload", "small-serve", "tenants", "trusted"), []string{MPS}, Discourages, "several owners: a fatal fault of one ends the others' programs", nvMPS},
	{"W-NOTEBOOK", groupWorkload, when("workload", "notebook", "workload", "ci"), []string{Whole}, Discourages, "idle most of the time: a whole GPU for each stays empty", docPage},
	{"W-VDI", groupWorkload, when("workload", "vdi"), []string{Share, MPS, Replicas, Movable, AMDModes, Remote, Queue, Whole}, Denies, "a desktop needs a display and encoders, which this does not give", nvVGPU},
	{"W-VDI-MIG", groupWorkload, when("workload", "vdi", "display", "no"), []string{MIG}, Denies, "MIG has no display before the RTX PRO GPUs of Blackwell", nvMIG},
	{"W-SELDOM-MIG", groupWorkload, when("workload", "small-serve", "busy", "seldom", "memory", "over"), []string{MIG}, Discourages, "each keeps a fixed part while it is idle", nvMIG},
	{"W-BURST", groupWorkload, when("workload", "burst"), []string{Remote}, Notes, "in the same rack: kernels that are shorter than the way to the other machine and back wait more than they run", docPage},
	{"W-QUEUE", groupWorkload, when("workload", "large-serve", "workload", "notebook", "workload", "edge"), []string{Queue}, Discourages, "people wait for an answer", docPage},
	{"W-QUEUE-BUSY", groupWorkload, when("workload", "small-serve", "busy", "at-once"), []string{Queue}, Discourages, "people wait for an answer, and all are busy at once", docPage},
}

// nudge moves techniques up (below zero) or down among those that a workload
// prefers.
type nudge struct {
	Rule
	Places int
}

// move makes a nudge.
func move(id, group string, conditions Conditions, places int, text, source string, techniques ...string) nudge {
	return nudge{Rule{ID: id, Group: group, When: conditions, Techniques: techniques, Says: Notes, Text: text, Source: source}, places}
}

var nudges = []nudge{
	move("P-SPACE", groupTies, when("p99", "tight"), -60, "{p99} at the 99th percentile leaves no room for turns of 10 ms: a part of its own", rowMIG, MIG),
	move("P-THREADS", groupTies, when("p99", "tight"), -50, "{p99} at the 99th percentile leaves no room for turns of 10 ms: programs run at once, with a limit on processors (--mps-threads)", rowMPS, MPS),
	move("P-TURNS", groupTies, when("p99", "tight"), 40, "{p99} at the 99th percentile leaves no room for turns of 10 ms", docTime, Share),
	move("P-TIME", groupTies, when("p99", "none", "busy", "seldom", "memory", "fits"), -5, "together they need less than the GPU's time, and no latency is promised: turns do", docTime, Share),
	move("C-CHANGES", groupTies, when("changes", "hourly"), 30, "changes by the hour: these change only while they are idle", docPartition, MIG, SRIOV, VGPU),
	move("M-OVER", groupTies, when("memory", "over", "busy", "seldom"), -20, "together they are larger than the GPUs, and seldom busy at once", docPage, Movable),
	move("B-COMPUTE", groupScene, when("bound", "compute"), 0, "limited by computing: a part of the GPU's time (--cores, or --policy weighted, which lends idle time)", docTime, Share),
	move("B-MEMORY", groupScene, when("bound", "memory"), 0, "limited by memory: a part of its bytes (--mem); a share does not divide bandwidth", docTime, Share),
	move("B-BANDWIDTH", groupScene, when("bound", "memory", "p99", "tight"), -5, "a MIG instance has memory channels of its own", nvMIG, MIG),
	move("B-MIXED", groupScene, when("bound", "mixed"), 0, "limited by both: a part of the memory and of the time", docTime, Share),
	move("A-LATENCY", groupScene, when("aim", "latency"), 0, "latency: a share with a higher priority goes first at the next launch (--priority)", docTime, Share),
	move("A-THROUGHPUT", groupScene, when("aim", "throughput"), 0, "throughput: weights lend idle time to others (--policy weighted)", docTime, Share),
	move("A-AVAILABILITY", groupScene, when("aim", "availability"), -40, "availability: a fault stays in its instance", nvMIG, MIG),
	move("A-FAULTS", groupScene, when("aim", "availability"), 40, "availability: a fault of one ends all", nvMPS, MPS),
	move("S-EDGE", groupScene, when("place", "edge"), 0, "at the edge there is one small GPU, and no second one to move programs to while it changes", docPage, Share, SRIOV),
	move("S-CLOUD", groupScene, when("place", "cloud"), 0, "in a cloud, tenants are often strangers: --tenants strangers", docSecurity, MIG, VGPU, Passthrough),
	move("S-CLUSTER", groupScene, when("place", "cluster"), 0, "for a cluster, divvy advise --nodes FILE --pods FILE says what sharing saves", "docs/placement.md", MIG, Share),
}

// Preference is what a workload would have first, second and after that.
type Preference struct {
	ID     string
	When   Conditions
	Order  []string
	Why    string
	Source string
}

// preferences are tried in order; the last one always holds.
var preferences = []Preference{
	{"L-LARGE", when("workload", "large-serve"), []string{Whole, MIG, Passthrough, VGPU}, "large models: memory bandwidth limits decoding, and one engine on whole GPUs uses it best; a MIG instance of half a GPU where model and cache fit", rowLLM},
	{"L-OVER-HALF", when("workload", "small-serve", "size", "large"), []string{Whole, MIG, Passthrough, VGPU}, "over half a GPU is a large model: one engine on whole GPUs", rowLLM},
	{"L-SELDOM", when("workload", "small-serve", "busy", "seldom", "memory", "over"), []string{Movable, Share, Queue, MIG, SRIOV, AMDModes, Whole, Passthrough, VGPU}, "several models, seldom busy at once: they take turns", docPage},
	{"L-OWNERS", when("workload", "small-serve", "tenants", "trusted", "tenants", "strangers"), []string{MIG, Share, VGPU, SRIOV, AMDModes, Whole, Passthrough, MPS}, "many owners: a fault should stay with its owner", nvMIG},
	{"L-SMALL", when("workload", "small-serve"), []string{Share, MPS, MIG, AMDModes, SRIOV, Whole, VGPU, Passthrough, Replicas}, "small models of one owner: their kernels do not fill a GPU", rowMPS},
	{"L-TRAIN", when("workload", "train"), []string{Whole, Passthrough, Queue}, "training of all weights: whole GPUs with their link, all or none", nvMIG},
	{"L-TUNE-LARGE", when("workload", "finetune", "size", "large"), []string{Whole, MIG, Passthrough, VGPU, SRIOV, AMDModes, Queue}, "over half a GPU: one of its own", docEstimate},
	{"L-TUNE", when("workload", "finetune"), []string{Share, MIG, AMDModes, SRIOV, VGPU, Whole, Passthrough, MPS, Replicas, Queue}, "adapters: memory is what limits, and the estimate says how much", docEstimate},
	{"L-NOTEBOOK", when("workload", "notebook"), []string{Share, Movable, MIG, AMDModes, SRIOV, VGPU, Replicas, MPS, Passthrough, Whole}, "notebooks and classes: idle most of the time, equal parts for those that run", docTime},
	{"L-CI", when("workload", "ci"), []string{Share, Replicas, MIG, SRIOV, AMDModes, MPS, Queue, VGPU, Passthrough, Whole}, "tests: short, and started again when they fail", docPartition},
	{"L-HPC", when("workload", "hpc"), []string{MPS, MIG, Share, AMDModes, SRIOV, Whole, VGPU, Passthrough, Queue}, "ranks of one job: MPS is made for them; MIG for jobs that are unrelated", nvMPS},
	{"L-VDI", when("workload", "vdi"), []string{VGPU, Passthrough, SRIOV, MIG}, "desktops: a display, encoders, and a licence for each", nvVGPU},
	{"L-EDGE", when("workload", "edge"), []string{Share, SRIOV, MPS, Replicas, AMDModes, MIG, VGPU, Passthrough, Whole}, "one small GPU: shares; virtual functions on AMD and Intel", docPage},
	{"L-BURST", when("workload", "burst"), []string{Remote, Queue, Share, MIG, Whole, VGPU, Passthrough}, "more work than these GPUs have time for: a GPU nearby, else a queue", docPage},
	{"L-ANY", nil, []string{Share, MIG, Whole}, "", docPage},
}
