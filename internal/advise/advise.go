// SPDX-License-Identifier: Apache-2.0

// Package advise chooses how to give GPUs to a workload: whole, divided by hardware,
// shared, or not at all. From facts and an inventory it makes an ordered list of
// techniques, each with a verdict, its reasons by rule, its measured cost, and the
// commands that set it up and undo it.
//
//	advice, err := advise.Advise(facts, inventory, measured)
//
// Rules are data (rules.go): hard filters first, of which any one decides, then what
// a workload prefers. The package is pure; equal inputs give equal answers.
// Non-goals: to change a machine; to guess a cost that has not been measured.
package advise

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/errclass"
	"github.com/divvy-gpu/divvy/internal/mig"
)

// ErrInvalid says that facts make no sense.
var ErrInvalid = errors.New("invalid")

func invalidf(format string, args ...any) error { return errclass.Errorf(ErrInvalid, format, args...) }

// Techniques.
const (
	Whole       = "whole"
	MIG         = "mig"
	VGPU        = "vgpu"
	Passthrough = "passthrough"
	Share       = "share"
	MPS         = "mps"
	Replicas    = "replicas"
	SRIOV       = "sriov"
	AMDModes    = "amd-partition"
	Movable     = "movable"
	Queue       = "queue"
	Remote      = "remote"
)

// techniques in the order of their isolation, the strongest first. It decides where
// no preference does.
var techniques = []string{Whole, Passthrough, MIG, SRIOV, VGPU, AMDModes, Share, MPS, Replicas, Movable, Queue, Remote}

// Techniques lists the names.
func Techniques() []string { return slices.Clone(techniques) }

// inWords says what a technique is.
var inWords = map[string]string{
	Whole: "GPUs undivided", MIG: "instances of NVIDIA's MIG", VGPU: "NVIDIA's virtual GPUs", Passthrough: "whole GPUs for virtual machines",
	Share: "Divvy's shares", MPS: "shares that NVIDIA's MPS holds", Replicas: "several names for one GPU, without limits", SRIOV: "virtual functions",
	AMDModes: "AMD's compute partitions", Movable: "shares that are larger together than the GPU", Queue: "whole GPUs, one job after the other", Remote: "a GPU of another machine",
}

// InWords says what a technique is.
func InWords(technique string) string { return inWords[technique] }

// Verdict is how a technique suits.
type Verdict string

// Verdicts.
const (
	First    Verdict = "first"
	Second   Verdict = "second"
	Possible Verdict = "possible"
	No       Verdict = "no"
)

// Facts are what is asked for. An empty word or a zero is not known.
type Facts struct {
	Workload string `json:"workload"`
	Stage    string `json:"stage,omitempty"`
	Model    string `json:"model,omitempty"`
	// MemoryBytes is what one instance takes of a card, MemoryFrom how that is
	// known; Cards is how many an instance needs.
	MemoryBytes uint64 `json:"memoryBytes,omitempty"`
	MemoryFrom  string `json:"memoryFrom,omitempty"`
	// LeastBytes is what an instance takes before it does anything: weights and
	// context. ShareBytes is a share that was asked for and is smaller than that.
	LeastBytes uint64   `json:"leastBytes,omitempty"`
	ShareBytes uint64   `json:"shareBytes,omitempty"`
	Cards      int      `json:"cardsOfOne"`
	Tenants    string   `json:"tenants"`
	P99Ms      float64  `json:"p99Ms,omitempty"`
	AloneMs    float64  `json:"aloneMs,omitempty"` // latency alone, by the estimate
	Duty       float64  `json:"dutyPercent"`
	Count      int      `json:"count"`
	In         string   `json:"in"`
	Kubernetes string   `json:"kubernetes,omitempty"`
	Licences   []string `json:"licences"`
	Price      float64  `json:"pricePerCardHour,omitempty"`
	Bound      string   `json:"bound,omitempty"`
	Aim        string   `json:"aim,omitempty"`
	Place      string   `json:"place,omitempty"`
	Changes    string   `json:"changes,omitempty"`
}

