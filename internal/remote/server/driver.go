// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/divvy-gpu/divvy/internal/library"
)

// drivers has what a driver exports, which each run is told, once for all of them.
type drivers struct {
	mutex sync.Mutex // guards everything below
	dir   string
	files [2]os.FileInfo // libcuda.so.1 and libnvidia-ml.so.1; nil: there is none
	read  *library.Driver
}

// in reads the driver in a directory, if it is another one than the last time.
func (d *drivers) in(dir string) (*library.Driver, error) {
	var files [2]os.FileInfo
	for i, name := range []string{library.CUDAName, library.NVMLName} {
		files[i], _ = os.Stat(filepath.Join(dir, name)) // what is not there reading tells of
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.read != nil && d.dir == dir && same(d.files[0], files[0]) && same(d.files[1], files[1]) {
		return d.read, nil
	}
	read, err := library.ReadDriver(dir)
	if err != nil {
		return nil, fmt.Errorf("what runs are to know of the driver: %w", err)
	}
	d.dir, d.files, d.read = dir, files, read
	return read, nil
}

// same says that a file is the same, and has not been written to.
func same(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == b
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}
