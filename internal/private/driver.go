// SPDX-License-Identifier: Apache-2.0

package private

import (
	"bufio"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// ErrNoDriver says that the dynamic linker would find no NVIDIA driver here.
var ErrNoDriver = errors.New("no NVIDIA driver found")

// Names of the two libraries that make a driver.
var driverNames = []string{"libcuda.so.1", "libnvidia-ml.so.1"}

// linkerFolders are looked at after those of ld.so.conf, as the linker does.
var linkerFolders = []string{
	"/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", "/usr/lib64", "/lib64", "/usr/lib", "/lib",
	"/usr/local/nvidia/lib64", "/run/nvidia/driver/usr/lib/x86_64-linux-gnu",
	"/run/opengl-driver/lib", "/home/kubernetes/bin/nvidia/lib64",
}

const (
	maxConfigBytes = 1 << 20
	maxConfigDepth = 4
)

// Driver is an installed NVIDIA driver, by the real paths of its two libraries.
// They need not share a folder: a container may come with a newer libcuda than
// the machine's (the vendor calls that forward compatibility).
type Driver struct {
	CUDA string
	NVML string
}

// Folder is where its libcuda lies.
func (d Driver) Folder() string { return filepath.Dir(d.CUDA) }

// FindDriver finds the driver that a program would load here: of each library
// the first one on the dynamic linker's path that is for this kind of machine.
// root is "/" but for tests.
func FindDriver(root string) (Driver, error) {
	var folders []string
	readLinkerConfig(root, "/etc/ld.so.conf", 0, &folders)
	folders = append(folders, linkerFolders...)
	var found [2]string
	for i, name := range driverNames {
		for _, folder := range folders {
			path := filepath.Join(root, folder, name)
			if !isLibrary(path) {
				continue
			}
			real, err := filepath.EvalSymlinks(path)
			if err != nil {
				return Driver{}, fmt.Errorf("find the driver: %w", err)
			}
			found[i] = real
			break
		}
		if found[i] == "" {
			return Driver{}, ErrNoDriver
		}
	}
	return Driver{CUDA: found[0], NVML: found[1]}, nil
}

// isLibrary says whether a file is a shared library of 64-bit x86. A machine
// with 32-bit programs has drivers of both kinds on its path.
func isLibrary(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	file, err := elf.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	return file.Class == elf.ELFCLASS64 && file.Machine == elf.EM_X86_64 && file.Type == elf.ET_DYN
}

// readLinkerConfig collects the folders of an ld.so.conf file and of those it
// includes. What cannot be read is passed over, as the linker does.
func readLinkerConfig(root, path string, depth int, folders *[]string) {
	file, err := os.Open(filepath.Join(root, path))
	if err != nil || depth > maxConfigDepth {
		return
	}
	defer file.Close()
	lines := bufio.NewScanner(io.LimitReader(file, maxConfigBytes))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 2 && fields[0] == "include":
			pattern := fields[1]
			if !filepath.IsAbs(pattern) {
				pattern = filepath.Join(filepath.Dir(path), pattern)
			}
			matches, _ := filepath.Glob(filepath.Join(root, pattern))
			for _, match := range matches {
				if inside, err := filepath.Rel(root, match); err == nil {
					readLinkerConfig(root, "/"+inside, depth+1, folders)
				}
			}
		case len(fields) == 1 && filepath.IsAbs(fields[0]):
			*folders = append(*folders, fields[0])
		}
	}
}

// DriverFolder makes a folder under the root for LinkDriver and fills it.
func (r Root) DriverFolder(found Driver) (string, error) {
	if err := ensurePrivate(r.path); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(filepath.Dir(found.CUDA) + "\x00" + filepath.Dir(found.NVML)))
	folder := filepath.Join(r.path, ".driver-"+hex.EncodeToString(sum[:5]))
	return folder, LinkDriver(found, folder, 0o700)
}

// LinkDriver makes a folder that holds the driver and nothing else, under names
// that no linker configuration lists: what Divvy opens as the real driver. A
// link that leads elsewhere, as after a driver update, is replaced whole.
func LinkDriver(found Driver, folder string, mode fs.FileMode) error {
	if err := os.Mkdir(folder, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := checkOwned(folder); err != nil {
		return err
	}
	for i, target := range []string{found.CUDA, found.NVML} {
		link := filepath.Join(folder, driverNames[i])
		if current, err := os.Readlink(link); err == nil && current == target {
			continue
		}
		next := fmt.Sprintf("%s.new.%d", link, os.Getpid())
		if err := os.Symlink(target, next); err != nil {
			return err
		}
		if err := os.Rename(next, link); err != nil {
			return err
		}
	}
	return nil
}