// Words that facts take.
var (
	workloads = []string{"large-serve", "small-serve", "train", "finetune", "notebook", "ci", "hpc", "vdi", "edge", "burst"}
	stages    = []string{"pretrain", "finetune", "validate", "serve", "checkpoint", "wait"}
	tenants   = []string{"one", "trusted", "strangers"}
	places    = []string{"container", "vm", "kubernetes"}
	bounds    = []string{"compute", "memory", "mixed"}
	aims      = []string{"latency", "throughput", "availability"}
	sites     = []string{"cloud", "edge", "cluster"}
	changes   = []string{"hourly", "rarely"}
	licences  = []string{"vgpu"}
)

// Words lists what a fact can be.
func Words(fact string) []string {
	return slices.Clone(map[string][]string{"workload": workloads, "stage": stages, "tenants": tenants, "in": places, "bound": bounds, "aim": aims, "place": sites,
		"changes": changes, "licences": licences}[fact])
}

// Card is one card of the inventory.
type Card struct {
	ID          string         `json:"id"` // what commands name it by
	Match       string         `json:"-"`  // what partition files name it by: uuid or address
	Name        string         `json:"name"`
	Vendor      string         `json:"vendor"`
	Kind        string         `json:"kind,omitempty"` // in the table of cards
	MemoryBytes uint64         `json:"memoryBytes"`    // 0: unknown
	FreeBytes   uint64         `json:"freeBytes"`      // that may still be promised
	Labelled    bool           `json:"-"`              // its memory is its label's: no driver was asked
	Can         map[string]Can `json:"-"`
	MIG         []Profile      `json:"-"`
	Linked      int            `json:"linked"` // cards that its link joins, itself too
	Shares      int            `json:"-"`      // that an agent has on it
	Holder      string         `json:"-"`      // a program that has it open; empty: none is known
	// Parts are those that are there, by technique and kind: MIG's profiles, vGPU
	// types; virtual functions and passthrough by the empty word.
	Parts map[string]map[string]int `json:"-"`
}

// Can is what `divvy devices` says of one way of dividing a card.
type Can struct {
	Can     string // yes, no, unknown
	Reason  string
	Current string
	Options []string
}

// Profile is a kind of MIG instance.
type Profile struct {
	Name        string
	Slices      int
	MemoryBytes uint64
	Most        int
}

// ProfilesOf are the kinds of instances that a product has.
func ProfilesOf(p *mig.Product) []Profile {
	var all []Profile
	for _, f := range p.Profiles {
		all = append(all, Profile{Name: f.Name, Slices: f.Slices, MemoryBytes: uint64(f.MemoryMiB) << 20, Most: f.Most})
	}
	return all
}

// Inventory is the cards of a machine, and what this version of Divvy can do there.
type Inventory struct {
	Cards []Card
	// Simulated is the list of cards by which commands make the same simulated
	// ones; Standin the folder of their driver.
	Simulated string
	Standin   string
	WSL       bool
	Built     Built
	// Products has the card with MIG that could be had besides; nil: none is named.
	Products *mig.Table
}

// Built says which parts this version of Divvy has.
type Built struct{ Movable, Remote, Kubernetes bool }

// Measurement is a published row, for what techniques cost.
type Measurement struct {
	Values []float64
	Unit   string
	Source string
}

// Reason is why a technique has its verdict.
type Reason struct {
	Rule   string `json:"rule"`
	Text   string `json:"text"`
	Source string `json:"source"`
}

// Cost is what a technique costs; Row names the measurement, and is empty for
// arithmetic and for what has not been measured.
type Cost struct {
	Text string `json:"text"`
	Row  string `json:"row"`
}

