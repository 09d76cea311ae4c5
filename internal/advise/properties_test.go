// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/race"
)

// rounds is how many random cases are tried. The race detector, under which the
// tests of all packages run, makes them ten times as slow; make fuzz tries them all.
var rounds = flag.Int("rounds", 100_000, "random cases")

func tries() int {
	if testing.Short() || race.Enabled {
		return min(*rounds, 500)
	}
	return *rounds
}

func pick[T any](r *rand.Rand, list ...T) T { return list[r.IntN(len(list))] }

// maybe is a word of a fact, or none.
func maybe(r *rand.Rand, fact string) string {
	if r.IntN(3) == 0 {
		return ""
	}
	return pick(r, Words(fact)...)
}

// randomFacts are any that make sense one by one.
func randomFacts(r *rand.Rand) Facts {
	f := Facts{Workload: maybe(r, "workload"), Tenants: maybe(r, "tenants"), In: maybe(r, "in"), Bound: maybe(r, "bound"), Aim: maybe(r, "aim"),
		Place: maybe(r, "place"), Changes: maybe(r, "changes"), Cards: pick(r, 0, 1, 1, 1, 1, 2, 4, 8), Count: pick(r, 0, 1, 1, 2, 3, 5, 7, 12, 40, 300)}
	if r.IntN(4) == 0 {
		f.Stage = maybe(r, "stage")
	}
	if r.IntN(3) > 0 {
		f.MemoryBytes = 1 << (24 + r.IntN(16)) / 3 * uint64(1+r.IntN(3))
		f.LeastBytes = f.MemoryBytes / uint64(1+r.IntN(4))
	}
	if r.IntN(5) == 0 {
		f.ShareBytes = f.MemoryBytes / uint64(1+r.IntN(8))
	}
	if r.IntN(2) == 0 {
		f.P99Ms, f.AloneMs = pick(r, 1.0, 5, 15, 50, 300, 2000), pick(r, 0, 0.5, 10, 100)
	}
	if r.IntN(2) == 0 {
		f.Duty = pick(r, 0.1, 1, 10, 50, 100)
	}
	if f.In == "kubernetes" {
		f.Kubernetes = pick(r, "", "1.29", "1.33", "1.34", "1.36", "1.40")
	}
	if r.IntN(2) == 0 {
		f.Licences = []string{"vgpu"}
	}
	return f
}

var migOf = map[uint64][]Profile{
	40: {{"1g.5gb", 1, 5 << 30, 7}, {"1g.5gb+me", 1, 5 << 30, 1}, {"2g.10gb", 2, 10 << 30, 3}, {"3g.20gb", 3, 20 << 30, 2}, {"7g.40gb", 7, 40 << 30, 1}},
	80: {{"1g.10gb", 1, 10 << 30, 7}, {"1g.20gb", 1, 20 << 30, 4}, {"2g.20gb", 2, 20 << 30, 3}, {"3g.40gb", 3, 40 << 30, 2}, {"4g.40gb", 4, 40 << 30, 1}, {"7g.80gb", 7, 80 << 30, 1}},
}

