// SPDX-License-Identifier: Apache-2.0

// Package environment is the environment that puts a program under a share: where it finds
// the front library, its share's socket and the driver behind it, and which GPUs it counts.
// It starts nothing and asks nobody.
package environment

import (
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/library"
)

// Visible names the GPUs that a CUDA program sees.
const Visible = "CUDA_VISIBLE_DEVICES"

// Share is what a program needs to know of its share.
type Share struct {
	Front           string   // the folder of the front library that fits the driver
	Socket          string   // of the share
	DriverDirectory string   // of the driver
	Simulator       string   // socket of the simulator behind it; empty: none
	Entry           []string // what others than the front library need, as NAME=VALUE
	CardUUIDs       []string // the GPUs, by their number in the share
	// Loads says that the program loads the front, which then counts from the share's
	// GPUs; else it is alone with the driver, which counts from the machine's.
	Loads bool
}

// Over is the environment env with what puts a program under the share.
func (s Share) Over(env []string) []string {
	set := Library(s.Front, env)
	set["DIVVY_SOCKET"] = s.Socket
	set["DIVVY_DRIVER_DIR"] = s.DriverDirectory
	if s.Simulator != "" {
		set["DIVVY_SIMULATOR"] = s.Simulator
	}
	for _, entry := range s.Entry {
		name, value, _ := strings.Cut(entry, "=")
		set[name] = value
	}
	set[Visible] = visible(s.CardUUIDs, s.Loads)
	return Merge(env, set)
}

// Library is the variables that have a program load the driver library in a folder, both
// by name and before all others.
func Library(folder string, env []string) map[string]string {
	return map[string]string{
		"LD_LIBRARY_PATH": joinParts(":", folder, Get(env, "LD_LIBRARY_PATH")),
		"LD_PRELOAD":      preload(filepath.Join(folder, library.CUDAName), Get(env, "LD_PRELOAD")),
		"ASAN_OPTIONS":    joinParts(":", Get(env, "ASAN_OPTIONS"), besideASan),
	}
}

// Merge is env with some variables set.
func Merge(env []string, set map[string]string) []string {
	var merged []string
	for _, entry := range env {
		name, _, _ := strings.Cut(entry, "=")
		if _, ours := set[name]; !ours {
			merged = append(merged, entry)
		}
	}
	for name, value := range set {
		merged = append(merged, name+"="+value)
	}
	return merged
}

// Get is the value of a variable; of one that is there twice, the first, which getenv finds.
func Get(env []string, name string) string {
	for _, entry := range env {
		if value, found := strings.CutPrefix(entry, name+"="); found {
			return value
		}
	}
	return ""
}

// visible is the variable's value for a program of a share. A program that loads the
// front library counts from the share's GPUs, and many read numbers from the variable.
func visible(uuids []string, loads bool) string {
	if !loads {
		return strings.Join(uuids, ",")
	}
	numbers := make([]string, len(uuids))
	for i := range uuids {
		numbers[i] = strconv.Itoa(i)
	}
	return strings.Join(numbers, ",")
}

// besideASan lets programs start that were built with -fsanitize=address: the sanitizer's
// runtime wants to be the first library, since what comes before it could take its
// functions' places. The front takes none of them.
const besideASan = "verify_asan_link_order=0"

// preload puts the front before what others preload, and behind the runtimes of
// sanitizers, which want to be first.
func preload(front, others string) string {
	var first, rest []string
	for _, name := range strings.FieldsFunc(others, func(r rune) bool { return r == ':' || r == ' ' }) {
		if isSanitizer(name) {
			first = append(first, name)
		} else {
			rest = append(rest, name)
		}
	}
	return strings.Join(slices.Concat(first, []string{front}, rest), ":")
}

// isSanitizer says whether a library is a runtime of gcc's or clang's sanitizers.
func isSanitizer(library string) bool {
	name := filepath.Base(library)
	for _, prefix := range []string{"libasan.so", "liblsan.so", "libtsan.so", "libubsan.so", "libhwasan.so", "libclang_rt."} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// joinParts puts what is not empty together.
func joinParts(separator string, parts ...string) string {
	var kept []string
	for _, part := range parts {
		if part != "" {
			kept = append(kept, part)
		}
	}
	return strings.Join(kept, separator)
}