// Choice is one technique.
type Choice struct {
	Technique string   `json:"technique"`
	Verdict   Verdict  `json:"verdict"`
	Reasons   []Reason `json:"reasons"`
	Costs     []Cost   `json:"costs"`
	Commands  []string `json:"commands"`
	Undo      []string `json:"undo"`
	// Use is how programs come to it.
	Use string `json:"use,omitempty"`
	// CardsUsed is how many cards it takes for all instances; 0: not known.
	CardsUsed int `json:"cardsUsed,omitempty"`
}

// Advice is the answer.
type Advice struct {
	Schema      string   `json:"schema"`
	Facts       Facts    `json:"facts"`
	Cards       []Card   `json:"cards"`
	Choices     []Choice `json:"choices"`
	Stage       *Needs   `json:"stage,omitempty"`
	Unknown     []string `json:"unknown"`
	WouldChange []string `json:"wouldChange"`
	Guidance    []Reason `json:"guidance"` // where others disagree
}

// Schema of an advice.
const Schema = "divvy.advice/v1"

// Bounds of facts.
const (
	mostCount = 100_000
	mostCards = 4096
)

// Complete fills in what follows from a stage or a default, and says what is
// wrong.
func (f Facts) Complete() (Facts, error) {
	if f.Workload == "" && f.Stage != "" {
		f.Workload = stageWorkload[f.Stage]
	}
	if f.Workload == "" && f.Place == "edge" {
		f.Workload = "edge"
	}
	for _, d := range []struct {
		at        *string
		otherwise string
	}{{&f.Tenants, "one"}, {&f.In, "container"}, {&f.Workload, "small-serve"}} {
		if *d.at == "" {
			*d.at = d.otherwise
		}
	}
	f.Count, f.Cards = max(f.Count, 1), max(f.Cards, 1)
	if f.Duty == 0 {
		f.Duty = 100
	}
	if f.Licences == nil {
		f.Licences = []string{}
	}
	return f, f.validate()
}

func (f *Facts) validate() error {
	for _, w := range []struct {
		flag, value string
		of          []string
	}{{"workload", f.Workload, workloads}, {"stage", f.Stage, stages}, {"tenants", f.Tenants, tenants}, {"in", f.In, places}, {"bound", f.Bound, bounds}, {"aim", f.Aim, aims},
		{"place", f.Place, sites}, {"changes", f.Changes, changes}} {
		if w.value != "" && !slices.Contains(w.of, w.value) {
			return invalidf("--%s %q is none of %s", w.flag, w.value, strings.Join(w.of, ", "))
		}
	}
	for _, l := range f.Licences {
		if !slices.Contains(licences, l) {
			return invalidf("--licences %q is not vgpu", l)
		}
	}
	switch {
	case f.Count > mostCount:
		return invalidf("--count %d is more than %d", f.Count, mostCount)
	case f.Cards > mostCards:
		return invalidf("%d GPUs for one instance are more than %d", f.Cards, mostCards)
	case !(f.Duty > 0 && f.Duty <= 100):
		return invalidf("--duty %g is not between 0 and 100 percent", f.Duty)
	case !(f.P99Ms >= 0 && f.P99Ms <= 1e9) || !(f.AloneMs >= 0 && f.AloneMs <= 1e9):
		return invalidf("--p99 %g ms is not between 0 and 1e9", f.P99Ms)
	case !(f.Price >= 0 && f.Price <= 1e6):
		return invalidf("--price %g is not between 0 and 1e6", f.Price)
	case max(f.MemoryBytes, f.LeastBytes, f.ShareBytes) > 1<<50:
		return invalidf("%d bytes for one instance are more than 2^50", max(f.MemoryBytes, f.LeastBytes, f.ShareBytes))
	case f.Kubernetes != "" && f.In != "kubernetes":
		return invalidf("Kubernetes %s and --in %s exclude each other", f.Kubernetes, f.In)
	case f.Stage != "" && stageWorkload[f.Stage] != "" && contradict(f.Stage, f.Workload):
		return invalidf("--stage %s and --workload %s exclude each other", f.Stage, f.Workload)
	case f.Place == "edge" && f.Workload == "train":
		return invalidf("--place edge and --workload train exclude each other: the small GPU there does not train all weights")
	}
	if f.Kubernetes != "" && minor(f.Kubernetes) < 0 {
		return invalidf("--in kubernetes:%s is not a version like 1.36", f.Kubernetes)
	}
	return nil
}

