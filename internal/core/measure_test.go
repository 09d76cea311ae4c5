// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"
	"time"
)

// What a client says is saved when it says something else than when it was asked before,
// whoever has read its page meanwhile.
func TestMeasureSavesWhatChanges(t *testing.T) {
	w := newCrowded(t, 3, 0)
	measure := func() (saved []ClientID, busy bool) {
		w.core.Drain()
		busy = w.core.Measure(w.now, w.core.ClientIDs())["crowd"]
		return w.core.Drain().SaveWork, busy
	}
	measure()
	if saved, busy := measure(); len(saved) > 0 || busy {
		t.Errorf("saved %v, busy %v, though nothing has changed", saved, busy)
	}
	w.pages.pages[2].slot(0).BusyNs += uint64(time.Second)
	w.now = w.now.Add(time.Second)
	if _, err := w.core.Share("crowd"); err != nil { // reads all pages
		t.Fatal(err)
	}
	if saved, busy := measure(); len(saved) != 1 || saved[0] != 2 || !busy {
		t.Errorf("saved %v, busy %v; client 2 has measured something", saved, busy)
	}
}
