// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/divvy-gpu/divvy/internal/program"
)

const maxInterpreterBytes = 4096

// mostInterpreters is how many scripts the kernel lets stand behind each other.
const mostInterpreters = 5

// examineProgram says whether a share can hold a program: our library must be
// loaded into it, or into what runs the script that it is, by the dynamic linker.
func examineProgram(name string) (status, detail, hint string) {
	return examineBehind(name, mostInterpreters)
}

func examineBehind(name string, scripts int) (status, detail, hint string) {
	path, err := findCommand(name)
	if err != nil {
		return checkFail, err.Error(), ""
	}
	info, err := os.Stat(path)
	if err != nil {
		return checkFail, err.Error(), ""
	}
	file, err := elf.Open(path)
	if err != nil {
		found, err := program.Read(path, "")
		if err == nil && found.Interpreter != "" {
			_, err = findCommand(found.Interpreter)
		}
		if err != nil || found.Interpreter == "" || scripts == 0 {
			return checkOK, path + " is no ELF program: what matters is its interpreter", ""
		}
		status, detail, hint := examineBehind(found.Interpreter, scripts-1)
		return status, fmt.Sprintf("%s is run by %s: %s", path, found.Interpreter, detail), hint
	}
	defer file.Close()
	linker := interpreterOf(file)
	switch {
	case file.Machine != elf.EM_X86_64 || file.Class != elf.ELFCLASS64:
		return checkFail, fmt.Sprintf("%s is built for %s: only x86-64 is supported", path, file.Machine), ""
	case info.Mode()&(os.ModeSetuid|os.ModeSetgid) != 0:
		return checkFail, path + " is setuid or setgid: the dynamic linker loads nothing of ours into it", "a copy without the bit"
	case linker == "":
		return checkNote, path + " is statically linked: it is held only if it opens the driver through the dynamic linker", ""
	case strings.Contains(linker, "ld-musl"):
		return checkNote, path + " uses musl, which NVIDIA's driver does not support; nothing would be enforced", "a glibc build of it"
	}
	return checkOK, path + " is dynamically linked (" + linker + ")", ""
}

func interpreterOf(file *elf.File) string {
	for _, segment := range file.Progs {
		if segment.Type == elf.PT_INTERP {
			raw, err := io.ReadAll(io.LimitReader(segment.Open(), maxInterpreterBytes))
			if err != nil {
				return ""
			}
			return strings.TrimRight(string(raw), "\x00")
		}
	}
	return ""
}

func isFolder(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.IsDir()
}

// examineSimulated says whether a program, a script or a Python environment can run on a
// simulated GPU: by the libraries and the code for GPUs that it has.
func examineSimulated(name, libraryPath string, add addCheck) {
	if isFolder(name) {
		if !examinePython(name, add) {
			add("simulated", checkFail, name+" is no Python environment: it has no lib/python3*/site-packages", "")
		}
		return
	}
	path, err := findCommand(name)
	if err != nil {
		return // the program's own check has said so
	}
	found, err := program.Read(path, libraryPath)
	if err != nil {
		add("simulated", checkNote, err.Error(), "")
		return
	}
	interpreter := found.Interpreter
	if resolved, err := findCommand(interpreter); err == nil {
		interpreter = resolved
	}
	for _, python := range []string{path, interpreter} {
		if strings.HasPrefix(filepath.Base(python), "python") && examinePython(filepath.Dir(filepath.Dir(python)), add) {
			return
		}
	}
	if found.Interpreter != "" {
		add("simulated", checkOK, path+" is run by "+found.Interpreter+", whose libraries decide", "")
		return
	}
	verdict, why := found.Simulated()
	add("simulated", statusOf(verdict), fmt.Sprintf("%s %s on a simulated GPU: %s", path, verdict, why), "")
}

func statusOf(verdict program.Verdict) string {
	if verdict == program.Not {
		return checkNote
	}
	return checkOK
}

// examinePython says it of each package that uses GPUs; false: the folder is no
// environment of Python.
func examinePython(folder string, add addCheck) bool {
	packages, ok, err := program.ReadPython(folder)
	if err != nil {
		add("simulated", checkNote, err.Error(), "")
		return true
	}
	if !ok {
		return false
	}
	for _, p := range packages {
		add("simulated", statusOf(p.Simulated), fmt.Sprintf("%s %s %s on a simulated GPU: %s", p.Name, p.Version, p.Simulated, p.Why), "")
	}
	if len(packages) == 0 {
		add("simulated", checkOK, "the Python environment "+folder+" has no package that is known to use GPUs", "")
	}
	return true
}
