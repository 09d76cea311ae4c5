// SPDX-License-Identifier: Apache-2.0

package sriov_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/partition"
	"github.com/divvy-gpu/divvy/internal/partition/fakekernel"
	"github.com/divvy-gpu/divvy/internal/partition/sriov"
	"github.com/divvy-gpu/divvy/internal/partition/vfio"
)

// gim is a machine with two cards under AMD's host driver, a function each.
func gim(t *testing.T) fakekernel.Machine {
	return fakekernel.OpenArchive(t, "testdata/gim.txtar", sriov.New, vfio.New)
}

// TestGim: the driver is loaded anew with another number for all its cards, and
// with what it was loaded with.
func TestGim(t *testing.T) {
	m := gim(t)
	plans := m.Plans(t, "{sriov: {vfs: 4, autoprobe: true}}")
	for i, address := range []string{"0000:05:00.0", "0000:27:00.0"} {
		want := "run /usr/sbin/modprobe -r gim\nwrite \"1\" to " + address + "/sriov_drivers_autoprobe\nrun /usr/sbin/modprobe gim fb_sharing_mode=4 vf_num=4\n"
		if got := fakekernel.Steps(plans[i]); got != want || len(plans[i].Joined) != 2 {
			t.Fatalf("%s%v", got, plans[i].Joined)
		}
	}
	m.Apply(t, plans...)
	for _, p := range m.Plans(t, "{sriov: {vfs: 4}}") {
		if p.Refused != "" || len(p.Steps) > 0 || len(sriov.Of(p.Before).On) != 4 {
			t.Errorf("%d on, then %s", len(sriov.Of(p.Before).On), fakekernel.Steps(p))
		}
	}
}

func TestGimFaults(t *testing.T) {
	fakekernel.FaultsOf(t, func() fakekernel.Machine { return gim(t) }, func(m fakekernel.Machine) []partition.CardPlan {
		return m.Plans(t, "{sriov: {vfs: 4, autoprobe: true}}")
	})
}

// TestGimRefusals: what gim does not do, and what would make it wait.
func TestGimRefusals(t *testing.T) {
	for _, c := range []struct{ rules, refused, reason string }{
		{"{sriov: {vfs: 0}}", partition.RefusedImpossible, "run modprobe -r gim"},
		{"{sriov: {vfs: 9}}", partition.RefusedImpossible, "and its driver allow 8"},
		{"{match: {index: [0]}, sriov: {vfs: 4}}", partition.RefusedImpossible, "4 virtual functions instead of 1 is for all GPUs joined with this one, and the file does not speak of 0000:27:00.0"},
		{"{sriov: {vfs: 4}}, {match: {index: [1]}, sriov: {vfs: 2}}", partition.RefusedImpossible, "of 0000:27:00.0 it would be: 2 virtual functions instead of 1"},
	} {
		if p := gim(t).Plans(t, c.rules)[0]; p.Refused != c.refused || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s: %q, %s", c.rules, p.Refused, p.Reason)
		}
	}
	for name, c := range map[string]struct{ file, reason string }{
		"a guest":          {"proc/640/fd/5", "of 0000:27:00.0: in use: vf1 (0000:27:02.0) is used by 640"},
		"a host's driver":  {"sys/bus/pci/devices/0000:27:02.0/enable", "vf1 (0000:27:02.0) is held by the driver vfio-pci, for which gim would wait: unbind it"},
		"without modprobe": {"usr/sbin/modprobe", "modprobe is not in /usr/sbin"},
		"without gim":      {"sys/bus/pci/devices/0000:05:00.0/driver", "made by its host driver gim; no driver has"},
	} {
		m := gim(t)
		at := filepath.Join(m.Fake.Folder, c.file)
		var err error
		switch filepath.Base(c.file) {
		case "5":
			err = errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink("/dev/vfio/8", at))
		case "enable":
			err = os.WriteFile(at, []byte("1\n"), 0o644)
		default:
			err = os.Remove(at)
		}
		if err != nil {
			t.Fatal(err)
		}
		if p := m.Plans(t, "{sriov: {vfs: 4}}")[0]; p.Refused == "" || !strings.Contains(p.Reason, c.reason) {
			t.Errorf("%s: %q, %s", name, p.Refused, p.Reason)
		}
	}
}
