// SPDX-License-Identifier: Apache-2.0

package core

import (
	"testing"
	"time"
)

// What a client of an agent that was killed was granted, it need not use: until it is back it
// uses nothing that is paid for.
func TestBillAfterRestart(t *testing.T) {
	w, play := played(t)
	second := func() (Bill, ShareView) {
		t.Helper()
		w.core.Bill(w.now, "a")
		was, err := w.core.Share("a")
		if err != nil {
			t.Fatal(err)
		}
		w.now = w.now.Add(time.Second)
		w.core.Bill(w.now, "a")
		is, err := w.core.Share("a")
		if err != nil {
			t.Fatal(err)
		}
		before, after := was.Slots[0].Bill, is.Slots[0].Bill
		if after.Ms-before.Ms != 1000 || after.BookedKiBMs-before.BookedKiBMs != 8<<20*1000 {
			t.Errorf("%+v, then %+v", before, after)
		}
		return Bill{UsedKiBMs: after.UsedKiBMs - before.UsedKiBMs}, is
	}
	play("create a mem 8GiB gpu GPU-a", "attach a 10", "alloc 10 1GiB")
	bill, view := second()
	if used := view.Slots[0].UsedBytes; used < 1<<30 || bill.UsedKiBMs != used>>10*1000 {
		t.Errorf("%+v with %d bytes", bill, used)
	}
	play("restart")
	if bill, view = second(); bill.UsedKiBMs != 0 {
		t.Errorf("%+v of a program that is not back, granted %d bytes", bill, view.Slots[0].UsedBytes)
	}
	play("return 10")
	bill, view = second()
	if used := view.Slots[0].UsedBytes; used < 1<<30 || bill.UsedKiBMs != used>>10*1000 {
		t.Errorf("%+v with %d bytes, when it is back", bill, used)
	}
}
