// SPDX-License-Identifier: Apache-2.0

package cdi_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	oci "github.com/opencontainers/runtime-spec/specs-go"
	library "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/divvy-gpu/divvy/internal/cdi"
)

// host is a machine with a driver of NVIDIA's kind: versioned files, links to
// them, and a share's socket.
type host struct {
	root   string
	driver cdi.Driver
	front  cdi.Front
}

func (h host) at(name string) string { return filepath.Join(h.root, name) }

func (h host) share(name string, nodes ...string) cdi.Share {
	return cdi.Share{Name: name, Socket: h.at("run/shares/" + name + "/share.sock"), Nodes: nodes}
}

func newHost(t *testing.T) host {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	must(t, err)
	h := host{root: root}
	for _, name := range []string{
		"lib/libcuda.so.535.104.05", "lib/libnvidia-ml.so.535.104.05", "lib/libnvidia-ptxjitcompiler.so.535.104.05",
		"lib/libnvidia-opencl.so.535.104.05", "front/libcuda.so.1", "front/ld.so.preload", "run/shares/train/share.sock",
	} {
		must(t, os.MkdirAll(filepath.Dir(h.at(name)), 0o755))
		must(t, os.WriteFile(h.at(name), nil, 0o600))
	}
	for link, target := range map[string]string{
		"lib/libcuda.so.1": "libcuda.so.535.104.05", "lib/libnvidia-ml.so.1": "libnvidia-ml.so.535.104.05",
		"lib/libnvidia-ptxjitcompiler.so.1": "libnvidia-ptxjitcompiler.so.535.104.05", "lib/libnvidia-nvvm.so.4": "nothing",
		"linked": "lib", "front/libcuda.so": "libcuda.so.1",
	} {
		must(t, os.Symlink(target, h.at(link)))
	}
	h.driver, err = cdi.FindDriver(h.at("linked/libcuda.so.1"), h.at("linked/libnvidia-ml.so.1"), "")
	must(t, err)
	h.front = cdi.Front{Library: h.at("front/libcuda.so"), Preload: h.at("front/ld.so.preload")}
	return h
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// inject lets the library that runtimes use apply devices to a container.
func inject(t *testing.T, folder string, devices ...string) *oci.Spec {
	t.Helper()
	cache, err := library.NewCache(library.WithSpecDirs(folder), library.WithAutoRefresh(false))
	must(t, err)
	container := &oci.Spec{Linux: &oci.Linux{}, Process: &oci.Process{}}
	if missing, err := cache.InjectDevices(container, devices...); err != nil {
		t.Fatalf("%v: %v (%v)", devices, err, cache.GetErrors())
	} else if len(missing) > 0 {
		t.Fatalf("not there: %v", missing)
	}
	return container
}

// mounts are sources by place in the container; each must be read-only.
func mounts(t *testing.T, container *oci.Spec) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, m := range container.Mounts {
		if found[m.Destination] != "" {
			t.Errorf("two mounts at %s", m.Destination)
		}
		if !slices.Contains(m.Options, "ro") || !slices.Contains(m.Options, "rbind") {
			t.Errorf("%s: %v", m.Destination, m.Options)
		}
		found[m.Destination] = m.Source
	}
	return found
}

