// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"debug/elf"
	"fmt"
	"io"
	"os"
	"strings"
)

const maxInterpreterBytes = 4096

// examineProgram says whether a share can hold a program: our library must be
// loaded into it by the dynamic linker.
func examineProgram(name string) (status, detail, hint string) {
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
		return checkOK, path + " is no ELF program: what matters is its interpreter", ""
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
