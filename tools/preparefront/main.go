// SPDX-License-Identifier: Apache-2.0

// Command preparefront prepares a built front for a driver and puts it into a
// folder. The build uses it for the stand-in:
//
//	go run ./tools/preparefront -base lib/divvy/front/base/libcuda.so.1 -driver lib/divvy/standin -out lib/divvy/front
package main

import (
	"flag"
	"fmt"
	"os"

	"github.com/divvy-gpu/divvy/internal/library"
)

func main() {
	base := flag.String("base", "lib/divvy/front/base/libcuda.so.1", "front as it was built")
	driver := flag.String("driver", "", "folder of the driver")
	out := flag.String("out", "", "folder to put the prepared front in")
	flag.Parse()
	if *driver == "" || *out == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	report, err := library.PrepareInto(*base, *driver, *out)
	if err != nil {
		fmt.Fprintf(os.Stderr, "preparefront: error: %v\n", err)
		os.Exit(1)
	}
	if len(report.Left) > 0 {
		fmt.Fprintf(os.Stderr, "preparefront: error: no spare for %q\n", report.Left)
		os.Exit(1)
	}
}
