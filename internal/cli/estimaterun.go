// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/estimate/reference"
)

// estimateDocument is `divvy estimate train|finetune|serve --json`.
type estimateDocument struct {
	Schema    string           `json:"schema"`
	Kind      string           `json:"kind"`
	Model     estimatedModel   `json:"model"`
	Precision string           `json:"precision"`
	Answers   []estimateAnswer `json:"estimates"`
	Notes     []string         `json:"notes"`
	// Disagree are published figures of the model that are known to be wrong.
	Disagree []disagreement `json:"notMatched"`

	table bool // over common cards: none was meant
}

type estimatedModel struct {
	Name       string          `json:"name"`
	Parameters int64           `json:"parameters"`
	Active     int64           `json:"active"`
	Lower      string          `json:"notUnderstood,omitempty"`
	Terms      []estimate.Term `json:"terms"`
}

type disagreement struct {
	Row    string `json:"row"`
	Value  string `json:"value"`
	Source string `json:"source"`
	Note   string `json:"note"`
}

// estimateAnswer is the estimate for one kind of card.
type estimateAnswer struct {
	Card     string                   `json:"card,omitempty"` // absent: none is known
	Cards    int                      `json:"cards"`
	There    int                      `json:"cardsHere,omitempty"` // that this machine has
	Fewest   bool                     `json:"fewest"`              // the number was looked for
	Fits     estimate.Fit             `json:"fits"`
	Training *estimate.TrainingResult `json:"training,omitempty"`
	Serving  *estimate.ServingResult  `json:"serving,omitempty"`
	Problem  string                   `json:"problem,omitempty"` // why this card cannot
	// Next is the same on twice the cards, where their number was looked for.
	Next *estimate.ServingResult `json:"next,omitempty"`
}

func (x *estimateAnswer) memory() *estimate.Memory {
	if x.Training != nil {
		return &x.Training.Memory
	}
	return &x.Serving.Memory
}

func (x *estimateAnswer) terms() []estimate.Term {
	if x.Training != nil {
		return x.Training.Terms
	}
	return x.Serving.Terms
}

func (x *estimateAnswer) timed() bool {
	return x.Training != nil && x.Training.Timed || x.Serving != nil && x.Serving.Timed
}

// commonCards are what a question without a card is answered for.
var commonCards = []string{"B200-SXM-180GB", "H200-SXM-141GB", "H100-SXM-80GB", "MI300X-192GB", "A100-SXM-80GB", "A100-SXM-40GB", "L40S-48GB", "RTX-4090-24GB", "A10-24GB", "L4-24GB", "T4-16GB"}

// askedCard is a kind of card to estimate for.
type askedCard struct {
	card  *estimate.Datasheet
	there int // on this machine; 0: it was asked for by name
}

func (a *app) estimate(cmd *cobra.Command, f *estimateFlags) error {
	file, err := reference.Default()
	if err != nil {
		return err
	}
	if f.rule != "" {
		for _, flag := range []string{"measured", "explain", "tflops"} {
			if cmd.Flags().Changed(flag) {
				return usage(fmt.Errorf("--rule and --%s exclude each other: another tool's rule has no such terms", flag))
			}
		}
	}
	model, notes, err := a.givenModel(cmd, f, file)
	if err != nil {
		return classOr(err, usage)
	}
	if f.rule != "" {
		return a.estimateRule(f, model)
	}
	cards, table, unknownCard, err := a.askedCards(f, file)
	if err != nil {
		return err
	}
	d := estimateDocument{Schema: "divvy.estimate/v1", Kind: f.kind, Model: estimatedModel{Name: model.Name, Parameters: model.Total(), Active: model.ActiveTotal(),
		Lower: model.Lower, Terms: model.ParameterTerms()}, Notes: append([]string{}, notes...), Answers: []estimateAnswer{}, Disagree: f.disagreements(file, model), table: table}
	var failure error
	for _, c := range cards {
		x, err := f.answer(model, c)
		if err != nil {
			failure = err
			x = estimateAnswer{Problem: err.Error(), Fits: estimate.FitsNot}
			if c.card != nil {
				x.Card = c.card.Name
			}
		}
		d.Answers = append(d.Answers, x)
	}
	if !slices.ContainsFunc(d.Answers, func(x estimateAnswer) bool { return x.Problem == "" }) {
		return usage(failure)
	}
	format, err := f.format(nil)
	if err != nil {
		return usage(err)
	}
	d.Precision = format.Name
	if len(cards) == 1 && cards[0].card != nil {
		if format, err = f.format(cards[0].card); err == nil {
			d.Precision = format.Name
		}
	}
	if f.asJSON {
		err = a.writeJSON(d)
	} else {
		err = a.writeEstimate(f, &d)
	}
	switch {
	case err != nil:
		return err
	case unknownCard != nil: // memory is there, times are not
		return unknownCard
	case model.Lower != "":
		return usage(fmt.Errorf("%s: %s is not understood: that was a lower bound", f.config, model.Lower))
	case f.gpus > 0 && len(d.Answers) == 1 && d.Answers[0].Fits == estimate.FitsNot:
		return &exitError{exitNotAllowed}
	}
	return nil
}

// classOr gives an error a class where it has none.
func classOr(err error, class func(error) error) error {
	if errors.Is(err, errNotThere) || errors.Is(err, errUsage) {
		return err
	}
	return class(err)
}

