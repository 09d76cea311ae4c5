// SPDX-License-Identifier: Apache-2.0

// Command divvy-kube brings Divvy's shares into Kubernetes: each subcommand is one part
// that runs in a cluster.
package main

import (
	"os"

	"github.com/divvy-gpu/divvy/kube/internal/cli"
)

func main() { os.Exit(cli.Run(os.Args[1:])) }