// randomCard is a card of any vendor, in any state.
func randomCard(r *rand.Rand, n int) Card {
	c := Card{ID: fmt.Sprintf("GPU-%08x-card", n), Name: pick(r, "A", "B"), Vendor: pick(r, "nvidia", "nvidia", "nvidia", "amd", "intel", "mthreads"),
		MemoryBytes: pick[uint64](r, 0, 16, 24, 40, 80, 192) << 30, Linked: pick(r, 1, 1, 2, 8), Can: map[string]Can{}, Parts: map[string]map[string]int{}}
	c.Match = c.ID
	c.FreeBytes = c.MemoryBytes
	answer := func() Can {
		return Can{Can: pick(r, "yes", "yes", "yes", "no", "unknown"), Reason: pick(r, "", "because")}
	}
	for _, name := range []string{"replicas", "passthrough"} {
		c.Can[name] = answer()
	}
	switch c.Vendor {
	case "nvidia":
		c.Can["share"], c.Can["mps"], c.Can["mig"], c.Can["vgpu"], c.Can["sriov"] = answer(), answer(), answer(), answer(), answer()
		c.MIG = migOf[c.MemoryBytes>>30]
		if c.MIG != nil && r.IntN(3) == 0 {
			can := c.Can["mig"]
			can.Current = pick(r, "on", "off")
			c.Can["mig"] = can
			if can.Current == "on" && r.IntN(2) == 0 {
				c.Parts[MIG] = map[string]int{pick(r, c.MIG...).Name: 1}
			}
		}
		can := c.Can["vgpu"]
		can.Options = pick(r, nil, []string{"NVIDIA A40-12Q: 2", "NVIDIA A40-4Q: 0"}, []string{"NVIDIA H200X-141C (1428)", "NVIDIA H200X-1-18C (1414)"}, []string{"odd", "-Q: 1", "NVIDIA X-xQ"})
		c.Can["vgpu"] = can
	case "amd":
		c.Can["compute-partition"] = answer()
		can := c.Can["compute-partition"]
		can.Current, can.Options = pick(r, "SPX", "CPX", "DPX"), pick(r, nil, []string{"SPX", "DPX", "QPX", "CPX"}, []string{"SPX"})
		c.Can["compute-partition"] = can
		c.Can["memory-partition"] = Can{Can: "yes", Current: pick(r, "", "NPS1", "NPS4")}
		c.Can["sriov"] = answer()
	case "intel":
		c.Can["sriov"] = answer()
	}
	if can := c.Can["sriov"]; can.Can == "yes" {
		on := pick(r, 0, 0, 2)
		can.Current = fmt.Sprintf("%d of %d", on, pick(r, 2, 7, 31))
		c.Can["sriov"] = can
		if on > 0 {
			c.Parts[SRIOV] = map[string]int{"": on}
		}
	}
	if r.IntN(6) == 0 {
		c.Shares, c.FreeBytes = 1+r.IntN(3), c.MemoryBytes/uint64(1+r.IntN(8))
	}
	if r.IntN(6) == 0 {
		c.Holder = "python3 (pid 7)"
	}
	return c
}

func randomInventory(r *rand.Rand) Inventory {
	inv := Inventory{Products: products, WSL: r.IntN(8) == 0, Built: Built{Movable: r.IntN(2) == 0, Remote: r.IntN(2) == 0, Kubernetes: r.IntN(2) == 0}}
	for n := range pick(r, 0, 1, 1, 2, 4, 8) {
		inv.Cards = append(inv.Cards, randomCard(r, n))
	}
	return inv
}

// allowed says the hard filters again, one by one: what may be given at all.
func allowed(f *Facts, inv *Inventory, technique string) string {
	of := func(names ...string) bool { return slices.Contains(names, technique) }
	fits := len(inv.Cards) == 0 || slices.ContainsFunc(inv.Cards, func(c Card) bool { return c.MemoryBytes == 0 || c.MemoryBytes >= f.MemoryBytes })
	switch {
	case f.Tenants == "strangers" && !of(Whole, Passthrough, MIG, VGPU, SRIOV, Queue):
		return "no wall between strangers"
	case f.In == "vm" && !of(Passthrough, VGPU, SRIOV), f.In != "vm" && of(Passthrough, VGPU):
		return "of guests and hosts"
	case of(VGPU) && !slices.Contains(f.Licences, "vgpu"):
		return "vGPU without a licence"
	case (f.Cards > 1 || !fits) && !of(Whole, Passthrough, Queue):
		return "parts for what takes several"
	case of(MPS) && inv.WSL, of(Movable) && !inv.Built.Movable, of(Remote) && !inv.Built.Remote:
		return "what this machine or version has not"
	case f.In == "kubernetes" && !inv.Built.Kubernetes && of(Share, Movable, Remote):
		return "pods without divvy-kube"
	case f.Workload == "large-serve" && !of(Whole, Passthrough, MIG, VGPU, Queue):
		return "sharing for serving of a large model"
	case f.Workload == "train" && !of(Whole, Passthrough, Queue):
		return "parts for training"
	case f.Workload == "vdi" && !of(VGPU, Passthrough, SRIOV, MIG):
		return "a desktop without a display"
	case of(Movable) && f.P99Ms > 0 && f.P99Ms < 500:
		return "over-commit under a latency below one move"
	case of(Replicas) && f.P99Ms > 0 && f.P99Ms < 2*f.AloneMs+20:
		return "replicas under a tight latency"
	case of(Share, MPS, Movable) && f.P99Ms > 0 && f.P99Ms < 2*f.AloneMs && f.Duty*float64(f.Count) >= 100:
		return "busy neighbours under a latency that one of them breaks"
	case f.ShareBytes > 0 && f.ShareBytes < f.LeastBytes && of(Share, MPS, Movable):
		return "a share that is smaller than context and weights"
	}
	return ""
}

