// SPDX-License-Identifier: Apache-2.0

package health

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

func must(t testing.TB) Policy {
	t.Helper()
	p, err := Default()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// The table as it was decided.
func TestDefault(t *testing.T) {
	p := must(t)
	for class, xids := range map[Class][]uint64{
		Application: {13, 31, 32, 43, 45, 68, 94, 137},
		Watch:       {63, 92, 154, 1, 999},
		Drain:       {46, 48, 109, 110, 136, 140, 143, 155, 156, 158},
		Reset:       {62, 95, 119, 120},
		Hardware:    {54, 64, 74, 79, 142, 144, 145, 146, 147, 148, 149, 150},
	} {
		for _, xid := range xids {
			if f := p.Of(xid); f.Class != class || f.Advice == "" || f.Source == "" {
				t.Errorf("XID %d is %+v, want class %s", xid, f, class)
			}
		}
	}
	want := map[Class]Rule{
		Application: {}, Watch: {}, Slowed: {}, Drain: {true, 10 * time.Minute}, Reset: {true, 10 * time.Minute}, Hardware: {true, 0},
	}
	if !reflect.DeepEqual(p.Rules, want) {
		t.Errorf("rules are %v, want %v", p.Rules, want)
	}
}

func TestWith(t *testing.T) {
	p := must(t)
	own, err := p.With([]byte("classes: {watch: {action: cordon, lift: 1h}}\nxids:\n  13: {class: hardware}\n  77: {class: drain, advice: ours, source: here}\n"))
	if err != nil {
		t.Fatal(err)
	}
	if own.Of(13).Class != Hardware || own.Of(77) != (Fault{Drain, "ours", "here"}) || own.Of(48) != p.Of(48) || own.Rules[Watch] != (Rule{true, time.Hour}) {
		t.Errorf("%+v", own)
	}
	if p.Of(13).Class != Application || p.Rules[Watch].Cordon {
		t.Error("the built-in one has changed")
	}
	if same, err := p.With(nil); err != nil || !reflect.DeepEqual(same, p) {
		t.Errorf("an empty file: %v", err)
	}
}

func TestBadFiles(t *testing.T) {
	p := must(t)
	for text, want := range map[string]string{
		"- a": "is not fields with values", "policy: {}": `unknown field "policy"`, "classes: {worse: {action: note}}": `unknown class "worse": there are application`,
		"classes: {drain: {action: reset}}": `neither note nor cordon`, "classes: {drain: {lift: 10m}}": "no action", "classes: {drain: {action: cordon}}": "needs lift",
		"classes: {drain: {action: cordon, lift: soon}}": `"soon"`, "classes: {drain: {action: cordon, lift: -1h}}": `"-1h"`, "classes: {drain: {action: note, lift: 1h}}": "lift is of a cordon",
		"classes: {drain: {action: note, then: x}}": `unknown field "then"`, "classes: {drain: [note]}": "is not fields", "xids: {x: {class: drain}}": "not the number of an XID",
		"xids: {0: {class: drain}}": "not the number", "xids: {5: {advice: none}}": "no class", "xids: {5: {class: bad}}": `unknown class "bad"`, "xids: {5: {class: {}}}": "not a single value",
		"xids: {5: {class: drain}, 5: {class: watch}}": "twice", "xids: {5: {class: drain, more: 1}}": `unknown field "more"`,
		"xids: {5: {class: drain, advice: " + strings.Repeat("x", maxText+1) + "}}": "longer than", "a: &x 1\nb: *x": "aliases", strings.Repeat(" ", maxFileBytes+1): "longer than",
	} {
		own, err := p.With([]byte(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.60q: %v, want %s", text, err, want)
		}
		if !reflect.DeepEqual(own, p) {
			t.Errorf("%.60q changed the policy", text)
		}
	}
}

// Whatever a file says, every class has a rule, and every fault a class.
func FuzzWith(f *testing.F) {
	p := must(f)
	f.Add([]byte("classes: {watch: {action: cordon, lift: 1h}}\nxids:\n  13: {class: hardware}\n"))
	f.Add([]byte("xids: {48: {class: watch, advice: a, source: b}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		own, err := p.With(raw)
		if err != nil && strings.ContainsRune(err.Error(), '\n') {
			t.Errorf("an error of several lines: %v", err)
		}
		for _, c := range Classes() {
			rule, ok := own.Rules[c]
			if !ok || rule.LiftAfter < 0 || rule.LiftAfter > maxLift || !rule.Cordon && rule.LiftAfter != 0 {
				t.Errorf("class %s: %+v", c, rule)
			}
		}
		if len(own.Rules) != len(Classes()) {
			t.Errorf("%d rules", len(own.Rules))
		}
		for xid, fault := range own.Faults {
			if _, ok := own.Rules[fault.Class]; !ok || xid == 0 {
				t.Errorf("XID %d: %+v", xid, fault)
			}
		}
	})
}
