// SPDX-License-Identifier: Apache-2.0

// Package sysfs reads what the kernel tells of cards in files: the PCI bus,
// device files, who has a card open. All of it starts at a root that tests and
// recordings replace. Every read is bounded; a file that is missing, unreadable
// or not as expected is an unknown fact, never a failure. Only Write changes
// anything. It knows no vendor.
package sysfs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/divvy-gpu/divvy/internal/gpu"
)

// Bounds on what is read.
const (
	maxFile    = 64 << 10 // of one attribute; the kernel's are a page
	maxTable   = 1 << 20  // of one list of all that there may be
	maxEntries = 8192     // of one folder
)

// Tree is a machine's files: "sys", "proc", "dev", "usr".
type Tree struct {
	files  fs.FS
	closer func() error
	root   *os.Root // nil: nothing can be written
}

// ErrReadOnly says that a machine's files cannot be changed, since they are
// recorded ones.
var ErrReadOnly = errors.New("a recorded machine does not change")

// Open reads the machine whose root folder is given. Links that lead out of it
// are not followed.
func Open(folder string) (*Tree, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, fmt.Errorf("open the root %s: %w", folder, err)
	}
	return &Tree{files: root.FS(), closer: root.Close, root: root}, nil
}

// Of reads the machine in files.
func Of(files fs.FS) *Tree { return &Tree{files: files, closer: func() error { return nil }} }

// Close lets go of the root.
func (t *Tree) Close() error { return t.closer() }

// Write writes a value to a file that is there, in one call as attributes want
// it. The error is the kernel's answer.
func (t *Tree) Write(name, value string) error {
	if t.root == nil {
		return ErrReadOnly
	}
	file, err := t.root.OpenFile(name, os.O_WRONLY|os.O_TRUNC, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(value)
	return errors.Join(err, file.Close())
}

// Path is where on this machine a file lies that is there, for what takes paths. A
// link to an absolute path is taken as one below the root.
func (t *Tree) Path(name string) (string, error) {
	if t.root == nil {
		return "", ErrReadOnly
	}
	if target := t.Link(name).Value; path.IsAbs(target) {
		name = strings.TrimPrefix(path.Clean(target), "/")
	}
	info, err := t.root.Stat(name)
	if err != nil {
		return "", err
	}
	if !info.Mode().IsRegular() {
		return "", fmt.Errorf("%s is no file", name)
	}
	return filepath.Abs(filepath.Join(t.root.Name(), name))
}

// Text is the content of a file without the white space around it.
func (t *Tree) Text(name string) gpu.Fact[string] { return t.text(name, maxFile) }

// Table is Text for a file that is longer than attributes are.
func (t *Tree) Table(name string) gpu.Fact[string] { return t.text(name, maxTable) }

func (t *Tree) text(name string, limit int64) gpu.Fact[string] {
	raw, ok := t.read(name, limit)
	if !ok {
		return gpu.Fact[string]{}
	}
	return gpu.Known(strings.TrimSpace(printable(raw)))
}

// read returns at most limit bytes of a file.
func (t *Tree) read(name string, limit int64) ([]byte, bool) {
	file, err := t.files.Open(name)
	if err != nil {
		return nil, false
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, false
	}
	raw, err := io.ReadAll(io.LimitReader(file, limit))
	return raw, err == nil
}

// printable keeps line ends, tabs and printable ASCII: what is read ends up on
// terminals and in labels.
func printable(raw []byte) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || r >= ' ' && r <= '~' {
			return r
		}
		if r == 0 {
			return -1
		}
		return '?'
	}, string(raw))
}

// Uint is the number in a file: decimal, or 0x and hexadecimal.
func (t *Tree) Uint(name string) gpu.Fact[uint64] { return Uint(t.Text(name)) }

// Uint reads a number from a text.
func Uint(text gpu.Fact[string]) gpu.Fact[uint64] {
	if !text.Known {
		return gpu.Fact[uint64]{}
	}
	n, err := strconv.ParseUint(strings.TrimSpace(text.Value), 0, 64)
	if err != nil {
		return gpu.Fact[uint64]{}
	}
	return gpu.Known(n)
}

// Int is the small number in a file, negative ones unknown: the kernel's way to
// say that it does not know a NUMA node.
func (t *Tree) Int(name string) gpu.Fact[int] { return Int(t.Uint(name)) }

// Int narrows a number; one that is too large is unknown.
func Int(n gpu.Fact[uint64]) gpu.Fact[int] {
	if !n.Known || n.Value > 1<<31-1 {
		return gpu.Fact[int]{}
	}
	return gpu.Known(int(n.Value))
}

// Scaled is the number in a file divided, as hwmon's millidegrees.
func (t *Tree) Scaled(name string, divisor float64) gpu.Fact[float64] {
	n := t.Uint(name)
	if !n.Known {
		return gpu.Fact[float64]{}
	}
	return gpu.Known(float64(n.Value) / divisor)
}

// Names lists a folder in natural order: card2 before card10.
func (t *Tree) Names(folder string) []string {
	file, err := t.files.Open(folder)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }() // only read
	lister, ok := file.(fs.ReadDirFile)
	if !ok {
		return nil
	}
	entries, err := lister.ReadDir(maxEntries)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.SortFunc(names, Natural)
	return names
}

// Exists says whether there is such a file or folder.
func (t *Tree) Exists(name string) bool {
	_, err := fs.Stat(t.files, name)
	return err == nil
}

// Link is where a symbolic link points to, as it stands there.
func (t *Tree) Link(name string) gpu.Fact[string] {
	target, err := fs.ReadLink(t.files, name)
	if err != nil || len(target) > maxFile {
		return gpu.Fact[string]{}
	}
	return gpu.Known(printable([]byte(target)))
}

// LinkBase is the last name of where a link points to: a driver, a group.
func (t *Tree) LinkBase(name string) gpu.Fact[string] {
	target := t.Link(name)
	if !target.Known {
		return target
	}
	return gpu.Known(path.Base(filepath.ToSlash(target.Value)))
}

// Natural compares names by their letters and, where both have digits, by the
// numbers these make.
func Natural(a, b string) int {
	for a != "" && b != "" {
		da, db := digits(a), digits(b)
		if da > 0 && db > 0 {
			na, nb := strings.TrimLeft(a[:da], "0"), strings.TrimLeft(b[:db], "0")
			if len(na) != len(nb) {
				return len(na) - len(nb)
			}
			if c := strings.Compare(na, nb); c != 0 {
				return c
			}
			a, b = a[da:], b[db:]
			continue
		}
		if a[0] != b[0] {
			return int(a[0]) - int(b[0])
		}
		a, b = a[1:], b[1:]
	}
	return len(a) - len(b)
}

func digits(s string) int {
	n := 0
	for n < len(s) && s[n] >= '0' && s[n] <= '9' {
		n++
	}
	return n
}
