// SPDX-License-Identifier: Apache-2.0

package cdi

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Driver is an NVIDIA driver by the real paths of its files on the host, or a
// stand-in.
type Driver struct {
	CUDA       string
	NVML       string
	Companions []File   // libraries that libcuda opens by name
	Tools      []string // programs
	Simulator  string   // the socket behind a stand-in
}

// File is a file under the name by which it is looked for.
type File struct {
	Name string
	Path string
}

// companions are the libraries beside libcuda that it opens by name, and those
// that work on its contexts. What reaches a card by another way (OpenGL,
// Vulkan, OpenCL) is not here: a share would not hold it.
func companions() []string {
	return []string{
		"libnvidia-ptxjitcompiler.so.*", "libnvidia-nvvm.so.*", "libnvidia-nvvm70.so.*", "libnvidia-gpucomp.so.*",
		"libnvcuvid.so.*", "libnvidia-encode.so.*",
	}
}

// FindDriver finds the files of the driver whose libraries, or links to them,
// are cuda and nvml.
func FindDriver(cuda, nvml, simulator string) (Driver, error) {
	d := Driver{Simulator: simulator}
	for _, library := range []struct {
		path string
		into *string
	}{{cuda, &d.CUDA}, {nvml, &d.NVML}} {
		real, err := filepath.EvalSymlinks(library.path)
		if err != nil {
			return d, fmt.Errorf("driver: %w", err)
		}
		if *library.into, err = filepath.Abs(real); err != nil {
			return d, fmt.Errorf("driver: %w", err)
		}
	}
	for _, pattern := range companions() {
		found, err := filepath.Glob(filepath.Join(filepath.Dir(d.CUDA), pattern))
		if err != nil {
			return d, fmt.Errorf("driver: %w", err)
		}
		for _, path := range found {
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				continue // a link to nothing is of no use to anybody
			}
			d.Companions = append(d.Companions, File{Name: filepath.Base(path), Path: real})
		}
	}
	slices.SortFunc(d.Companions, func(a, b File) int { return cmp.Compare(a.Name, b.Name) })
	if simulator == "" {
		const tool = "/usr/bin/nvidia-smi"
		if real, err := filepath.EvalSymlinks(tool); err == nil {
			if info, err := os.Stat(real); err == nil && info.Mode().IsRegular() {
				d.Tools = append(d.Tools, tool)
			}
		}
	}
	return d, nil
}
