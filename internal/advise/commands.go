// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// names are what instances are called, by workload.
var names = map[string]string{
	"large-serve": "engine", "small-serve": "model", "train": "train", "finetune": "tune", "notebook": "notebook", "ci": "test", "hpc": "rank", "vdi": "desktop", "edge": "app", "burst": "job",
}

func (c *question) name(i int) string {
	name := names[c.f.Workload]
	if name == "" {
		name = "job"
	}
	if c.f.Count == 1 {
		return name
	}
	return fmt.Sprintf("%s-%d", name, i+1)
}

// target makes commands for shares work on simulated cards, where these are meant.
func (c *question) target() string {
	if c.inv.Simulated != "" {
		return " --simulate=" + c.inv.Simulated
	}
	return ""
}

// commands set a technique up and undo it, and say how programs come to it.
func (c *question) commands(s state) (do, undo []string, use string) {
	if c.pods() {
		return c.forPods(s)
	}
	switch s.technique {
	case Share, Movable:
		return c.shares(s, nil)
	case MPS:
		return c.underMPS(s)
	case Whole, Queue:
		return c.whole(s)
	case Remote:
		return []string{}, []string{}, "divvy run --remote HOST -- COMMAND"
	}
	return c.divided(s)
}

// pods says that vendors' device plugins hand GPUs out.
func (c *question) pods() bool { return c.f.In == "kubernetes" && !c.inv.Built.Kubernetes }

