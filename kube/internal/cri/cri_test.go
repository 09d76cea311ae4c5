// SPDX-License-Identifier: Apache-2.0

package cri

import "testing"

func TestParseCDI(t *testing.T) {
	for raw, want := range map[string]CDI{
		"":               {},
		"{}":             {},
		`{"cdiSpecDirs"`: {},
		`{"enableCDI":false,"cdiSpecDirs":["/etc/cdi"]}`: {Known: true, Folders: []string{"/etc/cdi"}},
		`{"enableCDI":true}`:                             {Known: true, Enabled: true},
		`{"cdiSpecDirs":["/a","/b"]}`:                    {Known: true, Enabled: true, Folders: []string{"/a", "/b"}},
	} {
		got := parseCDI(raw)
		if got.Known != want.Known || got.Enabled != want.Enabled || len(got.Folders) != len(want.Folders) {
			t.Errorf("%q: %+v, want %+v", raw, got, want)
		}
	}
}
