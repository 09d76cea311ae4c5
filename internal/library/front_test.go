// SPDX-License-Identifier: Apache-2.0

package library

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// built makes a folder of libraries with a front that is not prepared.
func built(t testing.TB) Dir {
	t.Helper()
	dir := t.TempDir()
	buildFront(t, filepath.Join(dir, "front", "base"))
	return Dir(dir)
}

// TestPreparedFrontUnderRealLoader asks ld.so itself what it finds.
func TestPreparedFrontUnderRealLoader(t *testing.T) {
	driver := buildDriver(t, "")
	front, err := built(t).FrontFor(driver, filepath.Join(t.TempDir(), "cache"))
	if err != nil {
		t.Fatal(err)
	}
	wantSpares := []string{"cuBrandNew", "cuBrandNewSum", "nvmlBrandNew"}
	if !slices.Equal(front.Report.Spares, wantSpares) {
		t.Errorf("spares for %q, want %q", front.Report.Spares, wantSpares)
	}
	if len(front.Report.Left) != 0 {
		t.Errorf("left out: %q", front.Report.Left)
	}
	program := buildProgram(t, "testdata/program.c")
	for _, name := range []string{CUDAName, cudaLinkName, NVMLName} {
		out, err := command(driver, program, filepath.Join(front.Dir, name),
			"cuDeviceGetName", "cuDriverGetVersion", "nvmlDeviceGetMinorNumber", "cuBrandNew", "nvmlBrandNew", "cuBrandNewSum",
			"cuInit", "cuMemAlloc_v2", "cuMemcpyBatchAsync", "nvmlInit_v2", "cuBrandNewData", "divvy_standin",
			sparePrefix+"00_"+strings.Repeat("x", 80), sparePrefix+"95_"+strings.Repeat("x", 80), "front_real").CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		want := `cuDeviceGetName: 42 43
cuDriverGetVersion: 12345
nvmlDeviceGetMinorNumber: 7
cuBrandNew: 11
nvmlBrandNew: 12
cuBrandNewSum: 4104.0
cuInit: none
cuMemAlloc_v2: none
cuMemcpyBatchAsync: none
nvmlInit_v2: none
cuBrandNewData: none
divvy_standin: none
` + sparePrefix + "00_" + strings.Repeat("x", 80) + ": none\n" + sparePrefix + "95_" + strings.Repeat("x", 80) + ": none\nfront_real: none\n"
		if string(out) != want {
			t.Errorf("%s:\n%s\nwant:\n%s", name, out, want)
		}
	}
	want := map[string]bool{"cuDeviceGetName": true, "cuDriverGetVersion": true, "nvmlDeviceGetMinorNumber": true, "cuBrandNew": true, "cuBrandNewSum": true, "nvmlBrandNew": true}
	got := defined(t, filepath.Join(front.Dir, CUDAName))
	if len(got) != len(want) {
		t.Errorf("nm finds %d symbols, want %d", len(got), len(want))
	}
	for name := range want {
		if !got[name] {
			t.Errorf("nm does not find %s", name)
		}
	}
}

// TestUnpreparedFrontShowsTheDifference is the control: without preparation
// the program finds what the driver lacks and lacks what the driver has.
func TestUnpreparedFrontShowsTheDifference(t *testing.T) {
	driver := buildDriver(t, "")
	out, err := command(driver, buildProgram(t, "testdata/program.c"), built(t).base(), "cuInit", "cuBrandNew").CombinedOutput()
	if err != nil || string(out) != "cuInit: found\ncuBrandNew: none\n" {
		t.Fatalf("%v\n%s", err, out)
	}
}

// TestLinkedProgram links against the prepared front and binds at start.
func TestLinkedProgram(t *testing.T) {
	driver := buildDriver(t, "")
	front, err := built(t).FrontFor(driver, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "linked.c")
	write(t, source, "int cuBrandNew(int);\nint cuDeviceGetName(char *, int, int);\nint main(void) { return cuBrandNew(1) + cuDeviceGetName(0, 30, 10); }\n")
	program := buildProgram(t, source, "-L"+front.Dir, "-lcuda", "-Wl,-z,now")
	cmd := command(driver, program)
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+front.Dir)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); err == nil || !asExit(err, &exit) || exit.ExitCode() != 42 {
		t.Fatalf("%v\n%s", err, out)
	}
	source = filepath.Join(t.TempDir(), "lacking.c")
	write(t, source, "int cuInit(unsigned);\nint main(void) { return cuInit(0); }\n")
	if out, err := exec.Command("gcc", "-o", source+".out", source, "-L"+front.Dir, "-lcuda").CombinedOutput(); err == nil || !strings.Contains(string(out), "cuInit") {
		t.Errorf("a program links with a symbol that the driver lacks: %v\n%s", err, out)
	}
}

