// SPDX-License-Identifier: Apache-2.0

package program

import (
	"bufio"
	"debug/elf"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Bounds of what is followed.
const (
	maxLibraries = 1024    // that a program needs, all in all
	maxFolders   = 256     // where they are looked for
	maxConf      = 1 << 16 // bytes of a file of the dynamic linker's configuration
)

// search is where the dynamic linker looks for what a program needs (ld.so(8)), but for its
// cache, which says no more than the folders of its configuration.
type search struct {
	before []string // LD_LIBRARY_PATH
	system []string
	seen   map[string]bool // names that were looked for
}

func newSearch(libraryPath string) *search {
	s := &search{seen: map[string]bool{}}
	for folder := range strings.SplitSeq(libraryPath, ":") {
		if filepath.IsAbs(folder) {
			s.before = append(s.before, folder)
		}
	}
	s.system = append(configured("/etc/ld.so.conf", true),
		"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib")
	return s
}

// configured are the folders that the linker's configuration names; a file that cannot be read
// names none.
func configured(path string, includes bool) (folders []string) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close()
	for lines := bufio.NewScanner(io.LimitReader(file, maxConf)); lines.Scan() && len(folders) < maxFolders; {
		line, _, _ := strings.Cut(lines.Text(), "#")
		pattern, ok := strings.CutPrefix(strings.TrimSpace(line), "include ")
		switch {
		case ok && includes:
			files, err := filepath.Glob(strings.TrimSpace(pattern))
			if err != nil {
				continue
			}
			for _, one := range files {
				folders = append(folders, configured(one, false)...)
			}
		case !ok && filepath.IsAbs(pattern):
			folders = append(folders, pattern)
		}
	}
	return folders[:min(len(folders), maxFolders)]
}

// paths are the folders that a file itself names, $ORIGIN being its own.
func paths(image *elf.File, path string) (folders []string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	origin := strings.NewReplacer("$ORIGIN", filepath.Dir(real), "${ORIGIN}", filepath.Dir(real))
	for _, tag := range []elf.DynTag{elf.DT_RPATH, elf.DT_RUNPATH} {
		all, err := image.DynString(tag)
		if err != nil {
			continue
		}
		for _, list := range all {
			for folder := range strings.SplitSeq(list, ":") {
				if folder = origin.Replace(folder); filepath.IsAbs(folder) && len(folders) < maxFolders {
					folders = append(folders, folder)
				}
			}
		}
	}
	return folders
}

// find is the file of a needed library; empty: it is nowhere, or is no regular file.
func (s *search) find(name string, own []string) string {
	if filepath.IsAbs(name) {
		return name
	}
	for _, folder := range slices.Concat(s.before, own, s.system) {
		path := filepath.Join(folder, name)
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path
		}
	}
	return ""
}

// follow looks at what a program needs, and at what that needs, each name once. The libraries
// that use NVIDIA's runtime or bring code for GPUs are returned; the runtime itself and what
// NVIDIA ships with it is known by name. A library that is not there is not looked at: the
// program will not start, and the linker says so.
func (s *search) follow(f Found, own []string) (found []Found) {
	type wanted struct {
		name string
		own  []string
	}
	var queue []wanted
	push := func(names, own []string) {
		for _, name := range names {
			if !s.seen[name] && len(s.seen) < maxLibraries && !carries(name) {
				s.seen[name] = true
				queue = append(queue, wanted{name, own})
			}
		}
	}
	push(f.Needs, own)
	for len(queue) > 0 {
		next := queue[0]
		queue = queue[1:]
		path := s.find(next.name, next.own)
		if path == "" {
			continue
		}
		library, own, err := readFile(path, false)
		if err != nil {
			continue
		}
		if library.Runtime != "" || len(library.Code.PTX)+len(library.Code.Machine) > 0 {
			found = append(found, library)
		}
		push(library.Needs, own)
	}
	return found
}
