// SPDX-License-Identifier: Apache-2.0

package simwire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// headers reads the header and the one it includes.
func headers(t *testing.T) []byte {
	t.Helper()
	var all []byte
	for _, name := range []string{"divvy_sim.h", "divvy_sim_limit.h", "divvy_sim_mig.h"} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "..", "clib", "include", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, raw...)
	}
	return all
}

// TestNumbers compares the constants with the header's.
func TestNumbers(t *testing.T) {
	raw := headers(t)
	defined := map[string]uint64{}
	for _, m := range regexp.MustCompile(`(?m)^#define DIVVY_SIM_(\w+)\s+(\w+)`).FindAllStringSubmatch(string(raw), -1) {
		n, err := strconv.ParseUint(strings.TrimSuffix(m[2], "u"), 0, 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		defined[m[1]] = n
	}
	ours := map[string]uint64{
		"MAGIC": Magic, "VERSION": Version, "PACKET_BYTES": PacketBytes, "PAGE_BYTES": PageBytes, "HANDLE_BYTES": HandleBytes,
		"ALL_CARDS": AllCards, "HELLO": uint64(Hello), "CARD": uint64(Card), "MEMORY": uint64(Memory),
		"PROCESSES": uint64(Processes), "BYE": uint64(Bye), "CHARGE": uint64(Charge), "RELEASE": uint64(Release),
		"ADJUST": uint64(Adjust), "PRESSURE": uint64(Pressure), "ARENA": uint64(Arena), "OBJECT_CREATE": uint64(ObjectCreate),
		"OBJECT_EXPORT": uint64(ObjectExport), "OBJECT_IMPORT": uint64(ObjectImport), "OBJECT_DROP": uint64(ObjectDrop),
		"IPC_EXPORT": uint64(IPCExport), "IPC_OPEN": uint64(IPCOpen), "IPC_REVOKE": uint64(IPCRevoke),
		"RESET": uint64(Reset), "EVENTS": uint64(Events), "RELEASES": uint64(Releases),
		"RING": uint64(Ring), "WAIT": uint64(Wait), "GATE_DONE": uint64(GateDone), "EVENT_RECORD": uint64(EventRecord),
		"EVENT_LOOK": uint64(EventLook), "EVENT_GATE": uint64(EventGate), "TIMES": uint64(Times), "RUNS": uint64(Runs),
		"NOTICE": uint64(Notice), "HEALTH": uint64(Health), "FAULTED": uint64(Faulted), "INCIDENTS": uint64(Incidents),
		"FAULT_INJECT": uint64(FaultInject), "FAULT_CLEAR": uint64(FaultClear), "FAULT_LIST": uint64(FaultList), "FAULT_REPORT": uint64(FaultReport),
		"LAST": LastIncident, "HEALTH_LOST": uint64(HealthLost), "HEALTH_RESET": uint64(HealthReset),
		"FAULT_ACTIVE": uint64(FaultActive), "FAULT_REPORTED": uint64(FaultReported), "ECC_COUNTERS": EccCounters,
		"WAIT_ONE": uint64(WaitOne), "WAIT_ALL": uint64(WaitAll), "NOT_BEFORE": uint64(NotBefore), "ENDS": uint64(Ends),
		"ITEM_KERNEL": uint64(ItemKernel), "ITEM_MARKER": uint64(ItemMarker), "ITEM_GATE": uint64(ItemGate),
		"RING_ENTRIES": RingEntries, "RING_BYTES": RingBytes,
		"OK": uint64(OK), "NO_ROOM": uint64(NoRoom), "HOST": uint64(Host), "INVALID": uint64(Invalid),
		"NOT_FOUND": uint64(NotFound), "OWN": uint64(Own), "MISMATCH": uint64(Mismatch), "LIMIT": uint64(Limit),
		"DENIED": uint64(Denied), "UNKNOWN": uint64(Unknown), "IN_USE": uint64(InUse), "RESOURCES": uint64(Resources), "UNSUPPORTED": uint64(Unsupported),
		"MIG_LIST": uint64(MigList), "MIG_CHANGE": uint64(MigChange), "MIG_USE": uint64(MigUse),
		"MIG_SET_MODE": uint64(MigSetMode), "MIG_CREATE_GPU": uint64(MigCreateGPU), "MIG_DESTROY_GPU": uint64(MigDestroyGPU),
		"MIG_CREATE_COMPUTE": uint64(MigCreateCompute), "MIG_DESTROY_COMPUTE": uint64(MigDestroyCompute), "MIG_ANYWHERE": MigAnywhere,
		"LIMIT_SET": uint64(LimitSet), "LIMIT_GET": uint64(LimitGet), "CAP": uint64(Cap), "NO_LIMIT": NoLimit,
		"TOPOLOGY": uint64(Topology), "LINK_SWITCH": LinkSwitch, "CARD_DEVICE": uint64(CardDevice),
		"ROLE_OBSERVE": uint64(RoleObserve), "ROLE_COMPUTE": uint64(RoleCompute), "ROLE_CONTROL": uint64(RoleControl),
		"PROCESS_COMPUTE": uint64(ProcessCompute), "PROCESS_ALIVE": uint64(ProcessAlive),
		"PROCESS_DETACHED": uint64(ProcessDetached), "PROCESS_DEAD": uint64(ProcessDead),
		"CARD_ECC": uint64(CardECC), "CARD_MIG": uint64(CardMIG), "KINDS": Kinds,
	}
	for name, n := range ours {
		if got, ok := defined[name]; !ok || got != n {
			t.Errorf("%s: %d here, %d in the header (there: %v)", name, n, got, ok)
		}
	}
	// What the machine numbers itself stands in silicon; its test is in simgpu.
	elsewhere := regexp.MustCompile(`^(MAX_CARDS|CONTEXT_BYTES|KIND_\w+|OBJECT_(MEMORY|POOL)|IPC_(MEMORY|EVENT|POINTER)|EVENT_\w+|FAULT_(XID|ECC_SINGLE|ECC_DOUBLE|THERMAL|POWER|CARD_LOST))$`)
	for name := range defined {
		if _, ok := ours[name]; !ok && !elsewhere.MatchString(name) {
			t.Errorf("%s of the header is unknown here", name)
		}
	}
}

// TestLayouts reads the structs of the header and compares each field's name,
// type and order, and the sizes it asserts.
func TestLayouts(t *testing.T) {
	raw := headers(t)
	field := regexp.MustCompile(`(?m)^\t(uint\d+_t|char) (\w+)(?:\[(\w+)\])?;`)
	for name, value := range map[string]any{
		"header": Header{}, "card": CardInfo{}, "process": ProcessInfo{}, "event": EventInfo{}, "release": ReleaseInfo{},
		"time": TimeInfo{}, "run": RunInfo{}, "item": ItemInfo{}, "slot": SlotInfo{}, "health": HealthInfo{}, "incident": IncidentInfo{},
		"fault": FaultInfo{}, "notice": NoticeInfo{},
		"mig_profile": MigProfileInfo{}, "mig_gpu": MigGPUInfo{}, "mig_compute": MigComputeInfo{},
		"topology": TopologyInfo{},
	} {
		body := regexp.MustCompile(`(?s)struct divvy_sim_` + name + ` \{\n(.*?)\n\};`).FindStringSubmatch(string(raw))
		if body == nil {
			t.Errorf("no struct divvy_sim_%s in the header", name)
			continue
		}
		fields := field.FindAllStringSubmatch(body[1], -1)
		typ := reflect.TypeOf(value)
		if len(fields) != typ.NumField() {
			t.Errorf("%s: %d fields in the header, %d here", name, len(fields), typ.NumField())
			continue
		}
		for i, f := range fields {
			ours := typ.Field(i)
			element := ours.Type
			length := ""
			if element.Kind() == reflect.Array {
				length = strconv.Itoa(element.Len())
				element = element.Elem()
			}
			want := map[reflect.Kind]string{reflect.Uint8: "uint8_t", reflect.Uint16: "uint16_t",
				reflect.Uint32: "uint32_t", reflect.Uint64: "uint64_t"}[element.Kind()]
			theirs := strings.Replace(f[1], "char", "uint8_t", 1)
			if f[3] == "DIVVY_SIM_KINDS" {
				f[3] = strconv.Itoa(Kinds)
			}
			if theirs != want || f[3] != length || strings.ToLower(ours.Name) != f[2] {
				t.Errorf("%s: field %d is %q in the header, %s %s here", name, i, f[0], ours.Name, ours.Type)
			}
		}
		asserted := fmt.Sprintf("sizeof(struct divvy_sim_%s) == %d,", name, binary.Size(value))
		if !strings.Contains(string(raw), asserted) {
			t.Errorf("%s: the header does not assert %s", name, asserted)
		}
	}
	for name, pair := range map[string][2]int{
		"header": {HeaderBytes, binary.Size(Header{})}, "card": {CardBytes, binary.Size(CardInfo{})},
		"process": {ProcessBytes, binary.Size(ProcessInfo{})}, "event": {EventBytes, binary.Size(EventInfo{})},
		"release": {ReleaseBytes, binary.Size(ReleaseInfo{})}, "time": {TimeBytes, binary.Size(TimeInfo{})}, "run": {RunBytes, binary.Size(RunInfo{})},
		"item": {ItemBytes, binary.Size(ItemInfo{})}, "slot": {SlotBytes, binary.Size(SlotInfo{})},
		"health": {HealthBytes, binary.Size(HealthInfo{})}, "incident": {IncidentBytes, binary.Size(IncidentInfo{})},
		"fault": {FaultBytes, binary.Size(FaultInfo{})}, "notice": {NoticeBytes, binary.Size(NoticeInfo{})},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s: %d bytes, the constant says %d", name, pair[1], pair[0])
		}
	}
}

// TestRing compares the places in a ring with those the header asserts, and
// reading an entry by hand with the package that reads any struct.
func TestRing(t *testing.T) {
	raw := headers(t)
	for field, at := range map[string]int{"floor": RingFloor, "entries": RingItems, "slots": RingSlots} {
		if text := fmt.Sprintf("offsetof(struct divvy_sim_ring, %s) == %d,", field, at); !strings.Contains(string(raw), text) {
			t.Errorf("the header does not assert %s", text)
		}
	}
	if RingLatest != RingFloor+8 || RingHead != 0 || RingSlots+RingEntries*SlotBytes != RingBytes {
		t.Error("the places in a ring do not fit together")
	}
	var entry [ItemBytes]byte
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
	f.Add(good[:HeaderBytes-1])
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
