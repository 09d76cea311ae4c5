// SPDX-License-Identifier: Apache-2.0

package library

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

const genDir = "../../clib/gen"

func gcc(t testing.TB, arguments ...string) {
	t.Helper()
	if out, err := exec.Command("gcc", arguments...).CombinedOutput(); err != nil {
		t.Fatalf("gcc %s: %v\n%.4000s", strings.Join(arguments, " "), err, out)
	}
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// buildFront links the generated jumps and wrappers as the build does, with
// hooks that nobody may call and testdata/resolve.c as the dispatch.
func buildFront(t testing.TB, folder string, more ...string) string {
	t.Helper()
	dir := t.TempDir()
	header, err := os.ReadFile(filepath.Join(genDir, "front_hooks.h"))
	if err != nil {
		t.Fatal(err)
	}
	hooks := "#include \"front_hooks.h\"\n"
	for _, line := range strings.Split(string(header), "\n") {
		if strings.Contains(line, " hook_") {
			hooks += strings.TrimSuffix(line, ";") + " { __builtin_trap(); }\n"
		}
	}
	write(t, filepath.Join(dir, "hooks.c"), hooks)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	front := filepath.Join(folder, CUDAName)
	arguments := []string{
		"-std=gnu17", "-w", "-O1", "-fPIC", "-fvisibility=hidden", "-shared", "-I" + genDir, "-o", front,
		filepath.Join(dir, "hooks.c"), "testdata/resolve.c",
		filepath.Join(genDir, "front_wrappers.c"), filepath.Join(genDir, "front_jumps.S"), filepath.Join(genDir, "symbols.c"),
		"-Wl,--version-script=" + filepath.Join(genDir, "front.map"), "-Wl,--hash-style=sysv", "-Wl,--build-id=sha1",
		"-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-Wl,-z,relro,-z,now,-z,nodelete",
	}
	gcc(t, append(arguments, more...)...)
	return front
}

// buildDriver builds testdata/driver.c with more source appended.
func buildDriver(t testing.TB, more string, arguments ...string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/driver.c")
	if err != nil {
		t.Fatal(err)
	}
	source := filepath.Join(t.TempDir(), "driver.c")
	write(t, source, string(text)+more)
	dir := t.TempDir()
	arguments = append([]string{"-std=gnu17", "-O1", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,--build-id=sha1", "-o", filepath.Join(dir, CUDAName), source}, arguments...)
	gcc(t, arguments...)
	if err := os.Symlink(CUDAName, filepath.Join(dir, NVMLName)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// buildProgram builds a C program and returns its path.
func buildProgram(t testing.TB, source string, arguments ...string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "program")
	gcc(t, append([]string{"-std=gnu17", "-O1", "-o", program, source}, arguments...)...)
	return program
}

// command is a program that finds its driver in the environment.
func command(driver, program string, arguments ...string) *exec.Cmd {
	cmd := exec.Command(program, arguments...)
	cmd.Env = append(os.Environ(), "TEST_DRIVER="+filepath.Join(driver, CUDAName))
	return cmd
}

// defined lists what nm finds in a library.
func defined(t testing.TB, path string) map[string]bool {
	t.Helper()
	out, err := exec.Command("nm", "-D", "--defined-only", path).Output()
	if err != nil {
		t.Fatalf("nm %s: %v", path, err)
	}
	names := map[string]bool{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 3 {
			names[fields[2]] = true
		}
	}
	return names
}

func lines(format string, from, to int) string {
	var out strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&out, format+"\n", n)
	}
	return out.String()
}
