// SPDX-License-Identifier: Apache-2.0

// Command machinegen writes the machines that the tests of the inventory read:
// what the kernel's files would say there, as archives in
// internal/gpu/testdata/machines. The README there says where the facts are from.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

const folder = "internal/gpu/testdata/machines"

func main() {
	for name, make := range map[string]func(comment string) *machine{
		"mi300x-cpx": mi300xCPX, "mi210-xgmi": mi210XGMI, "flex170": flex170, "battlemage": battlemage,
		"nvidia-mdev": nvidiaMdev, "nvidia-vfio": nvidiaVFIO, "nvidia-off": nvidiaOff, "gvtg-laptop": gvtgLaptop, "mixed": mixed,
		"others": others, "no-gpu": noGPU,
	} {
		comment := "# " + name + ": hand-made by tools/machinegen; sources in README.md.\n"
		file := filepath.Join(folder, name+".txtar")
		if err := os.WriteFile(file, []byte(make(comment).text()), 0o644); err != nil {
			fmt.Fprintf(os.Stderr, "machinegen: %v\n", err)
			os.Exit(1)
		}
	}
}
