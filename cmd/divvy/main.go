// SPDX-License-Identifier: Apache-2.0

// Command divvy divides GPUs: arguments in, exit code out.
package main

import (
	"os"

	"github.com/divvy-gpu/divvy/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
