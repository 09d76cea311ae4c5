// SPDX-License-Identifier: Apache-2.0

// Package cli has the subcommands of divvy-kube. It is the only place where the parts are
// put together, and where a context begins.
package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
)

// version is set by the linker to the content of the VERSION file.
var version = "dev"

// Exit codes, as those of divvy.
const (
	exitOK    = 0
	exitError = 1
	exitUsage = 2
)

var errUsage = errors.New("usage")

// Run is the whole program; it returns the exit code.
func Run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use: "divvy-kube", Short: "Divvy's shares of GPUs in Kubernetes", SilenceErrors: true, SilenceUsage: true,
		Version: version,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return errors.Join(errUsage, err) })
	root.AddCommand(nodeCommand(), hostCommand(), doctorCommand())
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "divvy-kube: error:", err)
		return exitUsage
	case errors.Is(err, errUnfit): // the report says why
		return exitError
	default:
		fmt.Fprintln(os.Stderr, "divvy-kube: error:", err)
		return exitError
	}
}