// TestVersionedDriver: a program that was linked against a driver with version
// nodes runs over the front, which has none.
func TestVersionedDriver(t *testing.T) {
	script := filepath.Join(t.TempDir(), "driver.map")
	write(t, script, "DRIVER_1 { global: cu*; nvml*; local: *; };\n")
	driver := buildDriver(t, "", "-Wl,--version-script="+script)
	read, err := ReadDriver(driver)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(read.Versions, "DRIVER_1") {
		t.Errorf("versions are %q", read.Versions)
	}
	front, err := built(t).FrontFor(driver, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "linked.c")
	write(t, source, "int cuBrandNew(int);\nint cuDeviceGetName(char *, int, int);\nint main(void) { return cuBrandNew(1) + cuDeviceGetName(0, 30, 10); }\n")
	program := buildProgram(t, source, "-L"+driver, "-l:"+CUDAName)
	cmd := command(driver, program)
	cmd.Env = append(cmd.Env, "LD_LIBRARY_PATH="+front.Dir)
	out, err := cmd.CombinedOutput()
	if exit := new(exec.ExitError); !asExit(err, &exit) || exit.ExitCode() != 42 {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "no version information available") {
		t.Errorf("ld.so says %q", out)
	}
}

// TestSparesRunOut: what finds no room is told, never dropped in silence.
func TestSparesRunOut(t *testing.T) {
	long, tooLong := "cu"+strings.Repeat("L", 93), "cu"+strings.Repeat("L", 94)
	driver := buildDriver(t, lines("int cuMany%03d(void) { return 0; }", 0, 100)+"int "+long+"(void) { return 0; }\nint "+tooLong+"(void) { return 0; }\n")
	front, err := built(t).FrontFor(driver, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	// cuBrandNew, cuBrandNewSum, the long one and 93 of the many.
	wantLeft := append([]string{tooLong}, strings.Fields(lines("cuMany%03d", 93, 100))...)
	wantLeft = append(wantLeft, "nvmlBrandNew")
	if len(front.Report.Spares) != 96 || !slices.Contains(front.Report.Spares, long) || !slices.Equal(front.Report.Left, wantLeft) {
		t.Errorf("%d spares, left %q", len(front.Report.Spares), front.Report.Left)
	}
	out, err := command(driver, buildProgram(t, "testdata/program.c"), filepath.Join(front.Dir, CUDAName), "cuMany000", "cuMany092", "cuMany093", long, tooLong).CombinedOutput()
	if want := "cuMany000: found\ncuMany092: found\ncuMany093: none\n" + long + ": found\n" + tooLong + ": none\n"; err != nil || string(out) != want {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestCacheIsMadeOnceAndKept(t *testing.T) {
	dir, cache := built(t), filepath.Join(t.TempDir(), "cache")
	driver := buildDriver(t, "")
	fronts := make([]Front, 8)
	var group sync.WaitGroup
	for n := range fronts {
		group.Go(func() {
			front, err := dir.FrontFor(driver, cache)
			if err != nil {
				t.Error(err)
			}
			fronts[n] = front
		})
	}
	group.Wait()
	before, err := os.Stat(filepath.Join(fronts[0].Dir, CUDAName))
	if err != nil {
		t.Fatal(err)
	}
	again, err := dir.FrontFor(driver, cache)
	if err != nil {
		t.Fatal(err)
	}
	for _, front := range append(fronts, again) {
		if front.Dir != fronts[0].Dir {
			t.Errorf("%s and %s", front.Dir, fronts[0].Dir)
		}
	}
	after, err := os.Stat(filepath.Join(again.Dir, CUDAName))
	if err != nil {
		t.Fatal(err)
	}
	if !os.SameFile(before, after) || !before.ModTime().Equal(after.ModTime()) {
		t.Error("the prepared front was written again")
	}
	entries, err := os.ReadDir(cache)
	if err != nil || len(entries) != 1 {
		t.Errorf("cache holds %d entries: %v", len(entries), err)
	}
	other, err := dir.FrontFor(buildDriver(t, "int cuOther(void) { return 0; }\n"), cache)
	if err != nil || other.Dir == again.Dir {
		t.Errorf("another driver build gets %s: %v", other.Dir, err)
	}
}

// A front that is there is found by the beginnings of the files: their rest may be
// missing. Where they say too little, as without build ids, it is found all the same.
func TestPreparedFrontIsFoundByBuildIDs(t *testing.T) {
	for name, flags := range map[string][]string{"with": nil, "without": {"-Wl,--build-id=none"}} {
		t.Run(name+" build ids", func(t *testing.T) {
			dir, cache := built(t), filepath.Join(t.TempDir(), "cache")
			driver := buildDriver(t, "", flags...)
			front, err := dir.FrontFor(driver, cache)
			if err != nil {
				t.Fatal(err)
			}
			key := quickKey(dir.base(), driver)
			if name == "without" {
				if key != "" {
					t.Errorf("key %q", key)
				}
			} else if key != filepath.Base(front.Dir) {
				t.Errorf("key %q, prepared in %s", key, front.Dir)
			} else {
				for _, file := range []string{dir.base(), filepath.Join(driver, CUDAName)} {
					if err := os.Truncate(file, quickBytes); err != nil {
						t.Fatal(err)
					}
				}
			}
			again, err := dir.FrontFor(driver, cache)
			if err != nil || again.Dir != front.Dir || again.Report.Blanked != nil {
				t.Errorf("found %+v, %v, want %s as it is", again, err, front.Dir)
			}
		})
	}
	if key := quickKey(built(t).base(), t.TempDir()); key != "" {
		t.Errorf("a folder without a driver has key %q", key)
	}
}

func TestCacheThatOthersMayWriteIsRefused(t *testing.T) {
	dir, cache := built(t), t.TempDir()
	driver := buildDriver(t, "")
	front, err := dir.FrontFor(driver, cache)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(front.Dir, CUDAName), 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := dir.FrontFor(driver, cache); err == nil || !strings.Contains(err.Error(), "others may write it") {
		t.Errorf("error is %v", err)
	}
}

// TestUnwritableCaches: what was built for the driver is used without a cache, another
// front is made in the first cache that can be written to, and without one the error
// says what is wrong with the first.
func TestUnwritableCaches(t *testing.T) {
	dir, driver := built(t), buildDriver(t, "")
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, "no folder")
	none, good := filepath.Join(file, "cache"), t.TempDir()
	if _, err := dir.FrontFor(driver, none); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error is %v", err)
	}
	if _, err := dir.FrontFor(driver); err == nil || !strings.Contains(err.Error(), "HOME") {
		t.Errorf("error is %v", err)
	}
	front, err := dir.FrontFor(driver, none, good)
	if err != nil || filepath.Dir(front.Dir) != good {
		t.Errorf("%+v, %v", front, err)
	}
	if _, err := PrepareInto(dir.base(), driver, dir.built()); err != nil {
		t.Fatal(err)
	}
	for _, caches := range [][]string{nil, {none}} {
		if front, err := dir.FrontFor(driver, caches...); err != nil || front.Dir != dir.built() {
			t.Errorf("%q: %+v, %v", caches, front, err)
		}
	}
}

// TestBuiltForStandin: the front that the build prepared is used as it lies,
// and is replaced, not overwritten, by the next build.
func TestBuiltForStandin(t *testing.T) {
	dir := built(t)
	driver := buildDriver(t, "")
	out := filepath.Join(string(dir), "front")
	if _, err := PrepareInto(dir.base(), driver, out); err != nil {
		t.Fatal(err)
	}
	first, err := os.Stat(filepath.Join(out, CUDAName))
	if err != nil {
		t.Fatal(err)
	}
	front, err := dir.FrontFor(driver, filepath.Join(t.TempDir(), "cache"))
	if err != nil || front.Dir != out {
		t.Errorf("front is %s: %v", front.Dir, err)
	}
	if _, err := PrepareInto(dir.base(), driver, out); err != nil {
		t.Fatal(err)
	}
	second, err := os.Stat(filepath.Join(out, CUDAName))
	if err != nil || os.SameFile(first, second) {
		t.Errorf("the file was overwritten in place: %v", err)
	}
	other, err := dir.FrontFor(buildDriver(t, "int cuOther(void) { return 0; }\n"), filepath.Join(t.TempDir(), "cache"))
	if err != nil || other.Dir == out {
		t.Errorf("another driver gets %s: %v", other.Dir, err)
	}
}

func TestDriverWithoutNVML(t *testing.T) {
	driver := buildDriver(t, "")
	if err := os.Remove(filepath.Join(driver, NVMLName)); err != nil {
		t.Fatal(err)
	}
	front, err := built(t).FrontFor(driver, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(filepath.Join(front.Dir, NVMLName)); !os.IsNotExist(err) {
		t.Errorf("the front poses as an NVML that is not there: %v", err)
	}
}

func TestErrorsNameTheFile(t *testing.T) {
	dir := built(t)
	empty := t.TempDir()
	if _, err := dir.FrontFor(empty, t.TempDir()); err == nil || !strings.Contains(err.Error(), filepath.Join(empty, CUDAName)) {
		t.Errorf("no driver: %v", err)
	}
	write(t, filepath.Join(empty, CUDAName), "not a library")
	if _, err := dir.FrontFor(empty, t.TempDir()); err == nil || !strings.Contains(err.Error(), filepath.Join(empty, CUDAName)) {
		t.Errorf("a driver that is no library: %v", err)
	}
	named := Dir(t.TempDir())
	source := filepath.Join(t.TempDir(), "named.c")
	write(t, source, "int cuInit(unsigned);\nint (*named)(unsigned) = cuInit;\n")
	buildFront(t, filepath.Join(string(named), "front", "base"), source, "-Wl,-Bno-symbolic", "-fvisibility=default")
	if _, err := named.FrontFor(buildDriver(t, ""), t.TempDir()); err == nil || !strings.Contains(err.Error(), "-Bsymbolic") {
		t.Errorf("a front that looks its own symbols up by name: %v", err)
	}
	gnu := Dir(t.TempDir())
	buildFront(t, filepath.Join(string(gnu), "front", "base"), "-Wl,--hash-style=both")
	if _, err := gnu.FrontFor(buildDriver(t, ""), t.TempDir()); err == nil || !strings.Contains(err.Error(), "--hash-style=sysv") {
		t.Errorf("a front with a GNU hash table: %v", err)
	}
}
