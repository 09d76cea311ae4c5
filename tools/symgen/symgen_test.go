// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const (
	dataDir = "../../data"
	genDir  = "../../clib/gen"
)

// TestGeneratedFilesAreCurrent generates clib/gen again and compares.
func TestGeneratedFilesAreCurrent(t *testing.T) {
	dir, docs := t.TempDir(), t.TempDir()
	if err := run(dataDir, dir, docs); err != nil {
		t.Fatal(err)
	}
	a, err := os.ReadFile(filepath.Join(docs, "remote-calls.md"))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile("../../docs/remote-calls.md"); err != nil || string(a) != string(b) {
		t.Error("docs/remote-calls.md differs from what tools/symgen writes; run make generate")
	}
	for _, pair := range [][2]string{{dir, genDir}, {genDir, dir}} {
		entries, err := os.ReadDir(pair[0])
		if err != nil {
			t.Fatal(err)
		}
		for _, entry := range entries {
			a, err := os.ReadFile(filepath.Join(pair[0], entry.Name()))
			if err != nil {
				t.Fatal(err)
			}
			b, err := os.ReadFile(filepath.Join(pair[1], entry.Name()))
			if err != nil || string(a) != string(b) {
				t.Errorf("clib/gen/%s differs from what tools/symgen writes; run make generate", entry.Name())
			}
		}
	}
}

// copyData copies the facts and lets the test change them.
func copyData(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	files, err := filepath.Glob(filepath.Join(dataDir, "*.tsv"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no facts found: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func appendTo(t *testing.T, dir, name, line string) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(line + "\n"); err != nil {
		t.Fatal(err)
	}
}

func TestRefusesBadFacts(t *testing.T) {
	for _, test := range []struct{ name, file, line, want string }{
		{"an export without a fate", "cuda-driver-exports.tsv", "cuBrandNew\t13.0\tseen", "cuBrandNew is unclassified"},
		{"an unknown fate", "fates.tsv", "cuBrandNew\tignored\tharmless", "no such fate"},
		{"an unknown class", "fates.tsv", "cuBrandNew\tpassed\tnice", "no such fate or class"},
		{"a fate without an export", "fates.tsv", "cuBrandNew\tpassed\tharmless", "is no export"},
		{"a fate that stands twice", "fates.tsv", "cuInit\tpassed\tharmless", "stands twice"},
		{"an allocator that is passed", "fates.tsv", "cuMemAllocAsync_ptsz\tpassed\tallocates\tpool", "and yet is passed"},
		{"an allocator without a holder", "fates.tsv", "cuMemAllocAsync_ptsz\thooked\tallocates", "who holds that"},
		{"an unknown holder", "fates.tsv", "cuMemAllocAsync_ptsz\thooked\tallocates\theirs", "no such holder"},
		{"a holder whom nobody sees", "fates.tsv", "cuMemcpy_ptds\tpassed\tharmless\tholders", "nobody sees"},
		{"a hook without a signature", "fates.tsv", "cuGLInit_x\thooked\tharmless", "is no export"},
		{"an unknown type", "cuda-driver-api.tsv", "cuBrandNew\t13.0\t\tCUresult\tCUbrandNew *x", "CUbrandNew is not known"},
		{"a bit-field", "cuda-driver-types.tsv", "struct\tCUbits_st\tunsigned int a : 3", "bit-field"},
		{"an inner type without its member", "cuda-driver-types.tsv", "union\tCUlost_st__bindgen_ty_1\tint a; float b", "a member is missing"},
		{"a missing column", "cuda-driver-exports.tsv", "cuBrandNew\t13.0", "2 columns"},
		{"a variant nobody exports", "procaddress.tsv", "cuBrandNew\tcuBrandNew_v2\t3020", "is no export"},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := copyData(t)
			appendTo(t, dir, test.file, test.line)
			_, err := generate(dir)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Fatalf("error is %v, want one with %q", err, test.want)
			}
		})
	}
}

