// SPDX-License-Identifier: Apache-2.0

package intel

import (
	"strings"
	"testing"
)

func TestChoice(t *testing.T) {
	for text, want := range map[string]string{"[low] normal high": "low", "low normal [high]": "high", "20": "20", "": "", "[": "[", "] [x]": "x"} {
		if got := Choice(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func FuzzChoice(f *testing.F) {
	f.Add("low [normal] high")
	f.Fuzz(func(t *testing.T, text string) {
		if got := Choice(text); !strings.Contains(text, got) {
			t.Errorf("%q chose %q", text, got)
		}
	})
}
