// SPDX-License-Identifier: Apache-2.0

package silicon

import "testing"

// TestIdentityLasts: scripts, shares and journals name simulated GPUs by UUIDs that they
// had in earlier versions.
func TestIdentityLasts(t *testing.T) {
	for spec, want := range map[string]string{
		"H100-80GB": "GPU-3dcb0f8b-4738-8a98-95f5-90abcb70d4e4",
	} {
		cards, err := ParseSpec(spec, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := cards[0].UUIDString(); got != want {
			t.Errorf("%s is %s, and was %s", spec, got, want)
		}
	}
}
