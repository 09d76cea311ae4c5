// SPDX-License-Identifier: Apache-2.0

package gpu

import "testing"

func TestParseUUID(t *testing.T) {
	got, err := ParseUUID("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f")
	if err != nil {
		t.Fatal(err)
	}
	for i, b := range got {
		if int(b) != i {
			t.Errorf("byte %d is %d", i, b)
		}
	}
	for _, text := range []string{"", "GPU-", "GPU-0001", "0", "MIG-00010203-0405-0607-0809-0a0b0c0d0e0f"} {
		if _, err := ParseUUID(text); err == nil {
			t.Errorf("accepted %q", text)
		}
	}
}
