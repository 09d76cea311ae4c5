// SPDX-License-Identifier: Apache-2.0

// Package library finds the libraries that `make build` leaves in lib/divvy
// and prepares the front for the driver it will stand before.
//
// A front that exports what its driver lacks, or lacks what its driver exports,
// is found out by programs that probe. So the built front is prepared for each
// driver build: symbols that the driver lacks are taken out of its dynamic
// symbol table, and exports that the front does not know take one of its spare
// slots, which pass them on by name. The result lies in a cache, in a folder
// named for the driver's and the front's build ids, and is never changed
// afterwards:
//
//	dir, err := library.Find(os.Getenv, os.Executable)
//	front, err := dir.FrontFor("/run/divvy/driver", cache)
//	// LD_LIBRARY_PATH=front.Dir, LD_PRELOAD=front.Dir/libcuda.so.1
//
// It opens no driver: it reads files.
package library

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Names that programs open the driver by.
const (
	CUDAName     = "libcuda.so.1"
	cudaLinkName = "libcuda.so"
	NVMLName     = "libnvidia-ml.so.1"
)

// EnvironmentVariable names the folder of the built libraries.
const EnvironmentVariable = "DIVVY_LIBDIR"

// ErrNotFound says that the built libraries are in none of the places looked at.
var ErrNotFound = errors.New("libraries not found")

// Dir is the folder of the built libraries.
type Dir string

// Find looks for the built libraries in $DIVVY_LIBDIR, then in ../lib/divvy
// beside the real path of the running binary, or around it, which a tool is in.
func Find(getenv func(string) string, executable func() (string, error)) (Dir, error) {
	var looked []string
	if dir := getenv(EnvironmentVariable); dir != "" {
		if isLibraryDir(dir) {
			return absolute(dir)
		}
		looked = append(looked, fmt.Sprintf("$%s (%s)", EnvironmentVariable, dir))
	} else {
		looked = append(looked, "$"+EnvironmentVariable+" (not set)")
	}
	binary, err := executable()
	if err == nil {
		binary, err = filepath.EvalSymlinks(binary)
	}
	if err != nil {
		return "", fmt.Errorf("find the running binary: %w", err)
	}
	above := filepath.Dir(filepath.Dir(binary))
	dir := filepath.Join(above, "lib", "divvy")
	for _, dir := range []string{dir, above} {
		if isLibraryDir(dir) {
			return absolute(dir)
		}
	}
	looked = append(looked, dir)
	return "", fmt.Errorf("%w: no front/%s and no standin/%s in %s", ErrNotFound, CUDAName, CUDAName, strings.Join(looked, ", nor in "))
}

func absolute(dir string) (Dir, error) {
	dir, err := filepath.Abs(dir)
	return Dir(dir), err
}

func isLibraryDir(dir string) bool {
	return isRegular(filepath.Join(dir, "front", CUDAName)) || isRegular(filepath.Join(dir, "standin", CUDAName))
}

func isRegular(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// built is the folder of the front as the build left it, prepared for the
// stand-in driver.
func (d Dir) built() string { return filepath.Join(string(d), "front") }

// HasFront says whether the front was built and is still there.
func (d Dir) HasFront() bool { return isRegular(filepath.Join(d.built(), CUDAName)) }

// Null is the folder of the null driver.
func (d Dir) Null() string { return filepath.Join(string(d), "null") }

// Preload is the file that names the front for the dynamic linker of a
// container.
func (d Dir) Preload() string { return filepath.Join(string(d), "container", "ld.so.preload") }

// Tool is the path of a small program that belongs to the product.
func (d Dir) Tool(name string) string { return filepath.Join(string(d), "tools", name) }

// Example is the path of a program of examples/.
func (d Dir) Example(name string) string { return filepath.Join(string(d), "examples", name) }

// Standin is the folder of the stand-in driver of a generation ("12.2").
func (d Dir) Standin(generation string) (string, error) {
	name := "standin-" + generation
	if generation == "" || generation == "12.2" {
		name = "standin"
	}
	dir := filepath.Join(string(d), name)
	if _, err := os.Stat(filepath.Join(dir, CUDAName)); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("stand-in driver of generation %s: %w in %s", generation, ErrNotFound, dir)
		}
		return "", fmt.Errorf("stand-in driver of generation %s: %w", generation, err)
	}
	return dir, nil
}

