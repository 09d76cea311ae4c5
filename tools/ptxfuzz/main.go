// SPDX-License-Identifier: Apache-2.0

// Command ptxfuzz generates random arithmetic kernels, as PTX text and as C for
// the CPU. clib/test/ptxfuzz runs both and compares each value bit by bit; its
// semantics.h says in C what PTX's instructions do, independently of the
// interpreter.
//
//	ptxfuzz -seed 1 -cases 300 -out DIRECTORY
//
// writes DIRECTORY/cases.ptx and DIRECTORY/cases.c. Case N of a seed is the same
// in every run, whatever the number of cases.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
)

func main() {
	seed := flag.Uint64("seed", 1, "which programs")
	first := flag.Int("first", 0, "first case")
	cases := flag.Int("cases", 300, "how many")
	out := flag.String("out", ".", "folder to write to")
	flag.Parse()
	if flag.NArg() > 0 || *cases < 1 || *first < 0 {
		flag.Usage()
		os.Exit(2)
	}
	if err := generate(*seed, *first, *cases, *out); err != nil {
		fmt.Fprintln(os.Stderr, "ptxfuzz:", err)
		os.Exit(1)
	}
}

func generate(seed uint64, first, cases int, folder string) error {
	all := families()
	var kernels []*kernel
	for i := first; i < first+cases; i++ {
		kernels = append(kernels, newKernel(fmt.Sprintf("case%d", i), rand.New(rand.NewPCG(seed, uint64(i))), all))
	}
	if err := write(filepath.Join(folder, "cases.ptx"), func(w io.Writer) { writePTX(w, kernels) }); err != nil {
		return err
	}
	return write(filepath.Join(folder, "cases.c"), func(w io.Writer) { writeC(w, seed, first, kernels) })
}

func write(path string, print func(io.Writer)) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	buffered := bufio.NewWriter(file)
	print(buffered)
	if err := buffered.Flush(); err != nil {
		file.Close()
		return err
	}
	return file.Close()
}

func writePTX(w io.Writer, kernels []*kernel) {
	fmt.Fprint(w, ".version 8.6\n.target sm_100\n.address_size 64\n")
	for _, k := range kernels {
		fmt.Fprintf(w, "%s.visible .entry %s(.param .u64 in, .param .u64 out, .param .u32 threads)\n{\n", k.functions.String(), k.name)
		io.WriteString(w, "\t.reg .u64 %in, %out, %local, %generic;\n\t.reg .u32 %i, %x, %count, %shared;\n\t.reg .pred %scratch, %done;\n"+
			"\t.local .align 16 .b8 mine[16];\n\t.shared .align 16 .b8 ours[1024];\n")
		for i, v := range k.values {
			fmt.Fprintf(w, "\t.reg %s %s;\n", kindFacts[v.kind].reg, reg(i))
		}
		fmt.Fprintf(w, "\tmov.u32 %%i, %%ctaid.x;\n\tmov.u32 %%x, %%ntid.x;\n\tmov.u32 %%count, %%tid.x;\n\tmad.lo.u32 %%i, %%i, %%x, %%count;\n"+
			"\tld.param.u32 %%x, [threads];\n\tsetp.ge.u32 %%done, %%i, %%x;\n\t@%%done bra $Lend;\n"+
			"\tmov.u64 %%local, mine;\n\tmov.u32 %%shared, ours;\n\tmad.lo.u32 %%shared, %%count, 16, %%shared;\n"+
			"\tcvt.u64.u32 %%generic, %%shared;\n\tcvta.shared.u64 %%generic, %%generic;\n"+
			"\tld.param.u64 %%in, [in];\n\tmad.wide.u32 %%in, %%i, %d, %%in;\n"+
			"\tld.param.u64 %%out, [out];\n\tmad.wide.u32 %%out, %%i, %d, %%out;\n", inputWords*8, valuesMost*8)
		fmt.Fprint(w, k.ptx.String())
		for i, v := range k.values {
			switch v.kind {
			case pred:
				fmt.Fprintf(w, "\tselp.u32 %%x, 1, 0, %s;\n\tst.global.u32 [%%out+%d], %%x;\n", reg(i), i*8)
			default:
				fmt.Fprintf(w, "\tst.global%s [%%out+%d], %s;\n", kindFacts[v.kind].reg, i*8, reg(i))
			}
		}
		fmt.Fprint(w, "$Lend:\n\tret;\n}\n")
	}
}

func writeC(w io.Writer, seed uint64, first int, kernels []*kernel) {
	fmt.Fprint(w, "#include \"semantics.h\"\n#include \"cases.h\"\n")
	for _, k := range kernels {
		fmt.Fprintf(w, "%sstatic void %s(const u64 *in, u64 *out)\n{\n", k.cFuncs.String(), k.name)
		for i, v := range k.values {
			fmt.Fprintf(w, "\t%s %s;\n", kindFacts[v.kind].c, cvar(i))
		}
		fmt.Fprint(w, k.c.String())
		for i := range k.values {
			fmt.Fprintf(w, "\tout[%d] = %s;\n", i, cvar(i))
		}
		fmt.Fprint(w, "}\n")
	}
	for _, k := range kernels {
		fmt.Fprintf(w, "static const char *const %s_text[] = {\n", k.name)
		for _, v := range k.values {
			fmt.Fprintf(w, "\t%q,\n", v.text)
		}
		fmt.Fprint(w, "};\n")
	}
	fmt.Fprint(w, "const struct fuzz_case fuzz_cases[] = {\n")
	for _, k := range kernels {
		letters := make([]byte, len(k.values))
		for i, v := range k.values {
			letters[i] = kindFacts[v.kind].letter[0]
		}
		fmt.Fprintf(w, "\t{\"%s\", %s, %d, %q, %s_text},\n", k.name, k.name, len(k.values), letters, k.name)
	}
	fmt.Fprintf(w, "};\nconst u32 fuzz_casecount = %d, fuzz_inputwords = %d, fuzz_valuesmost = %d, fuzz_first = %d;\nconst u64 fuzz_seed = %du;\n",
		len(kernels), inputWords, valuesMost, first, seed)
}
