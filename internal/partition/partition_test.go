// SPDX-License-Identifier: Apache-2.0

package partition

import (
	"context"
	"errors"
	"strings"
	"testing"
)

// names is a division by names, and what is wanted of it.
type names struct {
	Count int `yaml:"count" json:"count"`
}

func (*names) Validate() error      { return nil }
func (n *names) Layout(Card) string { return strings.Repeat("x", n.Count) }

// naming is a technique in memory.
type naming struct{ Technique }

func (naming) Name() string { return TechniqueReplicas }

func (naming) About() About {
	return About{Want: func() Want { return &names{} }, Division: func() Division { return &names{} }}
}

func divided(count int) Card { return Card{UUID: "GPU-1"}.With(TechniqueReplicas, &names{count}) }

// fakeDriver is one card that stays as it is.
type fakeDriver Card

func (d fakeDriver) Observe(context.Context, string) (Card, error) { return Card(d), nil }
func (fakeDriver) Do(context.Context, string, Step) error          { return errors.New("nothing is to be done") }

type fakeLog struct{ records [][]byte }

func (l *fakeLog) Append(record []byte) error {
	l.records = append(l.records, record)
	return nil
}

// TestOutcomeOfPartOfAPlan: steps that others wait for, and that are taken back, are
// not told as what was planned.
func TestOutcomeOfPartOfAPlan(t *testing.T) {
	card := divided(1)
	log := &fakeLog{}
	if err := write(log, undoing(begin([]CardPlan{{Before: card, After: divided(2)}}))); err != nil {
		t.Fatal(err)
	}
	if outcome, err := Recover(t.Context(), Techniques{naming{}}, fakeDriver(card), log, log.records); err != nil || outcome[card.ID()] != OutcomeUndone {
		t.Errorf("%v %v", outcome, err)
	}
}

// TestFields: a document has the fields of techniques and no others.
func TestFields(t *testing.T) {
	all := Techniques{naming{}}
	s, err := all.ParseState([]byte("schema: " + SchemaState + "\ncards: [{uuid: a, replicas: {count: 3}}, {uuid: b, replicas: null}]"))
	if err != nil || s.Cards[0].Layout() != "xxx" || s.Cards[1].Layout() != "whole" {
		t.Errorf("%+v, %v", s, err)
	}
	for _, text := range []string{"{uuid: a, mig: true}", "{uuid: a, replicas: {count: 1, more: 2}}", "{uuid: a, replicas: x}"} {
		if s, err := all.ParseState([]byte("schema: " + SchemaState + "\ncards: [" + text + "]")); err == nil {
			t.Errorf("%s: %+v", text, s)
		}
	}
	for _, text := range []string{"{replicas: {count: 1}, vfio: {}}", "{replicas: {more: 2}}", "{match: {more: 2}, replicas: {count: 1}}", "{replicas: null}", "{}"} {
		if g, err := all.ParseGoal([]byte("schema: " + SchemaGoal + "\ncards: [" + text + "]")); err == nil {
			t.Errorf("%s: %+v", text, g)
		}
	}
}
