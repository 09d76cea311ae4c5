// SPDX-License-Identifier: Apache-2.0

package program

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// link makes a library, or a program where the name says so, of nothing but what it needs.
func link(t *testing.T, folder, name string, flags ...string) string {
	t.Helper()
	path := filepath.Join(folder, name)
	kind := []string{"-shared", "-Wl,-soname," + name}
	if !strings.Contains(name, ".so") {
		kind = []string{"-Wl,-e,0"}
	}
	args := append([]string{"-x", "c", "/dev/null", "-x", "none", "-nostdlib", "-Wl,--no-as-needed", "-o", path, "-L" + folder}, kind...)
	if out, err := exec.Command("gcc", append(args, flags...)...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
	return path
}

// withSection adds the code for GPUs to a library.
func withSection(t *testing.T, path string, content []byte) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "fat")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("objcopy", "--add-section", ".nv_fatbin="+file, path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// A program whose library's library is, or has, what cannot run on a simulated GPU is told
// from one whose libraries bring PTX alone.
func TestReadFollowsLibraries(t *testing.T) {
	folder, far := t.TempDir(), t.TempDir()
	link(t, far, "libcudart.so.12")
	link(t, folder, "libruntime.so", "-L"+far, "-l:libcudart.so.12")
	link(t, folder, "libahead.so", "-lruntime", "-Wl,-rpath,$ORIGIN")
	withSection(t, link(t, folder, "libptx.so"), fat(part(kindPTX, 61, 8)))
	withSection(t, link(t, folder, "libmachine.so"), fat(part(kindCode, 89, 64)))
	static := link(t, folder, "libstatic.so")
	withSection(t, static, append(fat(part(kindPTX, 61, 8)), append(inside[0], inside[1]...)...))
	link(t, folder, "libring.so")
	link(t, folder, "libround.so", "-lring", "-Wl,-rpath,$ORIGIN")
	link(t, folder, "libring.so", "-lround", "-Wl,-rpath,${ORIGIN}")
	nowhere := link(t, folder, "libnowhere.so")

	here := "-Wl,-rpath," + folder + ",--disable-new-dtags"
	for name, c := range map[string]struct {
		flags       []string
		libraryPath string
		want        Verdict
		says, uses  string
	}{
		"runtime":    {[]string{"-lahead", here, "-Wl,--allow-shlib-undefined,-rpath-link," + far}, "", Not, "of libruntime.so: it needs libcudart.so.12", "libcudart.so.12, by libruntime.so"},
		"environ":    {[]string{"-lahead", "-Wl,-rpath-link," + folder + ":" + far}, "relative:" + folder, Not, "libruntime.so", "libcudart.so.12, by libruntime.so"},
		"not found":  {[]string{"-lahead", "-Wl,-rpath-link," + folder + ":" + far}, "", Perhaps, "decides", ""},
		"ptx":        {[]string{"-lptx", here}, "", Runs, "of libptx.so: it has PTX for sm_61", ""},
		"machine":    {[]string{"-lptx", "-lmachine", here}, "", Not, "of libmachine.so: it has machine code for sm_89", ""},
		"static":     {[]string{"-lptx", "-lstatic", here}, "", Not, "of libstatic.so: it has NVIDIA's", "inside libstatic.so"},
		"in a ring":  {[]string{"-lring", here}, "", Perhaps, "decides", ""},
		"one is not": {[]string{"-lnowhere", "-lptx", here}, "", Runs, "libptx.so", ""},
	} {
		path := link(t, folder, "program", c.flags...)
		if name == "one is not" {
			if err := os.Remove(nowhere); err != nil {
				t.Fatal(err)
			}
		}
		found, err := Read(path, c.libraryPath)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got, why := found.Simulated(); got != c.want || !strings.Contains(why, c.says) || found.Uses() != c.uses {
			t.Errorf("%s: %s, %q, uses %q", name, got, why, found.Uses())
		}
		if name == "one is not" {
			nowhere = link(t, folder, "libnowhere.so")
		}
	}
}

func TestConfigured(t *testing.T) {
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("b.conf", "/b # of b\nrelative\n")
	write("a.conf", "/a\ninclude "+folder+"/*.conf\n")
	top := write("top", "# nothing\ninclude "+folder+"/*.conf\n\n /own\ninclude [\n")
	if got, want := configured(top, true), []string{"/a", "/b", "/own"}; !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	many := write("many", strings.Repeat("/x\n", 10*maxFolders))
	if got := configured(many, true); len(got) != maxFolders {
		t.Errorf("%d folders", len(got))
	}
	if got := configured(filepath.Join(folder, "none"), true); got != nil {
		t.Errorf("of no file: %q", got)
	}
}