// askedCards are the kinds of card to estimate for: the one that was named, else
// those of this machine, else common ones. The third result is the error for a
// card that is not known: memory can be told all the same.
func (a *app) askedCards(f *estimateFlags, file *reference.File) ([]askedCard, bool, error, error) {
	if f.gpuModel != "" {
		found := file.CardsNamed(f.gpuModel)
		switch len(found) {
		case 0:
			err := usage(fmt.Errorf("GPU %q is not known: memory alone, no times", f.gpuModel))
			near := "divvy estimate cards lists the known ones"
			if like := file.NearestCards(f.gpuModel); len(like) > 0 {
				near = "did you mean " + strings.Join(like, ", ") + "? " + near
			}
			return []askedCard{{}}, false, withHint(err, near), nil
		case 1:
			return []askedCard{{card: found[0]}}, false, nil, nil
		}
		var cards []askedCard
		for _, c := range found {
			cards = append(cards, askedCard{card: c})
		}
		return cards, false, nil, nil
	}
	machine, err := a.machine("")
	if err != nil {
		return nil, false, nil, err
	}
	var here []askedCard
	for _, d := range machine.Devices {
		for _, c := range file.CardsNamed(d.Name) {
			at := -1
			for i := range here {
				if here[i].card == c {
					at = i
				}
			}
			if at < 0 {
				here = append(here, askedCard{card: c})
				at = len(here) - 1
			}
			here[at].there++
		}
	}
	if len(here) > 0 {
		return here, false, nil, nil
	}
	var common []askedCard
	for _, name := range commonCards {
		for _, c := range file.CardsNamed(name) {
			common = append(common, askedCard{card: c})
		}
	}
	return common, true, nil, nil
}

// answer estimates for one kind of card.
func (f *estimateFlags) answer(model *estimate.Model, c askedCard) (estimateAnswer, error) {
	e := estimate.New()
	x := estimateAnswer{Fewest: f.gpus == 0 && c.card != nil, There: c.there}
	if c.card != nil {
		x.Card = c.card.Name
	}
	if f.kind == ofServing {
		q, err := f.serving(model, c.card)
		if err != nil {
			return x, err
		}
		ask := e.ServeBest
		if x.Fewest {
			ask = e.ServeFewest
		}
		r, err := ask(q)
		x.Serving, x.Cards, x.Fits = &r, r.Cards, r.Memory.Fits
		if err == nil && r.Sequences < 1 && c.card != nil && model.Arch != nil && model.Lower == "" {
			x.Fits = estimate.FitsNot
		}
		if err == nil && x.Fewest && r.Timed && x.Fits != estimate.FitsNot && f.concurrency == 0 {
			q.Cards = 2 * r.Cards
			if next, err := e.ServeBest(q); err == nil && next.Timed {
				next.Terms = []estimate.Term{}
				x.Next = &next
			}
		}
		return x, err
	}
	q, err := f.training(model, c.card)
	if err != nil {
		return x, err
	}
	ask := e.TrainBest
	if x.Fewest {
		ask = e.TrainFewest
	}
	r, err := ask(q)
	x.Training, x.Cards, x.Fits = &r, r.Cards, r.Memory.Fits
	return x, err
}

// disagreements are rows of low confidence that speak of the model and of what is
// estimated: they are kept to show that they are not matched.
func (f *estimateFlags) disagreements(file *reference.File, model *estimate.Model) []disagreement {
	kinds := map[string][]string{ofServing: {"kv_cache", "kv_capacity_tokens"}, ofTraining: {"train_rule_of_thumb", "train_gpu_hours"}, ofTuning: {"train_rule_of_thumb"}}
	out := []disagreement{}
	for i := range file.Rows {
		row := &file.Rows[i]
		m, ok := file.ModelNamed(row.Model)
		if !ok || m.Name != model.Name || row.Confidence != "low" {
			continue
		}
		for _, kind := range kinds[f.kind] {
			if row.Kind == kind {
				out = append(out, disagreement{Row: row.ID, Value: row.Value.Value + " " + row.Unit, Source: file.Sources[row.Source].Title, Note: row.Note})
			}
		}
	}
	return out
}

// estimateRule prints what another tool would say.
func (a *app) estimateRule(f *estimateFlags, model *estimate.Model) error {
	known := false
	for _, r := range estimateRules(f.kind) {
		known = known || r == f.rule
	}
	if !known {
		return usage(fmt.Errorf("--rule %s is not %s", f.rule, strings.Join(estimateRules(f.kind), " or ")))
	}
	format, err := f.format(nil)
	if err != nil {
		return usage(err)
	}
	var says estimate.Said
	if f.rule == "deepspeed" {
		says, err = estimate.DeepSpeedSays(model, f.zero, max(f.gpus, 1), f.offload)
	} else {
		says, err = estimate.AccelerateSays(model, format, f.kind != ofServing)
	}
	if err != nil {
		return usage(err)
	}
	if f.asJSON {
		return a.writeJSON(struct {
			Schema string `json:"schema"`
			Rule   string `json:"rule"`
			Model  string `json:"model"`
			estimate.Said
		}{"divvy.estimate.rule/v1", f.rule, model.Name, says})
	}
	fmt.Fprintf(a.stdout, "%s, by the rule of %s:\n\n", model.Name, says.Tool)
	for _, t := range says.Terms {
		fmt.Fprintf(a.stdout, "  %-22s %10s  %s\n", t.Name, estimate.Figure(t.Mid, t.Unit), oneLine(t.Formula))
	}
	fmt.Fprintln(a.stdout)
	for _, line := range wrapped(says.Leaves, 78) {
		fmt.Fprintln(a.stdout, line)
	}
	return nil
}
