// SPDX-License-Identifier: Apache-2.0

package library

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// systemCache is where root keeps prepared fronts.
const systemCache = "/var/cache/divvy/front"

// keyFile says in a folder which driver and front it was prepared for.
const keyFile = "prepared-for"

// Caches are the cache folders of the user, the best first: /var/cache/divvy/front for
// root, else those below $XDG_CACHE_HOME and $HOME, where they are set.
func Caches(getenv func(string) string, uid int) []string {
	if uid == 0 {
		return []string{systemCache}
	}
	var found []string
	for _, place := range []struct{ variable, below string }{{"XDG_CACHE_HOME", ""}, {"HOME", ".cache"}} {
		if dir := getenv(place.variable); filepath.IsAbs(dir) {
			found = append(found, filepath.Join(dir, place.below, "divvy", "front"))
		}
	}
	return found
}

// errNoCache says that there is no folder to keep a prepared front in.
var errNoCache = errors.New("no cache folder: neither XDG_CACHE_HOME nor HOME is set")

// errNotExecutable says that libraries cannot be loaded from a folder.
var errNotExecutable = errors.New("it is on a file system that is mounted noexec")

// checkExecutable says whether programs may load libraries from a folder that may not be
// there yet.
func checkExecutable(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		var system unix.Statfs_t
		err := unix.Statfs(at, &system)
		if errors.Is(err, fs.ErrNotExist) && at != filepath.Dir(at) {
			continue
		}
		if err == nil && system.Flags&unix.ST_NOEXEC != 0 {
			err = errNotExecutable
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		return nil
	}
}

// preparedFor reads the key of a folder; empty if there is none.
func preparedFor(dir string) string {
	text, err := os.ReadFile(filepath.Join(dir, keyFile))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

// checkOurs refuses a prepared front that somebody else could have written:
// programs are about to load it.
func checkOurs(dir string) error {
	for _, path := range []string{dir, filepath.Join(dir, CUDAName)} {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		stat, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return fmt.Errorf("%s: no owner known", path)
		}
		if stat.Uid != 0 && int(stat.Uid) != os.Geteuid() {
			return fmt.Errorf("%s belongs to user %d: remove it", path, stat.Uid)
		}
		if info.Mode().Type() == fs.ModeSymlink || info.Mode().Perm()&0o022 != 0 {
			return fmt.Errorf("%s is a link, or others may write it: remove it", path)
		}
	}
	return nil
}

// publish makes the folder cache/key with a prepared front. Whoever comes
// second keeps what the first one made: the two are equal.
func publish(cache, key string, data []byte, nvml bool) error {
	if err := checkExecutable(cache); err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	temporary, err := os.MkdirTemp(cache, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	if err := os.Chmod(temporary, 0o755); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(temporary, CUDAName), data, 0o755); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(temporary, keyFile), []byte(key+"\n"), 0o644); err != nil {
		return err
	}
	for _, name := range links(nvml) {
		if err := os.Symlink(CUDAName, filepath.Join(temporary, name)); err != nil {
			return err
		}
	}
	final := filepath.Join(cache, key)
	if err := os.Rename(temporary, final); err != nil {
		if checkOurs(final) == nil {
			return nil
		}
		return err
	}
	return syncDir(cache)
}

func links(nvml bool) []string {
	if nvml {
		return []string{cudaLinkName, NVMLName}
	}
	return []string{cudaLinkName}
}

// replace puts a prepared front into a folder that may hold an older one. Each
// file is new: programs that run keep the one they have.
func replace(dir, key string, data []byte, nvml bool) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, keyFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	temporary, err := os.MkdirTemp(dir, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temporary)
	move := func(name string) error { return os.Rename(filepath.Join(temporary, name), filepath.Join(dir, name)) }
	if err := writeFile(filepath.Join(temporary, CUDAName), data, 0o755); err != nil {
		return err
	}
	if err := move(CUDAName); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(dir, NVMLName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range links(nvml) {
		if err := os.Symlink(CUDAName, filepath.Join(temporary, name)); err != nil {
			return err
		}
		if err := move(name); err != nil {
			return err
		}
	}
	if err := writeFile(filepath.Join(temporary, keyFile), []byte(key+"\n"), 0o644); err != nil {
		return err
	}
	return move(keyFile)
}

// writeFile writes a new file and waits until it is on the disk.
func writeFile(path string, data []byte, mode fs.FileMode) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	err = errors.Join(err, file.Chmod(mode), file.Sync(), file.Close())
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

func syncDir(path string) error {
	dir, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}