// minor is the second number of a version 1.N; -1: it is none.
func minor(version string) int {
	n := 0
	if got, err := fmt.Sscanf(version, "1.%d", &n); got != 1 || err != nil || n < 0 || n > 1000 || fmt.Sprintf("1.%d", n) != version {
		return -1
	}
	return n
}

// Advise weighs every technique.
func Advise(f Facts, inv Inventory, measured map[string]Measurement) (Advice, error) {
	f, err := f.Complete()
	if err != nil {
		return Advice{}, err
	}
	if len(inv.Cards) > mostCards {
		return Advice{}, invalidf("%d GPUs are more than %d", len(inv.Cards), mostCards)
	}
	a := weigh(f, inv)
	for i := range a.Choices {
		a.Choices[i].Costs = append(a.Choices[i].Costs, Costs(a.Choices[i].Technique, measured)...)
	}
	a.addMoney()
	a.Unknown = unknowns(f, inv, a.Choices)
	a.Guidance = guidance(f)
	a.WouldChange = whatWouldChange(f, inv, &a)
	return a, nil
}

// weigh is the advice without costs, and without what would change it.
func weigh(f Facts, inv Inventory) Advice {
	c := newCase(f, inv)
	return c.answer(true)
}

// answer is the advice; where it is not for reading, the verdicts alone.
func (c *question) answer(read bool) Advice {
	f, inv := c.f, c.inv
	a := Advice{Schema: Schema, Facts: f, Cards: inv.Cards, Unknown: []string{}, WouldChange: []string{}, Guidance: []Reason{}}
	if a.Cards == nil {
		a.Cards = []Card{}
	}
	for _, s := range c.rank() {
		choice := Choice{Technique: s.technique, Verdict: s.verdict, Reasons: append([]Reason{}, s.reasons...), Costs: []Cost{}, Commands: []string{}, Undo: []string{}}
		if s.verdict != No && read {
			choice.Commands, choice.Undo, choice.Use = c.commands(s)
			choice.CardsUsed = s.plan.cards()
		}
		a.Choices = append(a.Choices, choice)
	}
	if f.Stage != "" {
		needs := NeedsOf(f.Stage, inv.Built)
		a.Stage = &needs
	}
	return a
}

// First is the technique that is advised; nil: none is possible.
func (a *Advice) First() *Choice {
	for i := range a.Choices {
		if a.Choices[i].Verdict == First {
			return &a.Choices[i]
		}
	}
	return nil
}

// Of finds a technique.
func (a *Advice) Of(technique string) *Choice {
	for i := range a.Choices {
		if a.Choices[i].Technique == technique {
			return &a.Choices[i]
		}
	}
	return nil
}

// addMoney says what fewer cards are worth.
func (a *Advice) addMoney() {
	whole := a.Facts.Count * a.Facts.Cards
	for i := range a.Choices {
		c := &a.Choices[i]
		if c.Verdict == No || c.CardsUsed == 0 || c.CardsUsed >= whole || c.Technique == Queue {
			continue
		}
		text := fmt.Sprintf("%s instead of %d", gpus(c.CardsUsed), whole)
		if a.Facts.Price > 0 {
			text += fmt.Sprintf(": %s an hour less", money(float64(whole-c.CardsUsed)*a.Facts.Price))
		}
		c.Costs = append(c.Costs, Cost{Text: text})
	}
}

// gpus counts them.
func gpus(n int) string {
	if n == 1 {
		return "one GPU"
	}
	return fmt.Sprintf("%d GPUs", n)
}

func money(x float64) string {
	if x >= 1000 {
		return fmt.Sprintf("%.0f", math.Round(x))
	}
	return fmt.Sprintf("%.2f", x)
}
