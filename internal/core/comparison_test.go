// SPDX-License-Identifier: Apache-2.0

package core

import "testing"

// A comparison with the driver of a card of many clients takes many steps, each of which looks at
// few pages, and finds what one alone would; clients come and go between them.
func TestComparisonInSteps(t *testing.T) {
	const many = 500
	w := newCrowded(t, many, 0)
	account := w.account()
	x := NewComparison(crowdedCard, account)
	steps := 0
	for done := false; !done; steps++ {
		w.pages.looks = 0
		if done = w.core.Compare(w.now, x); w.pages.looks > 2*comparedAtOnce && !done {
			t.Errorf("step %d looks at %d pages", steps, w.pages.looks)
		}
		if steps == 1 { // the last goes to the place of the first, which has been compared
			w.core.Died(w.now, 1)
			w.attach("crowd")
		}
	}
	if least := many / comparedAtOnce; steps < least {
		t.Errorf("%d steps, fewer than %d", steps, least)
	}
	unknown := 0
	for _, v := range w.core.ClientsOf("crowd") {
		switch {
		case v.State == Dead: // it was compared when it lived
		case v.DriverBytes == nil:
			unknown++
		case *v.DriverBytes != 1<<30:
			t.Errorf("client %d: the driver shows %d bytes", v.ID, *v.DriverBytes)
		}
	}
	if unknown != 1 {
		t.Errorf("of %d clients nobody knows what the driver shows; of the one that came meanwhile alone it could be", unknown)
	}
	drift := w.core.cardOf(crowdedCard).drift
	w.core.Reconcile(w.now, crowdedCard, account)
	// Which has neither what the one has that died, nor does without what the one holds that came.
	if again := w.core.cardOf(crowdedCard).drift; drift != again+(1<<30-Unit)+Unit {
		t.Errorf("drift %d in steps, %d at once", drift, again)
	}
}

// However many the driver lets go of at once, few are released at a time, and all before long.
func TestReleasedInSteps(t *testing.T) {
	const many = 100
	w := newCrowded(t, many, 0)
	for id := ClientID(1); id <= many; id++ {
		w.core.Died(w.now, id)
	}
	w.core.Drain()
	account := Account{At: w.now.Add(1)}
	account.Index()
	gone := 0
	for more := true; more; {
		more = w.core.ReleaseEnded(account.At, crowdedCard, account)
		n := len(w.core.Drain().GoneClients)
		if gone += n; n > releasedAtOnce {
			t.Errorf("%d at a time", n)
		}
	}
	if gone != many {
		t.Errorf("%d of %d are released", gone, many)
	}
}
