// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/divvy-gpu/divvy/internal/wire"
)

// version is set by the build (Makefile) from the file VERSION.
var version = "0.0.0-unbuilt"

// versionReport is `divvy version --json`.
type versionReport struct {
	Schema   string `json:"schema"`
	Version  string `json:"version"`
	Wire     int    `json:"wire"` // of the pages and messages shared with the front library
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// versionLine is the version for people, also `divvy --version`.
func versionLine() string { return fmt.Sprintf("divvy %s (wire %d)\n", version, wire.Version) }

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this program",
		Example: `  divvy version --json`,
		Args:    noArguments,
	}
	cmd.RunE = a.action(func(*cobra.Command, []string) error {
		if asJSON {
			return a.writeJSON(versionReport{
				Schema: "divvy.cliversion/v1", Version: version, Wire: wire.Version,
				Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
			})
		}
		_, err := io.WriteString(a.stdout, versionLine())
		return err
	})
	jsonFlag(cmd, &asJSON)
	return cmd
}