// Sources are real files, whatever links lead to them: a link would not hold
// inside, and the driver at its own place must not be what the front covers.
func TestShareInAContainer(t *testing.T) {
	h := newHost(t)
	folder := cdi.Folder(h.at("cdi"))
	spec, err := cdi.ForShare(h.share("train", "/dev/null", "/dev/zero", "/dev/null"), h.driver, h.front)
	must(t, err)
	path, err := folder.Put(spec)
	must(t, err)
	container := inject(t, string(folder), "divvy.dev/share=train")
	got := mounts(t, container)
	want := map[string]string{
		"/run/divvy/driver/libcuda.so.1":      h.at("lib/libcuda.so.535.104.05"),
		"/run/divvy/driver/libnvidia-ml.so.1": h.at("lib/libnvidia-ml.so.535.104.05"),
		"/etc/ld.so.preload":                  h.at("front/ld.so.preload"),
		"/run/divvy/share":                    h.at("run/shares/train"),
		"/run/divvy/share.sock":               h.at("run/shares/train/share.sock"),
	}
	for _, folder := range []string{"/usr/lib/x86_64-linux-gnu/", "/usr/lib64/"} {
		for _, name := range []string{"libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1"} {
			want[folder+name] = h.at("front/libcuda.so.1")
		}
		for _, name := range []string{"libnvidia-ptxjitcompiler.so.1", "libnvidia-ptxjitcompiler.so.535.104.05"} {
			want[folder+name] = h.at("lib/libnvidia-ptxjitcompiler.so.535.104.05")
		}
	}
	if exists("/usr/bin/nvidia-smi") {
		want["/usr/bin/nvidia-smi"] = "/usr/bin/nvidia-smi"
	}
	for place, source := range want {
		if got[place] != source {
			t.Errorf("%s is %q, want %q", place, got[place], source)
		}
		delete(got, place)
	}
	if len(got) > 0 {
		t.Errorf("also mounted: %v", got)
	}
	if n := len(container.Linux.Devices); n != 2 {
		t.Errorf("%d device files: %v", n, container.Linux.Devices)
	}
	if !slices.Contains(container.Process.Env, "NVIDIA_VISIBLE_DEVICES=void") {
		t.Errorf("environment %v: NVIDIA's runtime would add every GPU", container.Process.Env)
	}
	info, err := os.Stat(path)
	must(t, err)
	if info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v: runtimes of other users cannot read it", info.Mode())
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// What holds a share besides the front: a folder at the same path, and variables.
func TestShareHeldByMore(t *testing.T) {
	h := newHost(t)
	folder := cdi.Folder(h.at("cdi"))
	share := h.share("train")
	share.Folder, share.Env = h.at("run"), []string{"CUDA_MPS_PIPE_DIRECTORY=" + h.at("run")}
	spec, err := cdi.ForShare(share, h.driver, h.front)
	must(t, err)
	_, err = folder.Put(spec)
	must(t, err)
	container := inject(t, string(folder), "divvy.dev/share=train")
	if got := mounts(t, container); got[share.Folder] != share.Folder || !slices.Contains(container.Process.Env, share.Env[0]) {
		t.Errorf("%v, %v", got, container.Process.Env)
	}
}

// The oldest version that has what a file uses: podman 4.3 knows 0.5.0.
func TestVersions(t *testing.T) {
	h := newHost(t)
	for name, want := range map[string]string{"train": "0.3.0", "a.b_c-d1": "0.3.0", "7b": "0.5.0"} {
		spec, err := cdi.ForShare(h.share(name), h.driver, h.front)
		must(t, err)
		if spec.Version != want {
			t.Errorf("share %s: version %s, want %s", name, spec.Version, want)
		}
	}
	for _, name := range []string{"", "train-", "a b", "train."} {
		if _, err := cdi.ForShare(h.share(name), h.driver, h.front); !errors.Is(err, cdi.ErrName) {
			t.Errorf("share %q: %v", name, err)
		}
	}
}

func TestHardware(t *testing.T) {
	h := newHost(t)
	folder := cdi.Folder(h.at("cdi"))
	put := func(hardware cdi.Hardware, driver *cdi.Driver) {
		t.Helper()
		spec, err := cdi.ForHardware(hardware, driver)
		must(t, err)
		_, err = folder.Put(spec)
		must(t, err)
	}
	put(cdi.Hardware{Class: cdi.ClassCard, Name: "GPU-1", Nodes: []string{"/dev/null"}}, &h.driver)
	put(cdi.Hardware{Class: "compute", Name: "0000:c1:00.0#1", Nodes: []string{"/dev/zero", "/dev/null"}}, nil)
	got := mounts(t, inject(t, string(folder), "divvy.dev/card=GPU-1"))
	if got["/usr/lib64/libcuda.so.1"] != h.driver.CUDA || got["/usr/lib64/libnvidia-ml.so.1"] != h.driver.NVML {
		t.Errorf("a GPU without its driver: %v", got)
	}
	for place := range got {
		if strings.Contains(place, "preload") || strings.Contains(place, "divvy") || strings.Contains(place, "opencl") {
			t.Errorf("a whole GPU has %s", place)
		}
	}
	part := inject(t, string(folder), "divvy.dev/compute=0000:c1:00.0-1")
	if len(part.Mounts) != 0 || len(part.Linux.Devices) != 2 {
		t.Errorf("a part of an AMD GPU: %+v %+v", part.Mounts, part.Linux.Devices)
	}
	if _, err := cdi.ForHardware(cdi.Hardware{Class: "vf", Name: "0000:4d:00.1"}, nil); err == nil {
		t.Error("a device that changes nothing")
	}
}

// What runtimes would refuse never gets a name, and what is there stays.
func TestPutIsAtomic(t *testing.T) {
	h := newHost(t)
	folder := cdi.Folder(h.at("cdi"))
	spec, err := cdi.ForShare(h.share("train"), h.driver, h.front)
	must(t, err)
	path, err := folder.Put(spec)
	must(t, err)
	before, err := os.ReadFile(path)
	must(t, err)
	bad := *spec
	bad.Devices = slices.Clone(spec.Devices)
	bad.Devices[0].ContainerEdits.Hooks = []*specs.Hook{{HookName: "no such hook", Path: "/bin/true"}}
	if _, err := folder.Put(&bad); err == nil {
		t.Error("a file that no runtime accepts was written")
	}
	after, err := os.ReadFile(path)
	must(t, err)
	if string(before) != string(after) {
		t.Error("the file that was there is not the same")
	}
	if left, err := os.ReadDir(string(folder)); err != nil || len(left) != 1 {
		t.Errorf("left in the folder: %v (%v)", left, err)
	}
}

// An agent removes its own shares' files, and nobody else's.
func TestKeepShares(t *testing.T) {
	h := newHost(t)
	folder := cdi.Folder(h.at("cdi"))
	put := func(share cdi.Share) {
		t.Helper()
		spec, err := cdi.ForShare(share, h.driver, h.front)
		must(t, err)
		_, err = folder.Put(spec)
		must(t, err)
	}
	put(h.share("train"))
	put(h.share("gone"))
	put(cdi.Share{Name: "theirs", Socket: h.at("another/shares/theirs/share.sock")})
	card, err := cdi.ForHardware(cdi.Hardware{Class: cdi.ClassCard, Name: "GPU-1", Nodes: []string{"/dev/no-such"}}, nil)
	must(t, err)
	_, err = folder.Put(card)
	must(t, err)
	others := []string{"divvy.dev-share_broken.json", "nvidia.yaml", ".divvy.dev-123.new"}
	for _, name := range others {
		must(t, os.WriteFile(h.at("cdi/"+name), []byte("kind: ["), 0o600))
	}
	must(t, folder.KeepShares(h.at("run/shares"), []string{"train"}))
	devices, err := folder.Devices()
	must(t, err)
	var got []string
	for _, d := range devices {
		got = append(got, d.Name+" "+d.State)
	}
	want := []string{"divvy.dev/card=GPU-1 incomplete", " invalid", "divvy.dev/share=theirs incomplete", "divvy.dev/share=train ready"}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for i, name := range others {
		if _, err := os.Stat(h.at("cdi/" + name)); errors.Is(err, fs.ErrNotExist) != (i == 2) {
			t.Errorf("%s: %v", name, err)
		}
	}
	must(t, folder.Remove(cdi.ClassShare, "train"))
	must(t, folder.Remove(cdi.ClassShare, "train"))
	if none, err := cdi.Folder(h.at("nowhere")).Devices(); err != nil || none != nil {
		t.Errorf("%v %v", none, err)
	}
}
