// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestChanges(t *testing.T) {
	calm := Condition{CorrectedErrors: Known(uint64(3)), UncorrectedErrors: Known(uint64(0)), Throttled: Known("")}
	hot := Condition{CorrectedErrors: Known(uint64(5)), UncorrectedErrors: Known(uint64(1)), Throttled: Known("thermal"), Troubles: []string{"wedged"}}
	kinds := func(before, now Snapshot) (kinds []string) {
		for _, e := range Changes(before, now) {
			kinds = append(kinds, e.Kind)
		}
		return kinds
	}
	for _, c := range []struct {
		name        string
		before, now Snapshot
		want        []string
	}{
		{"never looked", nil, Snapshot{"a": calm}, nil},
		{"nothing", Snapshot{"a": calm}, Snapshot{"a": calm}, nil},
		{"came and went", Snapshot{"a": calm}, Snapshot{"b": calm}, []string{EventVanished, EventAppeared}},
		{"worse", Snapshot{"a": calm}, Snapshot{"a": hot}, []string{EventUncorrected, EventCorrected, EventThrottled, EventTrouble}},
		{"better, counters reset", Snapshot{"a": hot}, Snapshot{"a": calm}, []string{EventUnthrottled, EventTroubleOver}},
		{"not told any more", Snapshot{"a": hot}, Snapshot{"a": {Troubles: []string{"wedged"}}}, nil},
	} {
		if got := kinds(c.before, c.now); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestUnknownIsNull(t *testing.T) {
	type pair struct{ A, B Fact[int] }
	raw, err := json.Marshal(pair{B: Known(0)})
	if err != nil || string(raw) != `{"A":null,"B":0}` {
		t.Fatalf("%s, %v", raw, err)
	}
	back := pair{A: Known(9)}
	if err := json.Unmarshal(raw, &back); err != nil || back != (pair{B: Known(0)}) {
		t.Errorf("%+v, %v", back, err)
	}
	if s := back.A.String() + " " + back.B.String(); s != "unknown 0" {
		t.Error(s)
	}
}
