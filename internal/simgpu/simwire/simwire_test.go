// SPDX-License-Identifier: Apache-2.0

package simwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"reflect"
	"testing"
)

// TestSizes: what the package that reads any struct reads of a packet is as long as
// the compiler has it.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		value any
		size  int
	}{
		{Header{}, HeaderSize}, {CardInfo{}, CardSize}, {ProcessInfo{}, ProcessSize}, {EventInfo{}, EventSize}, {ReleaseInfo{}, ReleaseSize},
		{TimeInfo{}, TimeSize}, {RunInfo{}, RunSize}, {ItemInfo{}, ItemSize}, {SlotInfo{}, SlotSize}, {HealthInfo{}, HealthSize},
		{IncidentInfo{}, IncidentSize}, {FaultInfo{}, FaultSize}, {NoticeInfo{}, NoticeSize}, {MIGProfileInfo{}, MIGProfileSize},
		{MIGGPUInfo{}, MIGGPUSize}, {MIGComputeInfo{}, MIGComputeSize}, {TopologyInfo{}, TopologySize}, {RingInfo{}, RingSize},
	} {
		if got := binary.Size(c.value); got != c.size {
			t.Errorf("%T has %d bytes, the header's %d", c.value, got, c.size)
		}
	}
}

// TestRing: the slots of a ring come after its entries and end it, and an entry that is
// read by hand is what the package that reads any struct makes of it.
func TestRing(t *testing.T) {
	if RingOffsetHead != 0 || RingOffsetSlots != RingOffsetEntries+RingEntries*ItemSize || RingOffsetSlots+RingEntries*SlotSize != RingBytes {
		t.Error("the places in a ring do not fit together")
	}
	var entry [ItemSize]byte
	for i := range entry {
		entry[i] = byte(i*7 + 1)
	}
	var want ItemInfo
	if _, err := binary.Decode(entry[:], binary.LittleEndian, &want); err != nil {
		t.Fatal(err)
	}
	if got := DecodeItem(&entry); got != want {
		t.Errorf("an entry reads as %+v, not %+v", got, want)
	}
}

func TestEntries(t *testing.T) {
	list := []ReleaseInfo{{Number: 1, PID: 2}, {Number: 3, Bytes: 4}}
	payload, err := EncodeEntries(list)
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEntries[ReleaseInfo](payload, 2)
	if err != nil || !reflect.DeepEqual(got, list) {
		t.Errorf("decoded %+v, %v", got, err)
	}
	if _, err := DecodeEntries[ReleaseInfo](payload, 1<<31); !errors.Is(err, ErrProtocol) {
		t.Errorf("a count that the payload does not bear out: %v", err)
	}
	if got, err := DecodeEntries[ReleaseInfo](nil, 0); err != nil || len(got) != 0 {
		t.Errorf("no entries: %v, %v", got, err)
	}
}

func TestText(t *testing.T) {
	var field [4]byte
	SetText(field[:], "abcdef")
	if field != [4]byte{'a', 'b', 'c', 0} || Text(field[:]) != "abc" {
		t.Errorf("field %q", field)
	}
	if got := Text([]byte{'x', 'y'}); got != "xy" {
		t.Errorf("unterminated text %q", got)
	}
}

// FuzzDecode: what decodes encodes to the same bytes, and nothing else does.
func FuzzDecode(f *testing.F) {
	good, _ := Encode(Header{Type: Charge, Sequence: 7, Bytes: 512}, nil)
	handle, _ := Encode(Header{Type: IPCOpen}, make([]byte, HandleBytes))
	f.Add(good)
	f.Add(handle)
	f.Add(good[:HeaderSize-1])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, packet []byte) {
		h, payload, err := Decode(packet)
		if err != nil {
			if !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		again, err := Encode(h, payload)
		if err != nil || !bytes.Equal(again, packet) {
			t.Fatalf("%x became %x, %v", packet, again, err)
		}
		for _, decode := range []func() error{
			func() error { _, err := DecodeEntries[CardInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[ProcessInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[EventInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[ReleaseInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[HealthInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[IncidentInfo](payload, h.Count); return err },
			func() error { _, err := DecodeEntries[FaultInfo](payload, h.Count); return err },
		} {
			if err := decode(); err != nil && !errors.Is(err, ErrProtocol) {
				t.Fatalf("error of another kind: %v", err)
			}
		}
	})
}
