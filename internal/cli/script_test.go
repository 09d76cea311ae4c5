// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// -update rewrites the golden files in the scripts.
var update = flag.Bool("update", false, "rewrite golden output in testdata/script")

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"divvy":   func() { os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
		"passon":  passOnHelper,
		"leader":  leaderHelper,
		"counter": counterHelper,
		"job":     jobHelper,

		"divvy-worker":  fakeWorker,
		"remoteprogram": remoteProgram,
	})
}

// TestScripts runs testdata/script over the libraries that `make build` left.
// Each script has a private folder of its own and a machine without a GPU.
func TestScripts(t *testing.T) {
	libraries, err := filepath.Abs("../../lib/divvy")
	if err != nil {
		t.Fatal(err)
	}
	if !exists(filepath.Join(libraries, "front", "libcuda.so.1")) {
		t.Fatalf("no built libraries in %s: run make build first", libraries)
	}
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update,
		Setup: func(env *testscript.Env) error {
			// Socket paths are short; the folder of a script is not.
			runtime, err := os.MkdirTemp("/tmp", "dv")
			if err != nil {
				return err
			}
			env.Setenv("XDG_RUNTIME_DIR", runtime)
			env.Setenv("XDG_CACHE_HOME", filepath.Join(env.WorkDir, "cache"))
			env.Setenv("DIVVY_LIBDIR", libraries)
			env.Setenv("TZ", "UTC")
			env.Setenv("DIVVY_ROOT", env.WorkDir) // a machine without cards
			env.Defer(func() {
				clean := exec.Command("divvy", "cleanup", "--force")
				clean.Path, clean.Env = lookIn(env.Getenv("PATH"), "divvy"), env.Vars
				if out, err := clean.CombinedOutput(); err != nil {
					t.Errorf("divvy cleanup --force: %v\n%s", err, out)
				}
				_ = os.RemoveAll(runtime)
			})
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":      exitsCommand,
			"eventually": eventuallyCommand,
			"remotelibs": remoteLibsCommand,
			"freeport":   freePortCommand,
		},
	})
}

func lookIn(path, program string) string {
	for _, folder := range filepath.SplitList(path) {
		if name := filepath.Join(folder, program); exists(name) {
			return name
		}
	}
	return program
}

// exitsCommand is: exits CODE PROGRAM ARGUMENTS...
func exitsCommand(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGUMENTS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	var exit *exec.ExitError
	if err := ts.Exec(args[1], args[2:]...); errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s exited with %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}
