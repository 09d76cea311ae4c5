// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"reflect"
	"testing"
	"unsafe"
)

// The Go structs lie exactly as the generator computed for C.
func TestLayout(t *testing.T) {
	offsets := map[string]uintptr{
		"LimitsCard.Flags": LimitsCardOffsetFlags, "LimitsCard.StampNs": LimitsCardOffsetStampNs,
		"LimitsCard.Gated": LimitsCardOffsetGated, "LimitsCard.LeaseEndNs": LimitsCardOffsetLeaseEndNs, "Limits.Name": LimitsOffsetName, "Limits.Card": LimitsOffsetCard,
		"Client.Card": ClientOffsetCard, "ClientCard.Memory": ClientCardOffsetMemory,
		"ClientCard.PeakBytes": ClientCardOffsetPeakBytes,
		"LimitsCard.LeaseWord": LimitsCardOffsetLeaseWord, "LimitsCard.BacklogNs": LimitsCardOffsetBacklogNs,
		"ClientCard.BusyNs": ClientCardOffsetBusyNs, "ClientCard.LateNs": ClientCardOffsetLateNs, "ClientCard.KernelNs": ClientCardOffsetKernelNs,
		"Message.Bytes": MessageOffsetBytes, "Message.Text": MessageOffsetText,
	}
	for _, view := range []any{LimitsCard{}, Limits{}, ClientCard{}, Client{}, Message{}} {
		kind := reflect.TypeOf(view)
		next := uintptr(0)
		for i := range kind.NumField() {
			f := kind.Field(i)
			if f.Offset != next {
				t.Errorf("%s.%s lies at %d, the field before ends at %d", kind.Name(), f.Name, f.Offset, next)
			}
			next = f.Offset + f.Type.Size()
			name := kind.Name() + "." + f.Name
			if want, ok := offsets[name]; ok && want != f.Offset {
				t.Errorf("%s lies at %d, want %d", name, f.Offset, want)
			}
			delete(offsets, name)
		}
	}
	for name := range offsets {
		t.Errorf("%s does not exist", name)
	}
	for name, size := range map[string][2]uintptr{
		"LimitsCard": {unsafe.Sizeof(LimitsCard{}), LimitsCardSize},
		"Limits":     {unsafe.Sizeof(Limits{}), LimitsSize},
		"ClientCard": {unsafe.Sizeof(ClientCard{}), ClientCardSize},
		"Client":     {unsafe.Sizeof(Client{}), ClientSize},
		"Message":    {unsafe.Sizeof(Message{}), MessageSize},
	} {
		if size[0] != size[1] {
			t.Errorf("%s has %d bytes, want %d", name, size[0], size[1])
		}
	}
}
