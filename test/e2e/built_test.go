// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"debug/elf"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// exports returns the dynamic symbols a library defines.
func exports(t testing.TB, path string) map[string]bool {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dynamic, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, symbol := range dynamic {
		if symbol.Section != elf.SHN_UNDEF && elf.ST_BIND(symbol.Info) != elf.STB_LOCAL {
			found[symbol.Name] = true
		}
	}
	return found
}

// mapped reads the names of an export list in clib/gen.
func mapped(t testing.TB, name string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root(t), "clib", "gen", name))
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for _, name := range regexp.MustCompile(`\b(?:cu|cudbg|nvml)[A-Z][A-Za-z0-9_]*\b`).FindAllString(string(text), -1) {
		found[name] = true
	}
	return found
}

func compare(t *testing.T, got, want map[string]bool) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if !got[name] {
			t.Errorf("%s is not exported", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(got)) {
		if !want[name] {
			t.Errorf("%s is exported and not on the list", name)
		}
	}
}

func TestStandinExportsItsGeneration(t *testing.T) {
	t.Parallel()
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			got := exports(t, built(t, "lib", "divvy", g.standin, "libcuda.so.1"))
			delete(got, "divvy_standin") // how our own parts know a stand-in
			compare(t, got, mapped(t, "standin-"+g.name+".map"))
		})
	}
}

// The prepared front exports what the driver exports and the list knows, no
// more: programs probe.
func TestFrontExportsItsDriver(t *testing.T) {
	t.Parallel()
	for _, g := range generations {
		t.Run(g.name, func(t *testing.T) {
			driver := exports(t, built(t, "lib", "divvy", g.standin, "libcuda.so.1"))
			delete(driver, "divvy_standin")
			want := map[string]bool{}
			for _, name := range symbols(t, func(fate string) bool { return fate != "absent" }) {
				if driver[name] {
					want[name] = true
				}
			}
			compare(t, exports(t, filepath.Join(frontFor(t, g), "libcuda.so.1")), want)
		})
	}
}

func TestLibrariesAreOneFile(t *testing.T) {
	t.Parallel()
	for _, folder := range []string{"front", "standin", "standin-11.8", "standin-13.0", "standin-13.1", "null"} {
		one, err := os.Stat(built(t, "lib", "divvy", folder, "libcuda.so.1"))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"libcuda.so", "libnvidia-ml.so.1"} {
			other, err := os.Stat(built(t, "lib", "divvy", folder, name))
			if err != nil {
				t.Fatal(err)
			}
			if !os.SameFile(one, other) {
				t.Errorf("%s/%s is not the file libcuda.so.1", folder, name)
			}
		}
	}
}

// guests are the libraries that come into other people's processes.
var guests = map[string][]string{"front": {"front", "base"}, "remote": {"remote"}}

// They are mounted into users' images: they must load with an old C library.
func TestGuestsNeedAnOldLibc(t *testing.T) {
	t.Parallel()
	for name, folder := range guests {
		t.Run(name, func(t *testing.T) {
			needsAnOldLibc(t, built(t, append(append([]string{"lib", "divvy"}, folder...), "libcuda.so.1")...))
		})
	}
}

func needsAnOldLibc(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	versions, err := file.DynamicVersionNeeds()
	if err != nil {
		t.Fatal(err)
	}
	if len(versions) == 0 {
		t.Fatal("it needs no version of any library: the check looks at nothing")
	}
	for _, library := range versions {
		for _, need := range library.Needs {
			digits, ok := strings.CutPrefix(need.Dep, "GLIBC_2.")
			if !ok {
				t.Errorf("needs %s of %s", need.Dep, library.Name)
				continue
			}
			minor, err := strconv.Atoi(strings.Split(digits, ".")[0])
			if err != nil || minor > 17 {
				t.Errorf("needs %s of %s, newer than 2.17", need.Dep, library.Name)
			}
		}
	}
	needed, err := file.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	for _, library := range []string{"libdl.so.2", "libpthread.so.0"} {
		if !slices.Contains(needed, library) {
			t.Errorf("%s is not needed: with a C library before 2.34 the functions of it would be missing", library)
		}
	}
}

// A guest's manners that show in the file.
func TestGuestsAreQuiet(t *testing.T) {
	t.Parallel()
	for name := range guests {
		t.Run(name, func(t *testing.T) { isAQuietGuest(t, built(t, "lib", "divvy", name, "libcuda.so.1")) })
	}
}

func isAQuietGuest(t *testing.T, path string) {
	t.Helper()
	file, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	flags, err := file.DynValue(elf.DT_FLAGS_1)
	if err != nil || len(flags) == 0 || flags[0]&uint64(elf.DF_1_NODELETE) == 0 {
		t.Errorf("it may be unloaded: DT_FLAGS_1 %v (%v)", flags, err)
	}
	for _, program := range file.Progs {
		if program.Type == elf.PT_TLS && program.Memsz > 64 {
			t.Errorf("%d bytes of thread-local storage, at most 64", program.Memsz)
		}
	}
	dynamic, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, symbol := range dynamic {
		if elf.ST_TYPE(symbol.Info) == elf.STT_GNU_IFUNC {
			t.Errorf("%s is resolved by a function", symbol.Name)
		}
		// unsetenv of a variable that nobody has takes the environment's lock (clib/front/visible.c).
		forbidden := []string{"exit", "_exit", "abort", "signal", "sigaction", "setenv", "putenv", "clearenv", "puts", "printf",
			"_Exit", "quick_exit", "atexit", "on_exit", "__cxa_atexit", "pthread_atfork", "raise", "kill", "sigprocmask", "umask", "chdir",
			"setlocale", "strtok", "rand", "srand", "system", "popen", "fork", "execve"}
		if symbol.Section == elf.SHN_UNDEF && slices.Contains(forbidden, symbol.Name) {
			t.Errorf("it calls %s", symbol.Name)
		}
	}
	if section := file.Section(".init_array"); section != nil && section.Size > 8 {
		t.Errorf("it has constructors: .init_array of %d bytes", section.Size)
	}
}
