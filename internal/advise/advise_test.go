// SPDX-License-Identifier: Apache-2.0

package advise

import (
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// products is the MIG table, which the program carries.
var products, _ = mig.Default()

func h100() Card {
	c, _ := migCardOf(products)
	c.ID, c.Match = "GPU-00000000-card", "GPU-00000000-card"
	return c
}

// TestFactsThatExcludeEachOther: each is refused, and names both.
func TestFactsThatExcludeEachOther(t *testing.T) {
	for _, c := range []struct {
		facts Facts
		says  []string
	}{
		{Facts{Workload: "train", Stage: "serve", In: "vm", Kubernetes: "1.36"}, []string{"Kubernetes 1.36", "--in vm"}},
		{Facts{Workload: "notebook", Stage: "pretrain"}, []string{"--stage pretrain", "--workload notebook"}},
		{Facts{Workload: "hpc", Stage: "serve"}, []string{"--stage serve", "--workload hpc"}},
		{Facts{Workload: "vdi", Stage: "finetune"}, []string{"--stage finetune", "--workload vdi"}},
		{Facts{Workload: "edge", Stage: "checkpoint"}, []string{"--stage checkpoint", "--workload edge"}},
		{Facts{Workload: "train", Place: "edge"}, []string{"--place edge", "--workload train"}},
		{Facts{Workload: "games"}, []string{"--workload", "games", "large-serve"}},
		{Facts{Licences: []string{"beer"}}, []string{"--licences", "beer"}},
		{Facts{Tenants: "enemies"}, []string{"--tenants", "strangers"}},
		{Facts{Count: mostCount + 1}, []string{"--count"}},
		{Facts{Cards: mostCards + 1}, []string{"GPUs for one instance"}},
		{Facts{Duty: 101}, []string{"--duty"}},
		{Facts{P99Ms: -1}, []string{"--p99"}},
		{Facts{Price: -1}, []string{"--price"}},
		{Facts{MemoryBytes: 1<<50 + 1}, []string{"2^50"}},
		{Facts{In: "kubernetes", Kubernetes: "2.0"}, []string{"kubernetes:2.0"}},
	} {
		_, err := Advise(c.facts, Inventory{}, nil)
		if !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", c.facts, err)
			continue
		}
		for _, word := range c.says {
			if !strings.Contains(err.Error(), word) {
				t.Errorf("%q does not name %s", err, word)
			}
		}
	}
	if _, err := Advise(Facts{}, Inventory{Cards: make([]Card, mostCards+1)}, nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestTree: every rule has an id of its own and a source, and is in the tree; what
// it speaks of exists.
func TestTree(t *testing.T) {
	tree, seen := Tree(), map[string]bool{}
	for _, r := range Rules() {
		if seen[r.Rule] || strings.ContainsAny(r.Text, "{}") || r.Source == "" || !strings.Contains(tree, "["+r.Rule+"]") {
			t.Errorf("%s: twice, without a source, or not in the tree", r.Rule)
		}
		seen[r.Rule] = true
	}
	words := newCase(Facts{}, Inventory{}).words
	for _, r := range allRules() {
		for _, c := range r.When {
			if _, ok := words[c.Fact]; !ok {
				t.Errorf("%s asks for %s, which no case has", r.ID, c.Fact)
			}
			for _, word := range c.Is {
				if c.Fact != "workload" && said[c.Fact+" "+word] == "" {
					t.Errorf("%s: %s %s is not said", r.ID, c.Fact, word)
				}
			}
			if known := Words(c.Fact); known != nil {
				for _, word := range c.Is {
					if !slices.Contains(known, word) {
						t.Errorf("%s: %s is never %s", r.ID, c.Fact, word)
					}
				}
			}
		}
		for _, technique := range r.Techniques {
			if !slices.Contains(techniques, technique) {
				t.Errorf("%s: no technique %s", r.ID, technique)
			}
		}
		if r.Says == "" || len(r.Techniques) == 0 {
			t.Errorf("%s says nothing", r.ID)
		}
	}
	for _, workload := range workloads {
		if c := newCase(Facts{Workload: workload, Cards: 1, Count: 1, Duty: 100}, Inventory{}); c.row().ID == "L-ANY" {
			t.Errorf("%s has no row", workload)
		}
		if names[workload] == "" {
			t.Errorf("%s has no name", workload)
		}
	}
	picture := Mermaid()
	if strings.Count(picture, `"`)%2 != 0 || strings.ContainsAny(picture, "{}`#") {
		t.Errorf("%s", picture)
	}
	for _, p := range preferences {
		if !strings.Contains(picture, `["`+strings.Join(p.Order, " > ")+`"]`) {
			t.Errorf("%s is not in the picture", p.ID)
		}
	}
	for _, r := range allRules() {
		if words := conditionsInWords(r.When); r.Says != Notes && !strings.Contains(picture, `-->|"`+words+`"|`) {
			t.Errorf("%s is not in the picture", r.ID)
		}
	}
	for _, stage := range stages {
		if n := stageNeeds[stage]; n.Stage != stage || n.Needs == "" || n.Frees == "" || n.How == "" || !strings.Contains(tree, n.Frees) {
			t.Errorf("%s: %+v", stage, n)
		}
		if stageWorkload[stage] == "" {
			t.Errorf("%s counts as no workload", stage)
		}
	}
}

// TestSaysNo: to what is asked for in vain, with the rule, and the next best.
func TestSaysNo(t *testing.T) {
	ada := plainCard // an L4, L40S, A10 or 4090: no MIG
	ada.Can = map[string]Can{"share": {Can: "yes"}, "replicas": {Can: "yes"}, "mps": {Can: "yes"}, "passthrough": {Can: "yes"}, "mig": {Can: "no", Reason: "its model has no MIG"}}
	vgpu := h100()
	vgpu.Can = maps.Clone(vgpu.Can)
	vgpu.Can["vgpu"] = Can{Can: "yes", Options: []string{"NVIDIA A40-12Q: 2"}}
	two := []Card{h100(), h100()}
	two[1].ID, two[1].Match = "GPU-00000001-card", "GPU-00000001-card"
	for _, c := range []struct {
		technique, rule, next string
		facts                 Facts
		cards                 []Card
	}{
		{Share, "W-LARGE", Whole, Facts{Workload: "large-serve", MemoryBytes: 30 << 30}, two},
		{MPS, "W-LARGE", Whole, Facts{Workload: "large-serve", MemoryBytes: 30 << 30}, two},
		{Movable, "W-LARGE", Whole, Facts{Workload: "large-serve"}, two},
		{Replicas, "W-LARGE-SMALL", Whole, Facts{Workload: "small-serve", MemoryBytes: 50 << 30}, two},
		{Remote, "W-LARGE-REMOTE", Whole, Facts{Workload: "large-serve"}, two},
		{Remote, "W-TRAIN-REMOTE", Whole, Facts{Workload: "train"}, two},
		{Share, "W-TRAIN", Whole, Facts{Workload: "train"}, two},
		{MPS, "T-MPS", MIG, Facts{Workload: "small-serve", Tenants: "strangers", Count: 3}, two},
		{Replicas, "T-REPLICAS", MIG, Facts{Workload: "ci", Tenants: "strangers", Count: 3}, two},
		{Share, "T-SHARE", MIG, Facts{Workload: "notebook", Tenants: "strangers", Count: 3}, two},
		{MIG, ruleDevices, Share, Facts{Workload: "notebook", Count: 3}, []Card{ada}},
		{VGPU, "V-HOST", Share, Facts{Workload: "notebook", Licences: []string{"vgpu"}}, []Card{vgpu}},
		{VGPU, "V-LICENCE", Passthrough, Facts{Workload: "vdi", In: "vm"}, []Card{vgpu}},
		{MIG, "F-SEVERAL", Whole, Facts{Workload: "finetune", MemoryBytes: 60 << 30, Cards: 2}, two},
		{Movable, "P-MOVE", Share, Facts{Workload: "small-serve", MemoryBytes: 30 << 30, Count: 2, Duty: 5, P99Ms: 400}, two},
		{Share, "S-LESS", MIG, Facts{Workload: "small-serve", MemoryBytes: 19 << 30, LeastBytes: 17 << 30, ShareBytes: 8 << 30}, two},
		{MPS, "H-WSL", Share, Facts{Workload: "hpc", Count: 2}, []Card{ada}},
	} {
		a, err := Advise(c.facts, Inventory{Cards: c.cards, WSL: c.rule == "H-WSL", Built: Built{Movable: true, Remote: true}}, nil)
		if err != nil {
			t.Fatal(err)
		}
		no := a.Of(c.technique)
		if no.Verdict != No || !slices.ContainsFunc(no.Reasons, func(r Reason) bool { return r.Rule == c.rule }) {
			t.Errorf("%s, %+v: %+v", c.technique, c.facts, no)
		}
		if first := a.First(); first == nil || first.Technique != c.next {
			t.Errorf("instead of %s: %+v, not %s", c.technique, first, c.next)
		}
	}
}

// TestWhenMovesAreBuilt: what this version has not is advised where a version has
// it, and not under a latency that a move breaks.
func TestWhenMovesAreBuilt(t *testing.T) {
	inv := Inventory{Cards: []Card{h100()}, Built: Built{Movable: true, Remote: true}}
	f := Facts{Workload: "small-serve", MemoryBytes: 38 << 30, Count: 5, Duty: 5}
	a, err := Advise(f, inv, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := a.First()
	if first == nil || first.Technique != Movable || len(first.Commands) != 5 || first.Commands[0] != "divvy share create model-1 --mem-max 38GiB --policy weighted" {
		t.Fatalf("%+v", first)
	}
	f.P99Ms = 400
	if a, err = Advise(f, inv, nil); err != nil || a.Of(Movable).Verdict != No || a.Of(Movable).Reasons[0].Rule != "P-MOVE" {
		t.Errorf("%v, %+v", err, a.Of(Movable))
	}
	f.MemoryBytes, f.P99Ms, f.Count = 64<<30, 900, 2
	if a, err = Advise(f, inv, nil); err != nil || a.Of(Movable).Reasons[0].Rule != "P-MOVE" {
		t.Errorf("64 GiB move in a second: %v, %+v", err, a.Of(Movable))
	}
	if a, err = Advise(Facts{Workload: "burst", Count: 3}, inv, nil); err != nil || a.First().Technique != Remote {
		t.Errorf("%v, %+v", err, a.First())
	}
	if n := NeedsOf("wait", inv.Built); !strings.Contains(n.How, "freeze") {
		t.Errorf("%+v", n)
	}
}

// TestWhatIsThereStays: parts that were there are in the new goal, and are what
// undoing leaves.
func TestWhatIsThereStays(t *testing.T) {
	c := h100()
	c.Can = map[string]Can{"mig": {Can: "yes", Current: "on"}, "replicas": {Can: "yes"}, "share": {Can: "no", Reason: "MIG mode is on"}}
	c.Parts = map[string]map[string]int{MIG: {"3g.40gb": 1}}
	a, err := Advise(Facts{Workload: "notebook", MemoryBytes: 8 << 30, Count: 3}, Inventory{Cards: []Card{c}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := a.First()
	if first == nil || first.Technique != MIG || !strings.Contains(first.Commands[0], "{1g.10gb: 3, 3g.40gb: 1}") || !strings.Contains(first.Undo[0], "mig: {enabled: true, devices: {3g.40gb: 1}}") {
		t.Fatalf("%+v", first)
	}
	if a, err = Advise(Facts{Workload: "notebook", MemoryBytes: 8 << 30, Count: 5}, Inventory{Cards: []Card{c}}, nil); err != nil || a.Of(MIG).Verdict != No {
		t.Errorf("five beside 3g.40gb: %v, %+v", err, a.Of(MIG))
	}
	flex := Card{ID: "0000:4d:00.0", Match: "0000:4d:00.0", Name: "Flex", Vendor: "intel", MemoryBytes: 16 << 30, FreeBytes: 16 << 30,
		Can: map[string]Can{"sriov": {Can: "yes", Current: "2 of 31"}}, Parts: map[string]map[string]int{SRIOV: {"": 2}}}
	if a, err = Advise(Facts{Workload: "edge", Count: 2}, Inventory{Cards: []Card{flex}}, nil); err != nil || !strings.Contains(a.First().Commands[0], "vfs: 2}") || !strings.Contains(a.First().Undo[0], "vfs: 2}") {
		t.Errorf("%v, %+v", err, a.First())
	}
	if a, err = Advise(Facts{Workload: "edge", Count: 4}, Inventory{Cards: []Card{flex}}, nil); err != nil || a.Of(SRIOV).Reasons[0].Rule != ruleBusy || !slices.Contains(a.WouldChange, "GPUs that are not divided (divvy partition show): sriov") {
		t.Errorf("%v, %+v", err, a)
	}
	// A card with another's shares is neither divided nor whole.
	c = h100()
	c.Shares, c.FreeBytes = 1, 40<<30
	if a, err = Advise(Facts{Workload: "small-serve", MemoryBytes: 8 << 30, Count: 2}, Inventory{Cards: []Card{c}}, nil); err != nil || a.First().Technique != Share || a.Of(MIG).Verdict != No || a.Of(Whole).Reasons[0].Rule != ruleBusy {
		t.Errorf("%v, %+v", err, a)
	}
}

// TestHive: to make one card of an XGMI hive whole is to change all of them.
func TestHive(t *testing.T) {
	var inv Inventory
	for _, id := range []string{"0000:05:00.0", "0000:27:00.0"} {
		inv.Cards = append(inv.Cards, Card{ID: id, Match: id, Name: "MI300X", Vendor: "amd", MemoryBytes: 192 << 30, FreeBytes: 192 << 30, Linked: 2,
			Can: map[string]Can{"replicas": {Can: "yes"}, "compute-partition": {Can: "yes", Current: "CPX", Options: []string{"SPX", "DPX", "QPX", "CPX"}}, "memory-partition": {Can: "yes", Current: "NPS4"}}})
	}
	a, err := Advise(Facts{Workload: "large-serve"}, inv, nil)
	if err != nil {
		t.Fatal(err)
	}
	first := a.First()
	if first == nil || first.Technique != Whole || strings.Count(first.Commands[0], "amd: {compute: SPX, memory: NPS1}") != 2 || strings.Count(first.Undo[1], "amd: {compute: CPX, memory: NPS4}") != 2 {
		t.Errorf("%+v", first)
	}
	// NPS4 does not go with DPX: the next mode is taken.
	if a, err = Advise(Facts{Workload: "notebook", MemoryBytes: 40 << 30, Count: 4}, inv, nil); err != nil || !strings.Contains(a.First().Commands[0], "{compute: QPX}") {
		t.Errorf("%v, %+v", err, a.First())
	}
	inv.Cards[1].Holder = "python3 (pid 7)"
	if a, err = Advise(Facts{Workload: "large-serve"}, inv, nil); err != nil || a.Of(Whole).Verdict != No || a.Of(Whole).Reasons[0].Rule != ruleBusy {
		t.Errorf("%v, %+v", err, a.Of(Whole))
	}
}

// TestVirtualTypes reads types as divvy devices lists them.
func TestVirtualTypes(t *testing.T) {
	for option, want := range map[string]virtualType{
		"NVIDIA A40-12Q (nvidia-560): 4": {"NVIDIA A40-12Q", 12 << 30, "Q", false, 4},
		"GRID T4-1Q: 0":                  {"GRID T4-1Q", 1 << 30, "Q", false, 0},
		"NVIDIA H200X-1-18C (1414)":      {"NVIDIA H200X-1-18C", 18 << 30, "C", true, -1},
		"NVIDIA H200X-141C (1428)":       {"NVIDIA H200X-141C", 141 << 30, "C", false, -1},
	} {
		if got, ok := vgpuType(option); !ok || got != want {
			t.Errorf("%s: %+v, want %+v", option, got, want)
		}
	}
	for _, option := range []string{"", "A40", "A40-Q", "A40-0Q", "A40-12Q: many", "A40-12Q: -1", "A40-99999Q", "-"} {
		if got, ok := vgpuType(option); ok {
			t.Errorf("%q is a type: %+v", option, got)
		}
	}
}

// TestCosts: rows that are missing leave their sentence out; none is made up.
func TestCosts(t *testing.T) {
	row := func(x ...float64) Measurement { return Measurement{Values: x} }
	rows := map[string]Measurement{"nos-mps-1": row(0.088), "nos-mps-3": row(0.164), "nos-mps-7": row(0.32), "vmware-vgpu": row(94.4, 100)}
	got := Costs(MPS, rows)
	if len(got) != 1 || got[0].Text != "an inference of YOLOS on an A100-80 took 88 ms alone, 164 with two others that saturate the GPU, 320 with six" || got[0].Row != "nos-mps-1, nos-mps-3, nos-mps-7" {
		t.Errorf("%+v", got)
	}
	if got := Costs(VGPU, rows); len(got) != 1 || !strings.Contains(got[0].Text, "94.4 to 100 %") {
		t.Errorf("%+v", got)
	}
	if got := Costs(Replicas, rows); got != nil {
		t.Errorf("%+v", got)
	}
	if got := Costs(SRIOV, rows); len(got) != 1 || got[0] != (Cost{Text: "not known"}) {
		t.Errorf("%+v", got)
	}
	a, err := Advise(Facts{Workload: "notebook", MemoryBytes: 8 << 30, Count: 4, Price: 2.5}, Inventory{Cards: []Card{h100()}}, nil)
	if err != nil || !slices.ContainsFunc(a.First().Costs, func(c Cost) bool { return c.Text == "one GPU instead of 4: 7.50 an hour less" }) {
		t.Errorf("%v, %+v", err, a.First())
	}
}

// TestTimetable: one stage after the other, with what makes it so.
func TestTimetable(t *testing.T) {
	const gib = 1 << 30
	table, end := Timetable("my-model", []Step{
		{Stage: "pretrain", Seconds: 3600, Bytes: 60 * gib, Cards: 8}, {Stage: "checkpoint", Seconds: 120, Bytes: 60 * gib, Cards: 8}, {Stage: "checkpoint", Seconds: 0.001, Bytes: 60 * gib, Cards: 8},
		{Stage: "pretrain", Seconds: 60, Bytes: 60 * gib, Cards: 8},
		{Stage: "finetune", Seconds: 1800, Bytes: 20 * gib, Cards: 1}, {Stage: "wait", Bytes: 20 * gib, Cards: 1}, {Stage: "serve", Bytes: 18 * gib, Cards: 1},
	}, 80*gib)
	var got []string
	for _, s := range table {
		got = append(got, s.Commands...)
	}
	got = append(got, end...)
	want := []string{
		"for i in $(seq 8); do divvy share create my-model-$i --mem 60GiB --cores 100; done",
		"for i in $(seq 8); do divvy share pause my-model-$i; done",
		"for i in $(seq 8); do divvy share resume my-model-$i; done",
		"for i in $(seq 8); do divvy share set my-model-$i --mem 60GiB --cores 100; done",
		"for i in $(seq 8); do divvy share delete my-model-$i; done",
		"divvy share create my-model --mem 20GiB --policy weighted --priority 0",
		"divvy share pause my-model",
		"divvy share resume my-model",
		"divvy share set my-model --mem 18GiB --policy weighted --priority 10",
		"divvy share delete my-model",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
	if last := table[len(table)-1]; last.Start != 3600+120+0.001+60+1800 || last.OthersBytes != 62*gib || last.Others != "62.0 GiB of each GPU, at a lower priority" {
		t.Errorf("%+v", last)
	}
	if first := table[0]; first.Others != "nothing" || first.OthersBytes != 0 {
		t.Errorf("%+v", first)
	}
	if c := Save(112e9, "weights", 1e9); c.Seconds != 112 || !c.Pause {
		t.Errorf("%+v", c)
	}
	if c := Save(1e6, "adapters", 1e9); c.Pause {
		t.Errorf("%+v", c)
	}
}

// TestFleet: the best policy, and the jobs that are better off alone.
func TestFleet(t *testing.T) {
	if _, ok := BestSaving(nil); ok {
		t.Error("the best of none")
	}
	best, ok := BestSaving([]Saving{{Policy: "a", CardsWhole: 100, CardsShared: 60}, {Policy: "b", CardsWhole: 100, CardsShared: 50}, {Policy: "c", CardsWhole: 100, CardsShared: 50}})
	if !ok || best.Policy != "b" || best.Percent() != 50 || (Saving{}).Percent() != 0 {
		t.Errorf("%+v", best)
	}
	jobs := []Asked{{"small", 1, 0.2, false}, {"half", 1, 0.5, false}, {"more", 1, 0.6, false}, {"whole", 1, 1, false}, {"several", 4, 1, false}, {"linked", 1, 0.1, true}, {"none", 0, 0, false}}
	for range 12 {
		jobs = append(jobs, Asked{"again", 1, 1, false})
	}
	got := ShouldNotShare("list", jobs)
	if len(got) != 3 || got[0].Count != 2 || got[1].Count != 13 || len(got[1].Jobs) != mostNamed || got[2].Jobs[0] != "more" {
		t.Errorf("%+v", got)
	}
	for _, alone := range got {
		if !slices.ContainsFunc(rules, func(r Rule) bool { return r.ID == alone.Rule }) {
			t.Errorf("no rule %s", alone.Rule)
		}
	}
}

// TestInstancesOfAnotherGPU: a GPU that could be had besides has the profiles and the
// memory of its product, and no MiB more.
func TestInstancesOfAnotherGPU(t *testing.T) {
	product, ok := products.ByName("NVIDIA H100 80GB HBM3")
	if !ok {
		t.Fatal("the table has no H100")
	}
	for _, name := range []string{"1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb"} {
		p := product.Profiles[product.Index(name)]
		f := Facts{Workload: "small-serve", Tenants: "strangers", Count: p.Most, MemoryBytes: uint64(p.MemoryMiB) << 20}
		const one = "a GPU with MIG, such as an A100 or H100"
		if got := ToAllow(MIG, f, Inventory{Products: products}); got != one {
			t.Errorf("%d instances as large as a %s: %q", p.Most, name, got)
		}
		f.MemoryBytes += 1 << 20
		if got := ToAllow(MIG, f, Inventory{Products: products}); got == one {
			t.Errorf("%d instances larger than a %s: %q", p.Most, name, got)
		}
	}
}