var (
	ruled  = regexp.MustCompile(`uuid: \[(\S+)\]}\n +(\w+): `)
	needed = map[string]string{"mig": "mig", "vgpu": "vgpu", "vfio": "passthrough", "mps": "mps", "replicas": "replicas", "sriov": "sriov", "amd": "compute-partition"}
)

// able says that divvy devices lets each card that commands change be changed so.
func able(inv *Inventory, c *Choice) string {
	lacks := func(id, need string) string {
		at := slices.IndexFunc(inv.Cards, func(x Card) bool { return x.ID == id })
		if can := inv.Cards[at].Can[need].Can; can != "yes" {
			return fmt.Sprintf("%s takes %s of %s, %s", c.Technique, need, id, can)
		}
		return ""
	}
	text := strings.Join(c.Commands, "\n")
	for _, words := range ruled.FindAllStringSubmatch(text, -1) {
		if wrong := lacks(words[1], needed[words[2]]); wrong != "" {
			return wrong
		}
	}
	for _, words := range target.FindAllStringSubmatch(text, -1) {
		if wrong := lacks(words[1], "share"); wrong != "" {
			return wrong
		}
	}
	need := map[string]string{MIG: "mig", VGPU: "vgpu", Passthrough: "passthrough", Share: "share", MPS: "mps", Replicas: "replicas", SRIOV: "sriov", AMDModes: "compute-partition", Movable: "share"}[c.Technique]
	if need != "" && !slices.ContainsFunc(inv.Cards, func(x Card) bool { return x.Can[need].Can == "yes" }) {
		return fmt.Sprintf("%s, and no card can", c.Technique)
	}
	return ""
}

var (
	promise = regexp.MustCompile(`share create \S+ --mem (\d+)(GiB|MiB)`)
	target  = regexp.MustCompile(`--gpu (\S+)`)
)

// promised says that shares promise no more than is free, and each what is needed.
func promised(f *Facts, inv *Inventory, c *Choice) string {
	sum := map[string]uint64{}
	for _, command := range c.Commands {
		words := promise.FindStringSubmatch(command)
		if words == nil {
			continue
		}
		n, err := strconv.ParseUint(words[1], 10, 64)
		if err != nil {
			return err.Error()
		}
		bytes := n << map[string]int{"GiB": 30, "MiB": 20}[words[2]]
		id := ""
		if len(inv.Cards) == 1 {
			id = inv.Cards[0].ID
		} else if at := target.FindStringSubmatch(command); at != nil {
			id = at[1]
		}
		sum[id] += bytes
		if c.Technique != Whole && c.Technique != Queue && bytes < f.MemoryBytes {
			return fmt.Sprintf("%s promises %d of %d", command, bytes, f.MemoryBytes)
		}
	}
	for id, bytes := range sum {
		at := slices.IndexFunc(inv.Cards, func(x Card) bool { return x.ID == id })
		// Each share is rounded up to a MiB.
		if x := &inv.Cards[at]; x.MemoryBytes > 0 && bytes > x.FreeBytes+uint64(len(c.Commands))<<20 {
			return fmt.Sprintf("%d promised on %s, which has %d", bytes, id, x.FreeBytes)
		}
	}
	return ""
}

