// SPDX-License-Identifier: Apache-2.0

// Command divvy-agent is what `divvy agent` becomes: arguments in, exit code out.
package main

import (
	"os"

	_ "modernc.org/sqlite" // the database of history and usage

	"github.com/divvy-gpu/divvy/internal/cli"
	"github.com/divvy-gpu/divvy/internal/metrics"
)

func main() {
	host, _ := os.Hostname() // a machine without a name has none
	os.Exit(cli.AgentMain(os.Args[1:], os.Stdin, os.Stdout, os.Stderr, cli.Exporters{Metrics: metrics.Handler, DCGM: metrics.DCGMHandler(host)}))
}
