// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// complain tells what went wrong and, where known, what helps.
func (a *app) complain(err error) {
	fmt.Fprintf(a.stderr, "divvy: error: %s\n", oneLine(err.Error()))
	if hint := hintOf(err); hint != "" {
		fmt.Fprintf(a.stderr, "divvy: hint: %s\n", oneLine(hint))
	}
}

// note tells something that is no error.
func (a *app) note(format string, args ...any) {
	fmt.Fprintf(a.stderr, "divvy: note: %s\n", oneLine(fmt.Sprintf(format, args...)))
}

// jsonFlag adds --json.
func jsonFlag(cmd *cobra.Command, asJSON *bool) {
	cmd.Flags().BoolVar(asJSON, "json", false, "print JSON (docs/json.md)")
}

// writeJSON prints one document.
func (a *app) writeJSON(document any) error {
	encoder := json.NewEncoder(a.stdout)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// table prints rows under a header; cells of the columns named in right are
// numbers.
type table struct {
	rows [][]string
}

func newTable(header ...string) *table { return &table{rows: [][]string{header}} }

func (t *table) add(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) write(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range t.rows {
		for i, cell := range row {
			row[i] = oneLine(cell)
			if row[i] == "" {
				row[i] = "-"
			}
		}
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	return out.Flush()
}

// isTerminal says whether w can redraw lines.
func isTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// shortUUID is enough of a card's UUID to name it.
func shortUUID(uuid string) string {
	if len(uuid) > 12 {
		return uuid[:12]
	}
	return uuid
}

// warnUnresponsive says of which GPUs what is shown is from before.
func (a *app) warnUnresponsive(cards []string) {
	for _, uuid := range cards {
		fmt.Fprintf(a.stderr, "divvy: warning: the driver of %s does not answer: what is shown of it is from before (divvy doctor)\n", shortUUID(uuid))
	}
}

// wideFlag adds -o wide to a command that prints a table.
func wideFlag(cmd *cobra.Command, form *string) {
	cmd.Flags().StringVarP(form, "output", "o", formTable, "`form`: table, wide")
	complete(cmd, "output", words(formTable, formWide))
}

// isWide reads what wideFlag took.
func isWide(form string) (bool, error) {
	switch form {
	case formTable, formWide:
		return form == formWide, nil
	}
	return false, usage(fmt.Errorf("--output: %q is not table or wide", form))
}
