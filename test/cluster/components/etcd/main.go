// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd, as its own main package starts it; that one is in a module that
// cannot be built from outside.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() { etcdmain.Main(os.Args) }
