// SPDX-License-Identifier: Apache-2.0

package arbiter

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	terms "github.com/divvy-gpu/divvy/internal/share"
)

// recorded is the trace of half a second with shares of all policies, one of which
// is changed.
func recorded(t testing.TB) []byte {
	t.Helper()
	var trace bytes.Buffer
	c := newCard(9, 300*time.Microsecond)
	c.arbiter.Record("card", func(call Call) {
		line, err := json.Marshal(call)
		if err != nil {
			t.Fatal(err)
		}
		trace.Write(append(line, '\n'))
	})
	all := []Terms{
		{Name: "a", Policy: terms.Fixed, CoresPercent: 30}, {Name: "b", Policy: terms.Weighted, Weight: 2},
		{Name: "c", Policy: terms.Equal, Priority: 1}, {Name: "d", Policy: terms.BestEffort},
	}
	loads := []*load{
		program("a", 3, time.Millisecond, 0), program("b", 1, 50*time.Microsecond, 0),
		program("c", 2, 200*time.Microsecond, 3*time.Millisecond), program("d", 1, 7*time.Millisecond, 0),
	}
	c.at(200*time.Millisecond, func() {
		all[0].CoresPercent = 60
		c.arbiter.Set(c.now, all)
		c.arrange()
	})
	c.at(300*time.Millisecond, func() {
		c.arbiter.Ended(c.now, "b", 1, true)
		c.arbiter.Released(c.now, "b")
		c.arrange()
	})
	c.run(t, all, loads, 500*time.Millisecond)
	return trace.Bytes()
}

// A trace leads another arbiter the same way, and one that is not true does not.
func TestReplay(t *testing.T) {
	trace := recorded(t)
	held := 0
	calls, err := Replay(bytes.NewReader(trace), func(_ Call, a *Arbiter) {
		if a.holder != nil {
			held++
		}
	})
	if err != nil || calls < 500 || held == 0 {
		t.Errorf("%d calls, %d of them with a holder: %v", calls, held, err)
	}
	for name, to := range map[string][2]string{
		"more was used":   {`"Busy":1`, `"Busy":91`},
		"another share":   {`"method":"want","now":`, `"method":"back","now":`},
		"another promise": {`"CoresPercent":60`, `"CoresPercent":61`},
	} {
		if !bytes.Contains(trace, []byte(to[0])) {
			t.Fatalf("%s: the trace has no %s", name, to[0])
		}
		changed := strings.ReplaceAll(string(trace), to[0], to[1])
		if _, err := Replay(strings.NewReader(changed), nil); !errors.Is(err, ErrDiverged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A killed agent may leave a part of a line; the next one begins anew.
func TestReplayOfTwoLives(t *testing.T) {
	trace := recorded(t)
	both := string(trace) + string(trace[:100]) + "\n" + string(trace)
	if _, err := Replay(strings.NewReader(both), nil); err != nil {
		t.Error(err)
	}
	if _, err := Replay(bytes.NewReader(trace[:len(trace)-10]), nil); err != nil {
		t.Errorf("cut off: %v", err)
	}
	lines := strings.SplitAfterN(string(trace), "\n", 3)
	for name, bad := range map[string]string{
		"no beginning": lines[1], "nonsense in between": lines[0] + "{\n" + lines[1], "no configuration": `{"method":"new"}`,
		"no times": `{"method":"new","config":{}}`, "a strange call": lines[0] + `{"card":"card","method":"fly"}`,
	} {
		if _, err := Replay(strings.NewReader(bad), nil); err == nil {
			t.Errorf("%s is taken", name)
		}
	}
}
