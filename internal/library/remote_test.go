// SPDX-License-Identifier: Apache-2.0

package library

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// buildRemote builds a small library of remote calls as the build does the real one.
func buildRemote(t *testing.T) Dir {
	t.Helper()
	dir := t.TempDir()
	folder := filepath.Join(dir, "remote")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "remote.c")
	write(t, source, "int cuInit(unsigned f) { return (int)f; }\nint cuOld(void) { return cuInit(1); }\nint cuNew(void) { return cuOld(); }\nint nvmlInit_v2(void) { return 0; }\n")
	gcc(t, "-std=gnu17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,--hash-style=sysv", "-Wl,--build-id=sha1", "-Wl,-Bsymbolic",
		"-o", filepath.Join(folder, CUDAName), source)
	return Dir(dir)
}

func TestRemoteFor(t *testing.T) {
	dir, cache := buildRemote(t), t.TempDir()
	driver := Remote{BuildID: "00ff", CUDA: []string{"cuInit", "cuOld", "cuUnheardOf"}}
	made, err := dir.RemoteFor(driver, cache)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(made.Report.Blanked, []string{"cuNew", "nvmlInit_v2"}) || !slices.Equal(made.Report.Left, []string{"cuUnheardOf"}) || made.Report.Spares != nil {
		t.Errorf("%+v", made.Report)
	}
	got := slices.Sorted(maps.Keys(defined(t, filepath.Join(made.Dir, CUDAName))))
	if !slices.Equal(got, []string{"cuInit", "cuOld"}) {
		t.Errorf("exports %q", got)
	}
	if _, err := os.Stat(filepath.Join(made.Dir, NVMLName)); err == nil {
		t.Error("a library of NVML for a driver without one")
	}
	again, err := dir.RemoteFor(driver, cache)
	if err != nil || again.Dir != made.Dir || again.Report.Blanked != nil {
		t.Errorf("again: %+v, %v", again, err)
	}
	// A server that gives another driver's build id out as its own gets a library of its own.
	driver.NVML = []string{"nvmlInit_v2"}
	other, err := dir.RemoteFor(driver, cache)
	if err != nil || other.Dir == made.Dir {
		t.Errorf("another list: %+v, %v", other, err)
	}
	if _, err := os.Stat(filepath.Join(other.Dir, NVMLName)); err != nil {
		t.Error(err)
	}
}

func TestRemoteForFails(t *testing.T) {
	if _, err := Dir(t.TempDir()).RemoteFor(Remote{}, t.TempDir()); !errors.Is(err, ErrNotFound) {
		t.Errorf("not built: %v", err)
	}
	if _, err := buildRemote(t).RemoteFor(Remote{CUDA: []string{"cuInit"}}); !errors.Is(err, errNoCache) {
		t.Errorf("no cache: %v", err)
	}
}
