// SPDX-License-Identifier: Apache-2.0

package sysfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
)

// Bounds on a recorded machine.
const (
	maxArchive = 32 << 20
	maxRecords = 1 << 18
)

// Record is one file or link of a recorded machine.
type Record struct {
	Name   string
	Target string // of a link
	Data   string
}

// ParseArchive reads a recorded machine: a text in which "-- name --" begins a
// file and "-- name -> target --" is a link. What stands before the first is a
// comment.
func ParseArchive(raw []byte) ([]Record, error) {
	if len(raw) > maxArchive {
		return nil, fmt.Errorf("longer than %d bytes", maxArchive)
	}
	var records []Record
	seen := map[string]bool{}
	for line := range bytes.Lines(raw) {
		head, ok := strings.CutPrefix(strings.TrimRight(string(line), "\r\n"), "-- ")
		head, closed := strings.CutSuffix(head, " --")
		if !ok || !closed {
			if n := len(records); n > 0 && records[n-1].Target == "" {
				records[n-1].Data += string(line)
			}
			continue
		}
		name, target, isLink := strings.Cut(head, " -> ")
		if !fs.ValidPath(name) || name == "." || isLink && (target == "" || path.IsAbs(target) && !strings.HasPrefix(target, "/dev/")) {
			return nil, fmt.Errorf("%q names no file below a root", head)
		}
		if seen[name] {
			return nil, fmt.Errorf("%s is there twice", name)
		}
		if len(records) == maxRecords {
			return nil, fmt.Errorf("more than %d files", maxRecords)
		}
		seen[name] = true
		records = append(records, Record{Name: name, Target: target})
	}
	return records, nil
}

// OpenRecorded opens a recorded machine: a folder, or an archive of one. The
// files of an archive lie in a temporary folder until Close.
func OpenRecorded(name string) (*Tree, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("open the recorded machine: %w", err)
	}
	if info.IsDir() {
		return Open(name)
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("open the recorded machine: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxArchive+1))
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("read the recorded machine: %w", err)
	}
	records, err := ParseArchive(raw)
	if err != nil {
		return nil, fmt.Errorf("read the recorded machine %s: %w", name, err)
	}
	folder, err := os.MkdirTemp("", "divvy-machine")
	if err != nil {
		return nil, fmt.Errorf("unpack the recorded machine: %w", err)
	}
	tree, err := unpack(records, folder)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("unpack the recorded machine %s: %w", name, err), os.RemoveAll(folder))
	}
	closeTree := tree.closer
	tree.closer = func() error { return errors.Join(closeTree(), os.RemoveAll(folder)) }
	return tree, nil
}

// unpack writes the records below a folder and nowhere else.
func unpack(records []Record, folder string) (*Tree, error) {
	root, err := os.OpenRoot(folder)
	if err != nil {
		return nil, err
	}
	for _, r := range records {
		if err = root.MkdirAll(path.Dir(r.Name), 0o700); err != nil {
			break
		}
		if r.Target != "" {
			err = root.Symlink(r.Target, r.Name)
		} else {
			err = root.WriteFile(r.Name, []byte(r.Data), 0o600)
		}
		if err != nil {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return &Tree{files: root.FS(), closer: root.Close}, nil // without root: read only
}
