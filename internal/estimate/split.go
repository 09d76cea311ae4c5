// SPDX-License-Identifier: Apache-2.0

package estimate

import "fmt"

// Setup is what every question has: a model, and what it is to run on.
type Setup struct {
	Model  *Model
	Card   *Datasheet // nil: unknown, so no times
	Cards  int
	Format Format
	Split  Split
	// SplitZeRO says that a ZeRO stage of 0 is meant, too: searches keep it.
	SplitZeRO bool
	// NoLink says that cards reach each other through PCIe alone, whatever
	// their kind could have; PerMachine is how many a machine has (0: 8).
	NoLink     bool
	PerMachine int
	TFLOPS     float64 // the dense rate instead of the card's; 0: the card's
	Measured   map[string]float64
}

// Split is how a model is divided between cards. A zero counts as one, and as
// no sharing of states.
type Split struct {
	TP   int `json:"tp"`
	PP   int `json:"pp"`
	CP   int `json:"cp"`
	EP   int `json:"ep"`
	ZeRO int `json:"zero"`
}

func (s Split) normal() Split {
	return Split{max(s.TP, 1), max(s.PP, 1), max(s.CP, 1), max(s.EP, 1), s.ZeRO}
}

func (s Split) String() string {
	s = s.normal()
	text := fmt.Sprintf("tp %d", s.TP)
	if s.PP > 1 {
		text += fmt.Sprintf(", pp %d", s.PP)
	}
	if s.CP > 1 {
		text += fmt.Sprintf(", cp %d", s.CP)
	}
	if s.EP > 1 {
		text += fmt.Sprintf(", ep %d", s.EP)
	}
	if s.ZeRO > 0 {
		text += fmt.Sprintf(", zero %d", s.ZeRO)
	}
	return text
}

const mostCards = 1 << 20

func (s *Setup) validate() error {
	if s.Model == nil {
		return invalidf("no model")
	}
	if err := s.Model.Validate(); err != nil {
		return err
	}
	if s.Cards < 1 || s.Cards > mostCards {
		return invalidf("%d GPUs are not between 1 and %d", s.Cards, mostCards)
	}
	if s.PerMachine < 0 || s.PerMachine > 1024 {
		return invalidf("%d GPUs in a machine are not between 1 and 1024", s.PerMachine)
	}
	if s.Format.bytes == 0 {
		return invalidf("no precision")
	}
	x := s.Split.normal()
	for _, part := range []struct {
		name  string
		value int
	}{{"tp", s.Split.TP}, {"pp", s.Split.PP}, {"cp", s.Split.CP}, {"ep", s.Split.EP}} {
		if part.value < 0 || part.value > mostCards {
			return invalidf("--%s %d is not between 1 and %d", part.name, part.value, mostCards)
		}
	}
	if x.ZeRO < 0 || x.ZeRO > 3 {
		return invalidf("--zero %d is not 0, 1, 2 or 3", x.ZeRO)
	}
	world := float64(x.TP) * float64(x.PP) * float64(x.CP)
	switch {
	case float64(s.Cards) < world:
		return invalidf("tp %d x pp %d x cp %d are %g GPUs, and there are %d", x.TP, x.PP, x.CP, world, s.Cards)
	case s.Cards%int(world) != 0:
		return invalidf("%d GPUs do not divide into groups of tp %d x pp %d x cp %d", s.Cards, x.TP, x.PP, x.CP)
	}
	if s.Card != nil {
		if err := s.Card.Supports(s.Format); err != nil {
			return err
		}
		if s.TFLOPS != 0 {
			return s.Card.TFLOPSError(s.TFLOPS, s.Format)
		}
	}
	return s.validateShape(x)
}

func (s *Setup) validateShape(x Split) error {
	a := s.Model.Arch
	switch {
	case a == nil:
		if x.TP > 1 || x.PP > 1 || x.CP > 1 || x.EP > 1 {
			return invalidf("%s: how its layers divide is not known: give its shape, or leave tp, pp, cp and ep out", s.Model.called())
		}
	case a.Heads%x.TP != 0:
		return invalidf("--tp %d does not divide the %d heads of %s: %s", x.TP, a.Heads, s.Model.called(), divisors(a.Heads, s.Cards))
	case x.PP > a.Layers:
		return invalidf("--pp %d is more than the %d layers of %s", x.PP, a.Layers, s.Model.called())
	case x.EP > 1 && a.MoE == nil:
		return invalidf("--ep %d: %s has no experts", x.EP, s.Model.called())
	case x.EP > 1 && a.MoE.Experts%x.EP != 0:
		return invalidf("--ep %d does not divide the %d experts of %s", x.EP, a.MoE.Experts, s.Model.called())
	case x.EP > s.Cards/x.PP:
		return invalidf("--ep %d is more than the %d GPUs of a pipeline stage", x.EP, s.Cards/x.PP)
	}
	return nil
}

// divisors lists what would divide.
func divisors(n, most int) string {
	text := "use"
	for d := 1; d <= n && d <= max(most, 1); d++ {
		if n%d == 0 {
			text += fmt.Sprintf(" %d", d)
		}
	}
	return text
}

// replicas is how many copies of the model work on different data.
func (s *Setup) replicas() int {
	x := s.Split.normal()
	return s.Cards / (x.TP * x.PP * x.CP)
}

// stateGroup is over how many cards ZeRO shares: all that hold the same part.
func (s *Setup) stateGroup() int {
	return s.replicas() * max(s.Split.CP, 1)
}

// stage is which end of a pipeline is looked at.
type stage int

const (
	firstStage stage = iota
	lastStage
)

// held is how many parameters a card of a pipeline stage holds before ZeRO
// shares them: those of experts, which have their own group, apart.
func (s *Setup) held(at stage) (dense, experts float64) {
	x, m := s.Split.normal(), s.Model
	if m.Arch == nil {
		return float64(m.Total()), 0
	}
	p := m.Arch.parameters()
	extra := float64(m.Total() - p.total())
	embedding, head := float64(p.embedding+p.positions), float64(p.head)
	if x.PP > 1 {
		if m.Arch.Tied {
			head = float64(p.embedding)
		}
		if at == firstStage {
			head = 0
		} else {
			embedding = 0
		}
	}
	// A stage has whole layers: the largest has one more than the others.
	perStage := float64((m.Arch.Layers + x.PP - 1) / x.PP)
	part := perStage / float64(m.Arch.Layers)
	routed := float64(p.routed())
	matrices := float64(p.linear()) - routed
	undivided := float64(p.total()) - float64(p.embedding+p.positions+p.head) - float64(p.linear())
	dense = (embedding+head)/float64(x.TP) + part*(matrices/float64(x.TP)+undivided+extra/float64(x.TP))
	experts = part * routed / (float64(x.EP) * float64(x.expertTP()))
	return max(dense, 0), experts
}

// expertTP is by how much tensor parallelism divides experts: what expert
// parallelism has not divided already.
func (s Split) expertTP() int {
	x := s.normal()
	if x.EP > 1 {
		return max(x.TP/x.EP, 1)
	}
	return x.TP
}

// expertGroup is over how many cards ZeRO shares experts.
func (s *Setup) expertGroup() float64 {
	x := s.Split.normal()
	return max(1, float64(s.Cards)/float64(x.PP*x.EP*x.expertTP()))
}
