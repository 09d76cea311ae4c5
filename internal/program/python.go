// SPDX-License-Identifier: Apache-2.0

package program

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Package is one of a Python environment that uses GPUs.
type Package struct {
	Name, Version string
	Simulated     Verdict
	Why           string
}

// known are the packages that docs/programs.md is about.
var known = map[string]struct {
	verdict Verdict
	why     string
}{
	"tinygrad":          {Runs, "with DEV=CUDA:PTX"},
	"drjit":             {Runs, "it makes PTX of its own"},
	"numba_cuda":        {Runs, "with a driver that reads the PTX of its toolkit (12.9: --driver 13.0)"},
	"cuda_core":         {Runs, "with PTX of NVRTC, and a driver that reads it (12.9: --driver 13.0)"},
	"taichi":            {Perhaps, "it makes PTX of its own; not tried"},
	"torch":             {Not, runtimeInside},
	"tensorflow":        {Not, runtimeInside},
	"jax_cuda12_plugin": {Not, runtimeInside},
	"jax_cuda13_plugin": {Not, runtimeInside},
	"cupy_cuda12x":      {Not, runtimeInside},
	"cupy_cuda13x":      {Not, runtimeInside},
	"warp_lang":         {Not, runtimeInside},
	"onnxruntime_gpu":   {Not, runtimeInside},
	"xgboost":           {Not, runtimeInside},
	"ctranslate2":       {Not, runtimeInside},
	"bitsandbytes":      {Not, runtimeInside},
	"vllm":              {Not, runtimeInside},
}

const runtimeInside = "NVIDIA's runtime library asks the driver for private tables that a simulated one does not have"

// ReadPython looks at the environment that a Python belongs to, by the names of what is
// installed there; folder is the environment's, with bin and lib. ok: it is one.
func ReadPython(folder string) (packages []Package, ok bool, err error) {
	var sites []string
	for _, of := range []string{"lib/python3*/site-packages", "lib64/python3*/site-packages", "lib/python3/dist-packages"} {
		some, err := filepath.Glob(filepath.Join(folder, of))
		if err != nil {
			return nil, false, err
		}
		sites = append(sites, some...)
	}
	if sites = distinct(sites); len(sites) == 0 {
		return nil, false, nil
	}
	linker := false
	for _, site := range sites {
		entries, err := os.ReadDir(site)
		if err != nil {
			return nil, true, fmt.Errorf("read the Python environment: %w", err)
		}
		for _, entry := range entries {
			name, isInfo := strings.CutSuffix(entry.Name(), ".dist-info")
			name, version, _ := strings.Cut(name, "-")
			name = strings.ToLower(strings.ReplaceAll(name, "-", "_"))
			if !isInfo || strings.HasSuffix(version, "+cpu") {
				continue
			}
			linker = linker || strings.HasPrefix(name, "nvidia_nvjitlink")
			if row, is := known[name]; is {
				packages = append(packages, Package{Name: strings.ReplaceAll(name, "_", "-"), Version: version, Simulated: row.verdict, Why: row.why})
			}
		}
	}
	for i := range packages {
		if linker && packages[i].Name == "numba-cuda" {
			packages[i].Simulated = Not
			packages[i].Why = "with nvidia-nvjitlink it asks for machine code: pip uninstall it"
		}
	}
	slices.SortFunc(packages, func(a, b Package) int { return strings.Compare(a.Name, b.Name) })
	return packages, true, nil
}

// distinct leaves out folders that are links to others of them, as lib64 is.
func distinct(folders []string) (left []string) {
	seen := map[string]bool{}
	for _, folder := range folders {
		real, err := filepath.EvalSymlinks(folder)
		if err != nil || seen[real] {
			continue
		}
		seen[real] = true
		left = append(left, folder)
	}
	return left
}