// base is the front as it was built.
func (d Dir) base() string { return filepath.Join(string(d), "front", "base", CUDAName) }

// Front is a front that is ready for a driver.
type Front struct {
	Dir    string // with libcuda.so.1, libcuda.so and, where the driver has NVML, libnvidia-ml.so.1
	Report Report // what the preparation changed; empty when it was made earlier
}

// FrontFor returns the front prepared for the driver in driverDir: the one that
// was built with the libraries when it fits, else one from the cache folders, where it is
// made when it is missing, in the first that can be used.
func (d Dir) FrontFor(driverDir string, caches ...string) (Front, error) {
	// As a rule it is there: every command that starts a program asks.
	if key := quickKey(d.base(), driverDir); key != "" {
		if dir, err := d.prepared(caches, key); err == nil {
			return Front{Dir: dir}, nil
		}
	}
	image, err := readImage(d.base(), true)
	if err != nil {
		return Front{}, fmt.Errorf("read the front: %w", err)
	}
	driver, err := ReadDriver(driverDir)
	if err != nil {
		return Front{}, err
	}
	key := keyOf(image.id, driver.id)
	dir, err := d.prepared(caches, key)
	if err == nil {
		return Front{Dir: dir}, nil
	}
	failed := err
	if errors.Is(err, fs.ErrNotExist) {
		failed = errNoCache
	}
	report, err := image.prepare(driver)
	if err != nil {
		return Front{}, fmt.Errorf("prepare the front for %s: %w", driverDir, err)
	}
	for _, cache := range caches {
		err := publish(cache, key, image.data, driver.hasNVML)
		if err == nil {
			return Front{Dir: filepath.Join(cache, key), Report: report}, nil
		}
		if errors.Is(failed, errNoCache) {
			failed = err
		}
	}
	return Front{}, fmt.Errorf("prepare the front for %s: %w", driverDir, failed)
}

// prepared returns the folder of the front that was prepared under a key: the one
// that was built with the libraries, or a cache's. fs.ErrNotExist: there is none.
func (d Dir) prepared(caches []string, key string) (string, error) {
	if d.HasFront() && preparedFor(d.built()) == key {
		return d.built(), nil
	}
	return cached(caches, key)
}

// cached is what a cache has under a key.
func cached(caches []string, key string) (string, error) {
	failed := error(fs.ErrNotExist)
	for _, cache := range caches {
		dir := filepath.Join(cache, key)
		err := checkOurs(dir)
		if err == nil {
			err = checkExecutable(dir)
		}
		if err == nil {
			return dir, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			failed = fmt.Errorf("prepared front: %w", err)
		}
	}
	return "", failed
}

// PrepareInto prepares the front at base for the driver in driverDir and puts
// it in out, where it replaces an earlier one. The build uses it.
func PrepareInto(base, driverDir, out string) (Report, error) {
	image, err := readImage(base, true)
	if err != nil {
		return Report{}, fmt.Errorf("read the front: %w", err)
	}
	driver, err := ReadDriver(driverDir)
	if err != nil {
		return Report{}, err
	}
	key := keyOf(image.id, driver.id)
	report, err := image.prepare(driver)
	if err != nil {
		return Report{}, fmt.Errorf("prepare the front for %s: %w", driverDir, err)
	}
	if err := replace(out, key, image.data, driver.hasNVML); err != nil {
		return Report{}, fmt.Errorf("prepare the front for %s: %w", driverDir, err)
	}
	return report, nil
}