// TestProperties: on random facts and inventories no hard filter is broken, nothing
// is advised that divvy devices says a card cannot, equal inputs give equal answers,
// and what is impossible as asked says what would make it possible.
func TestProperties(t *testing.T) {
	rules := map[string]bool{}
	for _, r := range Rules() {
		rules[r.Rule] = true
	}
	r := rand.New(rand.NewPCG(20, 1))
	advised, impossible := 0, 0
	for n := range tries() {
		f, inv := randomFacts(r), randomInventory(r)
		f, err := f.Complete()
		if err != nil {
			continue
		}
		advised++
		ask := func() Advice { return weigh(f, inv) }
		if a := ask(); n%10 == 0 || a.First() == nil { // what would change it takes long
			ask = func() Advice {
				a, err := Advise(f, inv, nil)
				if err != nil {
					t.Fatal(err)
				}
				return a
			}
		}
		a := ask()
		fail := func(format string, args ...any) {
			t.Fatalf("%s\nfacts %+v\ninventory %+v\nchoices %+v", fmt.Sprintf(format, args...), a.Facts, inv, a.Choices)
		}
		if b := ask(); !reflect.DeepEqual(a, b) {
			fail("another answer: %+v", b)
		}
		if len(a.Choices) != len(Techniques()) {
			fail("%d techniques", len(a.Choices))
		}
		firsts, last := 0, First
		for i := range a.Choices {
			c := &a.Choices[i]
			if verdictOrder[c.Verdict] < verdictOrder[last] || c.Verdict == Second && last == Second {
				fail("%s after %s", c.Verdict, last)
			}
			last = c.Verdict
			for _, reason := range c.Reasons {
				if !rules[reason.Rule] || reason.Text == "" || reason.Source == "" || strings.ContainsAny(reason.Text, "{}") {
					fail("reason %+v", reason)
				}
			}
			switch c.Verdict {
			case No:
				if len(c.Reasons) == 0 || len(c.Commands)+len(c.Undo) > 0 {
					fail("no to %s without a reason, or with commands", c.Technique)
				}
				continue
			case First:
				firsts++
			}
			for _, wrong := range []string{allowed(&a.Facts, &inv, c.Technique), able(&inv, c), promised(&a.Facts, &inv, c)} {
				if wrong != "" {
					fail("%s: %s", c.Technique, wrong)
				}
			}
			if len(c.Undo) > 0 != (len(c.Commands) > 0) {
				fail("%s: %d commands, %d to undo them", c.Technique, len(c.Commands), len(c.Undo))
			}
		}
		switch {
		case firsts > 1 || (firsts == 0) != (a.First() == nil):
			fail("%d first", firsts)
		case firsts == 0:
			if impossible++; len(a.WouldChange) == 0 {
				fail("nothing would make it possible")
			}
		}
	}
	if advised < tries()/2 || impossible < tries()/50 {
		t.Errorf("%d advised, %d of them impossible, of %d", advised, impossible, tries())
	}
}

// TestSmallestChange: what makes an impossible wish possible does so, no fewer
// changes do, and no smaller one.
func TestSmallestChange(t *testing.T) {
	r := rand.New(rand.NewPCG(20, 2))
	possible := func(a Advice) bool { return a.First() != nil }
	n := 0
	for range tries() / 20 {
		f, inv := randomFacts(r), randomInventory(r)
		f, err := f.Complete()
		if err != nil || possible(weigh(f, inv)) {
			continue
		}
		n++
		all := changesOf(&f, &inv)
		changes := smallest(f, inv, all, possible)
		if changes == nil || !possible(otherwise(f, inv, changes)) {
			t.Fatalf("%s does not make it possible: %+v, %+v", inWordsOf(changes), f, inv)
		}
		if len(changes) > 1 {
			for _, c := range all {
				if possible(otherwise(f, inv, []made{{c, c.most}})) {
					t.Fatalf("%s, and %s would do: %+v, %+v", inWordsOf(changes), c.words(c.most), f, inv)
				}
			}
		}
		if c := changes[0]; len(changes) == 1 && c.n > 1 {
			if c.n--; possible(otherwise(f, inv, []made{c})) {
				t.Fatalf("%s, and less would do: %+v, %+v", inWordsOf(changes), f, inv)
			}
		}
		for i := range changes {
			if without := slices.Delete(slices.Clone(changes), i, i+1); possible(otherwise(f, inv, without)) {
				t.Fatalf("%s, and not all of it is needed: %+v, %+v", inWordsOf(changes), f, inv)
			}
		}
	}
	if n < tries()/1000 {
		t.Errorf("%d were impossible", n)
	}
}
