// SPDX-License-Identifier: Apache-2.0

package names

import (
	"strings"
	"testing"
)

const uid = "0c9f7a6e-3c1b-4a58-9d0e-2b8a4f6c1d35"

func TestShare(t *testing.T) {
	for n := range mostResults {
		name, err := Share(uid, n)
		if err != nil {
			t.Fatal(err)
		}
		if len(name) > 63 || strings.ContainsAny(name[len(name)-1:], "-_.") {
			t.Errorf("%s is no CDI name", name)
		}
	}
	for _, bad := range []struct {
		claim string
		n     int
	}{{uid, -1}, {uid, mostResults}, {"", 0}, {"../x", 0}, {strings.ToUpper(uid), 0}} {
		if name, err := Share(bad.claim, bad.n); err == nil {
			t.Errorf("%q, %d is share %q", bad.claim, bad.n, name)
		}
	}
}

func TestDevice(t *testing.T) {
	gpu := "GPU-" + uid
	if got, ok := UUID(Device(gpu)); !ok || got != gpu {
		t.Errorf("%q (%v)", got, ok)
	}
	for _, bad := range []string{"", "gpu-0", "gpu-" + uid + "x", "mig-" + uid} {
		if got, ok := UUID(bad); ok {
			t.Errorf("%q is GPU %q", bad, got)
		}
	}
	if got, ok := MIG(Device("MIG-" + uid)); !ok || got != "MIG-"+uid {
		t.Errorf("%q (%v)", got, ok)
	}
	for _, bad := range []string{"", "mig-0", "mig-" + uid + "x", "gpu-" + uid} {
		if got, ok := MIG(bad); ok {
			t.Errorf("%q is MIG device %q", bad, got)
		}
	}
}

func FuzzSlot(f *testing.F) {
	f.Add("slot-0")
	f.Add("slot-007")
	f.Fuzz(func(t *testing.T, text string) {
		n, ok := SlotNumber(text)
		if !ok {
			return
		}
		if Slot(n) != text {
			t.Errorf("%q is slot %d, which is %q", text, n, Slot(n))
		}
		if back, ok := ShareSlot(SlotShare(n)); !ok || back != n {
			t.Errorf("%s is on slot %d (%v)", SlotShare(n), back, ok)
		}
	})
}

func TestResourceMIG(t *testing.T) {
	for profile, want := range map[string]string{
		"1g.5gb": "divvy.dev/mig-1g.5gb", "1g.10gb+me": "divvy.dev/mig-1g.10gb.me", "1g.24gb-me": "divvy.dev/mig-1g.24gb-me", "": "", "../x": "", "1g.5gb+": "", "1g.5gb-": "", "1G": "",
	} {
		if got, ok := ResourceMIG(profile); got != want || ok != (want != "") {
			t.Errorf("%q: %q %v, want %q", profile, got, ok, want)
		}
	}
}

// What can be made is named so that the name is a label of DNS, and says all of it.
func TestPart(t *testing.T) {
	gpu := "GPU-" + uid
	for _, c := range []struct {
		profile, want string
		start         int
	}{{"3g.20gb", "-4-3g-20gb", 4}, {"1g.5gb+me", "-0-1g-5gb--me", 0}, {"2g.48gb+me.all", "-10-2g-48gb--me-all", 10}, {"1g.24gb-me", "-3-1g-24gb---me", 3}} {
		name, ok := Part(gpu, c.profile, c.start)
		if uuid, profile, start, found := PartOf(name); !ok || !found || name != "gpu-"+uid+c.want || uuid != gpu || profile != c.profile || start != c.start {
			t.Errorf("%q (%v) is %s of %s at %d (%v)", name, ok, profile, uuid, start, found)
		}
	}
	for _, bad := range []string{"", "1g..5gb", "1g.5GB", "1g_5gb", ".5gb", "5gb.", strings.Repeat("g", 21)} {
		if name, ok := Part(gpu, bad, 0); ok {
			t.Errorf("%q is named %q", bad, name)
		}
	}
	for _, bad := range []string{"gpu-" + uid, "gpu-" + uid + "-04-3g-20gb", "gpu-" + uid + "-4-3g----20gb", "mig-" + uid + "-4-3g-20gb", "gpu-" + uid + "-4-"} {
		if uuid, profile, start, ok := PartOf(bad); ok {
			t.Errorf("%q is %s of %s at %d", bad, profile, uuid, start)
		}
	}
}