// TestEveryAllocatorIsHooked names the calls that are easily forgotten.
func TestEveryAllocatorIsHooked(t *testing.T) {
	cuda, err := readFacts(dataDir, "cuda", "cuda-driver")
	if err != nil {
		t.Fatal(err)
	}
	nvml, err := readFacts(dataDir, "nvml", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := readList(dataDir, cuda, nvml)
	if err != nil {
		t.Fatal(err)
	}
	fate := map[string]string{}
	for _, s := range symbols {
		fate[s.name] = s.fate
	}
	for _, name := range strings.Fields(`
		cuMemAlloc cuMemAlloc_v2 cuMemAllocPitch cuMemAllocPitch_v2 cuMemAllocManaged cuMemAllocAsync cuMemAllocAsync_ptsz
		cuMemAllocFromPoolAsync cuMemAllocFromPoolAsync_ptsz cuArrayCreate cuArrayCreate_v2 cuArray3DCreate cuArray3DCreate_v2
		cuMipmappedArrayCreate cuMemCreate cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPoolCreate cuMemPoolImportPointer
		cuMemPoolImportFromShareableHandle cuMulticastCreate cuMulticastBindMem cuMulticastBindAddr cuIpcOpenMemHandle
		cuIpcOpenMemHandle_v2 cuImportExternalMemory cuExternalMemoryGetMappedBuffer cuExternalMemoryGetMappedMipmappedArray
		cuGraphAddMemAllocNode cuGraphAddNode cuGraphAddNode_v2 cuGraphInstantiate cuGraphInstantiate_v2
		cuGraphInstantiateWithFlags cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz cuGraphUpload cuGraphLaunch
		cuModuleLoad cuModuleLoadData cuModuleLoadDataEx cuModuleLoadFatBinary cuLibraryLoadData cuLibraryLoadFromFile
		cuCtxSetLimit cuGreenCtxCreate cuCtxCreate cuCtxCreate_v2 cuCtxCreate_v3 cuCtxCreate_v4 cuDevicePrimaryCtxRetain
		cuLaunch cuLaunchGrid cuLaunchGridAsync cuLaunchKernel cuLaunchKernel_ptsz cuLaunchKernelEx cuLaunchKernelEx_ptsz
		cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuLaunchCooperativeKernelMultiDevice cuGraphLaunch_ptsz`) {
		if fate[name] != "hooked" {
			t.Errorf("%s is %q, want hooked", name, fate[name])
		}
	}
}

// TestExportListSizes compares with the sizes that the facts announce.
func TestExportListSizes(t *testing.T) {
	rows, err := readTable(filepath.Join(dataDir, "cuda-driver-exports.tsv"), 3)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct{ version, symbols int }{{11080, 556}, {12020, 600}, {12080, 659}, {13000, 682}, {13010, 692}} {
		count := 0
		for _, row := range rows {
			version, err := parseVersion(row[1])
			if err != nil {
				t.Fatal(err)
			}
			if version <= want.version {
				count++
			}
		}
		if count != want.symbols {
			t.Errorf("%d symbols in generation %d, want %d", count, want.version, want.symbols)
		}
	}
}

// compile runs a C compiler over a source text; a missing compiler fails.
func compile(t *testing.T, compiler, source string, arguments ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "unit.c")
	if err := os.WriteFile(file, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	arguments = append([]string{"-std=gnu17", "-I" + genDir, file}, arguments...)
	if out, err := exec.Command(compiler, arguments...).CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", compiler, err, out)
	}
}

func TestHeadersCompileAlone(t *testing.T) {
	for _, compiler := range []string{"gcc", "clang"} {
		for _, source := range []string{
			"#include \"cuda_abi.h\"\n", "#include \"nvml_abi.h\"\n", "#include \"symbols.h\"\n", "#include \"front_hooks.h\"\n",
			"#include \"cuda_abi.h\"\n#include \"nvml_abi.h\"\n",
		} {
			compile(t, compiler, source, "-fsyntax-only", "-Wall", "-Wextra", "-Wstrict-prototypes", "-Werror")
		}
	}
}

// What is understood of a field, declared again, is understood the same way.
func FuzzParseField(f *testing.F) {
	f.Add("unsigned int[16] reserved")
	f.Add("const void *name")
	f.Add("CUgraphNode **nodes")
	f.Add("int a : 3")
	f.Fuzz(func(t *testing.T, text string) {
		one, err := parseField(text)
		if err != nil {
			return
		}
		again, err := parseField(declare(one.ctype, one.name))
		again.bound = one.bound
		if err != nil || again != one {
			t.Errorf("%q is %+v, and declared again %+v, %v", text, one, again, err)
		}
	})
}

// TestHoldersAreDocumented compares the table of docs/charging.md with the facts.
func TestHoldersAreDocumented(t *testing.T) {
	cuda, err := readFacts("../../data", "cuda", "cuda-driver")
	if err != nil {
		t.Fatal(err)
	}
	nvml, err := readFacts("../../data", "nvml", "nvml")
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := readList("../../data", cuda, nvml)
	if err != nil {
		t.Fatal(err)
	}
	version := regexp.MustCompile(`_v\d+$`)
	calls := map[string]map[string]bool{}
	for _, s := range symbols {
		if s.holder == "" {
			continue
		}
		if calls[s.holder] == nil {
			calls[s.holder] = map[string]bool{}
		}
		calls[s.holder]["`"+version.ReplaceAllString(s.plain(), "")+"`"] = true
	}
	page, err := os.ReadFile("../../docs/charging.md")
	if err != nil {
		t.Fatal(err)
	}
	for holder, want := range calls {
		names := slices.Sorted(maps.Keys(want))
		row := fmt.Sprintf("| %s | %s |", holder, strings.Join(names, ", "))
		if !strings.Contains(string(page), row) {
			t.Errorf("docs/charging.md lacks the row\n%s", row)
		}
	}
}