// forPods is what the vendors' device plugins give to pods: Divvy divides GPUs,
// the plugin is what hands them out.
func (c *question) forPods(s state) (do, undo []string, use string) {
	vendor := c.inv.Cards[s.plan.per[0].card].Vendor
	resource := map[string]string{"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "intel": "gpu.intel.com/i915"}[vendor]
	if resource == "" {
		resource = "the resource of its vendor's device plugin"
	}
	p := s.plan.per[0]
	switch s.technique {
	case MIG:
		do, undo, _ = c.divided(s)
		return do, undo, fmt.Sprintf("NVIDIA's device plugin with MIG_STRATEGY=mixed; pods ask for nvidia.com/mig-%s: 1", p.what)
	case AMDModes, SRIOV:
		do, undo, _ = c.divided(s)
		return do, undo, "the vendor's device plugin offers each part; pods ask for " + resource + ": 1"
	case Replicas:
		if vendor == "intel" {
			return []string{}, []string{}, fmt.Sprintf("Intel's device plugin with -shared-dev-num %d; pods ask for %s: 1", max(p.n, 2), resource)
		}
		return []string{}, []string{}, fmt.Sprintf("the configuration of NVIDIA's device plugin, sharing.timeSlicing.resources: name nvidia.com/gpu, replicas %d", max(p.n, 2))
	case MPS:
		return []string{}, []string{}, fmt.Sprintf("the configuration of NVIDIA's device plugin, sharing.mps.resources: name nvidia.com/gpu, replicas %d", max(p.n, 2))
	case Queue:
		return []string{}, []string{}, fmt.Sprintf("jobs that ask for %s: %d wait for each other", resource, c.f.Cards)
	}
	return []string{}, []string{}, fmt.Sprintf("pods ask for %s: %d", resource, c.f.Cards)
}

// shares declares one share an instance.
func (c *question) shares(s state, more func(p placed) string) (do, undo []string, use string) {
	i := 0
	for _, p := range s.plan.per {
		for range p.n {
			command := "divvy share create " + c.name(i)
			flag := " --mem "
			if s.technique == Movable {
				flag = " --mem-max "
			}
			if p.bytes >= 1<<20 {
				command += flag + mebibytes(p.bytes)
			}
			command += c.time(s, p)
			if more != nil {
				command += more(p)
			}
			if len(c.inv.Cards) > 1 {
				command += " --gpu " + c.inv.Cards[p.card].ID
			}
			do = append(do, command+c.target())
			undo = append(undo, "divvy share delete "+c.name(i)+c.target())
			i++
		}
	}
	return do, undo, "divvy run --share " + c.name(0) + c.target() + " -- COMMAND"
}

// mebibytes writes an amount in whole MiB, up.
func mebibytes(bytes uint64) string {
	mib := (bytes + 1<<20 - 1) >> 20
	if mib%1024 == 0 {
		return fmt.Sprintf("%dGiB", mib/1024)
	}
	return fmt.Sprintf("%dMiB", mib)
}

// time says how a share has the card's time.
func (c *question) time(s state, p placed) string {
	if s.technique == MPS {
		return ""
	}
	fixed := c.f.Bound == "compute" || c.f.Bound == "mixed" || c.f.Tenants != "one" && c.f.Workload == "small-serve"
	first := c.f.Aim == "latency" || c.f.Stage == "serve" || c.f.Stage == "validate"
	flags := ""
	switch {
	case fixed && c.f.Aim != "throughput":
		flags = fmt.Sprintf(" --cores %d", max(100/max(p.n, 1), 1))
	case c.f.Workload == "notebook", c.f.Workload == "ci":
		flags = " --policy equal"
	case first, c.f.Aim == "throughput", c.f.Workload == "finetune", c.f.Workload == "small-serve", c.f.Workload == "edge":
		flags = " --policy weighted"
	}
	if first {
		flags += " --priority 10"
	}
	return flags
}

// partition applies a goal given as rules, one line a card.
func (c *question) partition(rules []string) string {
	flags := ""
	if c.inv.Simulated != "" {
		flags = " --driver-dir " + c.inv.Standin + " --journal " + simulatedFolder + "/partition.journal"
	}
	return "divvy partition apply -" + flags + " <<'EOF'\nschema: divvy.partition/v1\ncards:\n" + strings.Join(rules, "\n") + "\nEOF"
}

// simulatedFolder is where the simulator of partitions has its socket.
const simulatedFolder = `"${XDG_RUNTIME_DIR:-/tmp}"/divvy-advice`

// simulator starts simulated cards that can be divided.
func (c *question) simulator() (do, undo []string) {
	if c.inv.Simulated == "" {
		return nil, nil
	}
	return []string{
			"mkdir -m 700 " + simulatedFolder,
			"export DIVVY_SIMULATOR=" + simulatedFolder + "/simulator.sock",
			"divvy simulate --gpus " + c.inv.Simulated + ` --socket "$DIVVY_SIMULATOR" >` + simulatedFolder + "/simulator.log 2>&1 & echo $! >" + simulatedFolder + "/simulator.pid",
			`until [ -S "$DIVVY_SIMULATOR" ]; do sleep 0.1; done`,
		}, []string{
			"kill $(cat " + simulatedFolder + "/simulator.pid)", "rm -rf " + simulatedFolder,
		}
}

// match names a card in a goal.
func (c *question) match(i int) string {
	x := c.inv.Cards[i]
	if c.inv.Simulated != "" || x.Match == "" {
		return fmt.Sprintf("{index: [%d]}", i)
	}
	if strings.HasPrefix(x.Match, "GPU-") {
		return fmt.Sprintf("{uuid: [%s]}", x.Match)
	}
	return fmt.Sprintf("{address: [\"%s\"]}", x.Match)
}

// divided are techniques of the hardware: a goal, and the goal that undoes it.
func (c *question) divided(s state) (do, undo []string, use string) {
	var want, back []string
	for _, p := range s.plan.per {
		rule, reverse := c.goal(s.technique, p)
		want = append(want, c.rule(p.card, rule))
		back = append(back, c.rule(p.card, reverse))
	}
	start, end := []string(nil), []string(nil)
	switch s.technique {
	case MIG:
		start, end = c.simulator()
	case Passthrough:
		start, end = c.makeWhole(s)
	}
	do, undo = append(start, c.partition(want)), append([]string{c.partition(back)}, end...)
	switch s.technique {
	case MIG:
		use = "CUDA_VISIBLE_DEVICES=MIG-... COMMAND, with a UUID that divvy partition show prints; for containers, divvy cdi generate --class part"
	case Passthrough, VGPU, SRIOV:
		if c.f.In == "vm" {
			do = append(do, "divvy partition show -o libvirt")
			use = "put the printed elements into the guest's domain"
		} else {
			use = "give containers the device files of a function: divvy devices -o tree"
		}
	case Replicas:
		use = "podman run --device divvy.dev/replica=" + c.inv.Cards[s.plan.per[0].card].ID + "-1 IMAGE"
	case AMDModes:
		use = "give containers the device files of a part: divvy devices -o tree"
	}
	return do, undo, use
}

// rule is one card's in a goal.
func (c *question) rule(i int, rule string) string {
	return "  - match: " + c.match(i) + "\n    " + rule
}

// goal is the rule of one card, and the one that undoes it: parts that were there
// stay.
func (c *question) goal(technique string, p placed) (rule, reverse string) {
	x := &c.inv.Cards[p.card]
	switch technique {
	case MIG:
		return "mig: {enabled: true, devices: " + together(x.Parts[MIG], p.what, p.n) + "}", migBefore(x)
	case Replicas:
		return fmt.Sprintf("replicas: {count: %d}", max(p.n, 2)), "replicas: {count: 0}"
	case VGPU:
		return "vgpu: {devices: " + together(x.Parts[VGPU], p.what, p.n) + "}", "vgpu: {devices: " + together(x.Parts[VGPU], "", 0) + "}"
	case SRIOV:
		on, _ := functions(x.Can["sriov"].Current)
		return fmt.Sprintf("sriov: {vfs: %d}", max(on, p.n)), fmt.Sprintf("sriov: {vfs: %d}", on)
	case Passthrough:
		return "vfio: {enabled: true}", "vfio: {enabled: false}"
	case AMDModes:
		return "amd: {compute: " + p.what + "}", "amd: {compute: " + cmp.Or(x.Can["compute-partition"].Current, "SPX") + "}"
	case MPS:
		return "mps: {enabled: true}", "mps: {enabled: false}"
	}
	return "", ""
}

// together writes parts that are there and new ones of a kind, as goals do.
func together(there map[string]int, kind string, n int) string {
	all := map[string]int{}
	maps.Copy(all, there)
	if n > 0 {
		all[kind] += n
	}
	var words []string
	for _, name := range slices.Sorted(maps.Keys(all)) {
		words = append(words, fmt.Sprintf("%s: %d", name, all[name]))
	}
	return "{" + strings.Join(words, ", ") + "}"
}

// migBefore is the rule by which a card's MIG is as it was.
func migBefore(x *Card) string {
	if x.Can["mig"].Current != "on" {
		return "mig: {enabled: false}"
	}
	return "mig: {enabled: true, devices: " + together(x.Parts[MIG], "", 0) + "}"
}

// underMPS starts a daemon on each card, and declares shares that it holds.
func (c *question) underMPS(s state) (do, undo []string, use string) {
	daemon, back, _ := c.divided(s)
	shares, gone, use := c.shares(s, func(p placed) string {
		return fmt.Sprintf(" --mps-threads %d", max(100/max(p.n, 1), 1))
	})
	use += "; nvidia-smi -c EXCLUSIVE_PROCESS keeps off programs that miss the daemon"
	return append(daemon, shares...), append(gone, back...), use
}

// whole gives cards undivided: one share promises all of each. To strangers, and
// where shares are not for a card, its device files are given, and no others.
func (c *question) whole(s state) (do, undo []string, use string) {
	shared := c.f.Tenants != "strangers" || c.inv.Simulated != ""
	for _, p := range s.plan.per {
		shared = shared && c.inv.Cards[p.card].Can["share"].Can == "yes"
	}
	if shared {
		for i, p := range s.plan.per {
			name := names[c.f.Workload]
			if len(s.plan.per) > 1 {
				name = fmt.Sprintf("%s-%d", name, i+1)
			}
			command := "divvy share create " + name
			if x := c.inv.Cards[p.card]; x.FreeBytes >= 1<<20 {
				command += " --mem " + fmt.Sprintf("%dMiB", x.FreeBytes>>20)
			}
			if len(c.inv.Cards) > 1 {
				command += " --gpu " + c.inv.Cards[p.card].ID
			}
			do = append(do, command+c.target())
			undo = append(undo, "divvy share delete "+name+c.target())
		}
		use = "divvy run --share " + strings.Fields(do[0])[3] + c.target() + " -- COMMAND"
		if c.f.Cards > 1 {
			use = "the shares keep others off these GPUs; the job itself runs on all of them"
		}
		if s.technique == Queue {
			use = "divvy run --share " + strings.Fields(do[0])[3] + c.target() + " -- COMMAND, one after the other"
		}
		return do, undo, use
	}
	do, undo = c.makeWhole(s)
	undo = append([]string{"rm -f /etc/cdi/divvy.dev-card_*.json"}, undo...)
	id := c.inv.Cards[s.plan.per[0].card].ID
	return append(do, "divvy cdi generate --class card"), undo, "podman run --device divvy.dev/card=" + id + " IMAGE"
}

// makeWhole undivides the cards of a plan that are divided.
func (c *question) makeWhole(s state) (do, undo []string) {
	var want, back []string
	named := map[int]bool{}
	for _, p := range s.plan.per {
		for _, i := range c.alsoChanged(p.card) {
			if rule, reverse := c.undivided(i); rule != "" && !named[i] {
				named[i] = true
				want, back = append(want, c.rule(i, rule)), append(back, c.rule(i, reverse))
			}
		}
	}
	if want == nil {
		return nil, nil
	}
	return []string{c.partition(want)}, []string{c.partition(back)}
}

// alsoChanged are the cards that change when one is made whole: those of its XGMI
// hive, where that takes another memory mode.
func (c *question) alsoChanged(i int) []int {
	x := &c.inv.Cards[i]
	if modeParts[x.Can["compute-partition"].Current] > 1 && otherMemory(x) {
		return c.joined(i)
	}
	return []int{i}
}

// undivided is the rule that makes a card whole if it is divided, and the one
// that divides it as before.
func (c *question) undivided(i int) (rule, reverse string) {
	x := &c.inv.Cards[i]
	mode := x.Can["compute-partition"].Current
	switch {
	case onMIG(x):
		return "mig: {enabled: false}", migBefore(x)
	case modeParts[mode] < 2:
		return "", ""
	case otherMemory(x):
		return "amd: {compute: SPX, memory: NPS1}", "amd: {compute: " + mode + ", memory: " + x.Can["memory-partition"].Current + "}"
	}
	return "amd: {compute: SPX}", "amd: {compute: " + mode + "}"
}
