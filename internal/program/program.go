// SPDX-License-Identifier: Apache-2.0

// Package program reads what a program wants of a GPU before it starts: by which library
// it reaches the driver, and for which GPUs it brings code.
//
//	found, err := program.Read("/usr/bin/ffmpeg", os.Getenv("LD_LIBRARY_PATH"))
//	kind, why := found.Simulated()
//
// It reads files, those of the libraries that the program needs too, and runs nothing. What a
// program loads later by a name that it computes is not seen.
package program

import (
	"bufio"
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what a file may make us read.
const (
	maxBytes   = 4 << 30 // of a file
	maxParts   = 1 << 16 // of its fat binaries
	maxLine    = 4096
	chunkBytes = 1 << 20
)

// Verdict says whether something runs.
type Verdict string

// Verdicts, from the best to the worst.
const (
	Runs    Verdict = "runs"
	Perhaps Verdict = "perhaps" // it depends on what the detail says
	Not     Verdict = "does not run"
)

// Code is what a file brings for GPUs.
type Code struct {
	PTX     []int // architectures, sorted: 80 for sm_80
	Machine []int
}

func (c Code) none() bool { return len(c.PTX)+len(c.Machine) == 0 }

// Found is what a file says of itself.
type Found struct {
	Path        string
	Interpreter string // of a script
	Needs       []string
	Runtime     string // the vendor's runtime library that it uses: a name, "inside", or empty
	Code        Code
	Libraries   []Found // that it needs, and they in turn: those with a Runtime or Code
}

// inside are names whose presence in a file tells that the runtime library is inside: what it
// asks the driver for, and what it alone says. In halves: whole, they would be in every program
// that has this package inside.
var inside = [][]byte{join("cuGet", "ExportTable"), join("cudaErrorSoftware", "ValidityNotEstablished")}

func join(halves ...string) []byte { return []byte(strings.Join(halves, "")) }

// carriers are the libraries that are the runtime, or bring it.
var carriers = []string{"libcudart.so", "libcublas.so", "libcublasLt.so", "libcudnn.so", "libcufft.so", "libcusparse.so", "libcusolver.so", "libcurand.so", "libnccl.so"}

// Read looks at a program or library and at what it needs, or at a script's first line.
// libraryPath is the LD_LIBRARY_PATH that it will have.
func Read(path, libraryPath string) (Found, error) {
	found, own, err := readFile(path, true)
	if err == nil && len(found.Needs) > 0 {
		found.Libraries = newSearch(libraryPath).follow(found, own)
	}
	return found, err
}

// readFile looks at one file; own are the folders where it has its libraries looked for. In
// a library the runtime is looked for only where there is code for GPUs.
func readFile(path string, isProgram bool) (found Found, own []string, err error) {
	found.Path = path
	file, err := os.Open(path)
	if err != nil {
		return found, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return found, nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxBytes {
		return found, nil, fmt.Errorf("%s is no file of at most %d bytes", path, int64(maxBytes))
	}
	image, err := elf.NewFile(file)
	if err != nil {
		found.Interpreter, err = interpreter(file)
		return found, nil, err
	}
	if found.Needs, err = image.ImportedLibraries(); err != nil {
		found.Needs = nil // a static program has none
	}
	own = paths(image, path)
	if i := slices.IndexFunc(found.Needs, carries); i >= 0 {
		found.Runtime = found.Needs[i]
	}
	for _, section := range image.Sections {
		if section.Name == ".nv_fatbin" && section.Type == elf.SHT_PROGBITS {
			found.Code = readFat(section.ReaderAt, int64(section.Size))
		}
	}
	if found.Runtime == "" && (isProgram || !found.Code.none()) {
		all, err := contains(io.NewSectionReader(file, 0, info.Size()), inside)
		if err != nil {
			return found, nil, err
		}
		if all {
			found.Runtime = "inside"
		}
	}
	return found, own, nil
}

// carries says whether a library is the runtime or brings it.
func carries(library string) bool {
	return slices.ContainsFunc(carriers, func(name string) bool { return strings.HasPrefix(library, name) })
}

// interpreter is what the first line of a script names; none is no error.
func interpreter(file *os.File) (string, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(io.LimitReader(file, maxLine)).ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	rest, ok := strings.CutPrefix(line, "#!")
	words := strings.Fields(rest)
	if !ok || len(words) == 0 {
		return "", nil
	}
	if filepath.Base(words[0]) == "env" {
		for _, word := range words[1:] {
			if !strings.HasPrefix(word, "-") && !strings.Contains(word, "=") {
				return word, nil
			}
		}
	}
	return words[0], nil
}

// contains says whether all of some words are in a file.
func contains(r io.Reader, words [][]byte) (bool, error) {
	seen := make([]bool, len(words))
	longest := 0
	for _, w := range words {
		longest = max(longest, len(w))
	}
	buffer := make([]byte, 0, chunkBytes+longest)
	for {
		n, err := io.ReadFull(r, buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		for i, w := range words {
			seen[i] = seen[i] || bytes.Contains(buffer, w)
		}
		if !slices.Contains(seen, false) {
			return true, nil
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		kept := copy(buffer[:longest], buffer[len(buffer)-longest:])
		buffer = buffer[:kept]
	}
}

// Uses is the vendor's runtime library that it uses, and by which of its libraries; empty: none.
func (f Found) Uses() string {
	for _, one := range append([]Found{f}, f.Libraries...) {
		switch {
		case one.Runtime == "":
		case one.Path == f.Path:
			return one.Runtime
		case one.Runtime == "inside":
			return "inside " + filepath.Base(one.Path)
		default:
			return one.Runtime + ", by " + filepath.Base(one.Path)
		}
	}
	return ""
}

// Simulated says whether it can run on a simulated GPU, and why.
func (f Found) Simulated() (Verdict, string) {
	verdict, why := f.alone()
	for _, library := range f.Libraries {
		of, reason := library.alone()
		if of == Not && verdict != Not || of == Runs && verdict == Perhaps {
			verdict, why = of, "of "+filepath.Base(library.Path)+": "+reason
		}
	}
	return verdict, why
}

// alone is Simulated without the libraries.
func (f Found) alone() (Verdict, string) {
	switch {
	case f.Runtime == "inside":
		return Not, "it has NVIDIA's runtime library inside, which asks the driver for private tables that a simulated one does not have"
	case f.Runtime != "":
		return Not, "it needs " + f.Runtime + ", which asks the driver for private tables that a simulated one does not have"
	case len(f.Code.Machine) > 0 && len(f.Code.PTX) == 0:
		return Not, "it has machine code for " + targets(f.Code.Machine) + " and no PTX"
	case len(f.Code.PTX) > 0:
		return Runs, "it has PTX for " + targets(f.Code.PTX) + ": on GPUs that are as new"
	}
	return Perhaps, "it brings no code for GPUs of its own: what it loads or compiles decides"
}

func targets(list []int) string {
	words := make([]string, 0, len(list))
	for _, one := range list {
		words = append(words, fmt.Sprintf("sm_%d", one))
	}
	return strings.Join(words, ", ")
}
