// SPDX-License-Identifier: Apache-2.0

// Command symgen writes clib/gen, everything that follows from the one list of
// driver symbols, out of the facts in data/*.tsv. It runs in the root of the
// repository:
//
//	go run ./tools/symgen
//
// The output is a pure function of the input; the repository's tests generate
// it again and compare.
package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

func main() {
	data := flag.String("data", "data", "folder of the facts")
	out := flag.String("out", "clib/gen", "folder to write")
	docs := flag.String("docs", "docs", "folder of the documents")
	flag.Parse()
	if err := run(*data, *out, *docs); err != nil {
		fmt.Fprintf(os.Stderr, "symgen: error: %v\n", err)
		os.Exit(1)
	}
}

// run generates all files and writes them only when all could be made. Those that
// are right stay as they are: make builds what is older than they.
func run(data, out, docs string) error {
	files, err := generate(data)
	if err != nil {
		return err
	}
	for _, dir := range []string{out, docs} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for name, text := range files {
		file := filepath.Join(out, name)
		if filepath.Ext(name) == ".md" {
			file = filepath.Join(docs, name)
		}
		if old, err := os.ReadFile(file); err == nil && string(old) == text {
			continue
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// generate returns the text of each generated file.
func generate(data string) (map[string]string, error) {
	cuda, err := readFacts(data, "cuda", "cuda-driver")
	if err != nil {
		return nil, err
	}
	nvml, err := readFacts(data, "nvml", "nvml")
	if err != nil {
		return nil, err
	}
	symbols, err := readList(data, cuda, nvml)
	if err != nil {
		return nil, err
	}
	cudaABI, nvmlABI := newABI(cuda), newABI(nvml)
	files := map[string]string{
		"symbols.tsv":       symbolsTSV(symbols),
		"symbols.h":         symbolsHeader(symbols),
		"symbols_table.inc": symbolsTable(symbols),
		"symbols.c":         symbolsSource(),
		"front_jumps.S":     jumps(symbols),
		"nvml_late.inc":     lateCalls(symbols),
	}
	if files["cuda_abi.h"], err = cudaABI.header("DIVVY_CUDA_ABI_H", twinsOf(symbols)); err != nil {
		return nil, fmt.Errorf("cuda_abi.h: %w", err)
	}
	if files["nvml_abi.h"], err = nvmlABI.header("DIVVY_NVML_ABI_H", nil); err != nil {
		return nil, fmt.Errorf("nvml_abi.h: %w", err)
	}
	if files["front_hooks.h"], err = hooksHeader(symbols, cudaABI, nvmlABI); err != nil {
		return nil, fmt.Errorf("front_hooks.h: %w", err)
	}
	if files["front_wrappers.c"], err = wrappers(symbols, cudaABI, nvmlABI); err != nil {
		return nil, fmt.Errorf("front_wrappers.c: %w", err)
	}
	files["front.map"] = exportMap(frontExports(symbols))
	for _, generation := range generations {
		files["standin-"+generation.name+".map"] = exportMap(append(exportsOf(symbols, generation.version), "divvy_standin"))
	}
	files["null.map"] = exportMap(exportsOf(symbols, nullGeneration))
	if files["null_calls.inc"], err = nullCalls(symbols, cudaABI, nvmlABI); err != nil {
		return nil, fmt.Errorf("null_calls.inc: %w", err)
	}
	carried, err := readCarriages(data, symbols)
	if err != nil {
		return nil, err
	}
	remote, err := remoteFiles(symbols, carried, cudaABI, nvmlABI)
	if err != nil {
		return nil, fmt.Errorf("remote: %w", err)
	}
	maps.Copy(files, remote)
	files["remote.map"] = exportMap(exportsOf(symbols, generations[len(generations)-1].version))
	variants, err := readVariants(data, symbols)
	if err != nil {
		return nil, err
	}
	files["procaddress.inc"] = procAddress(variants)
	files["meaning.h"] = meaningHeader()
	return files, nil
}
