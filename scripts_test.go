// SPDX-License-Identifier: Apache-2.0

package divvy_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs testdata/scripts: what make shows, by scripts/build, step and
// parts, and what scripts/clients cannot have.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: filepath.Join("testdata", "scripts"),
		Setup: func(env *testscript.Env) error {
			return os.CopyFS(filepath.Join(env.WorkDir, "scripts"), os.DirFS("scripts"))
		},
	})
}
