// SPDX-License-Identifier: Apache-2.0

// Package host puts the programs and libraries of a container's image on the node that it
// runs on, for processes that are the node's: programs of shares map them, in other containers
// and longer than this one lives.
package host

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Current is the link beside the versions to the one that was installed last.
const Current = "current"

// Install copies the one version in a folder of the image, files/VERSION.BUILD, to
// root/prefix/VERSION.BUILD, unless it is there, and returns its path below root. A version is
// there whole or not at all, also after a power cut; none is ever changed or removed. The link
// root/prefix/current is set to it.
func Install(files, root, prefix string) (string, error) {
	name, err := version(files)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(root, prefix)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(folder, name)
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		err = copyVersion(filepath.Join(files, name), path)
		if err != nil {
			return "", fmt.Errorf("install %s: %w", path, err)
		}
	} else if err != nil {
		return "", err
	}
	if err := link(name, folder); err != nil {
		return "", err
	}
	return filepath.Join("/", prefix, name), nil
}

// version is the name of the one folder in files.
func version(files string) (string, error) {
	entries, err := os.ReadDir(files)
	if err != nil {
		return "", fmt.Errorf("this image has no Divvy in it: %w", err)
	}
	name := ""
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		if name != "" {
			return "", fmt.Errorf("%s has the versions %s and %s; there must be one", files, name, entry.Name())
		}
		name = entry.Name()
	}
	if name == "" {
		return "", fmt.Errorf("%s has no version of Divvy in it", files)
	}
	return name, nil
}

// copyVersion makes a copy under another name first. Two that do it at once make the same.
func copyVersion(from, to string) error {
	half, err := os.MkdirTemp(filepath.Dir(to), ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half) // it has another name by then, or is half a version
	if err := os.Chmod(half, 0o755); err != nil {
		return err
	}
	if err := copyTree(from, half); err != nil {
		return err
	}
	if err := syncAll(half); err != nil {
		return err
	}
	err = os.Rename(half, to)
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return nil
	}
	return err
}

func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil || relative == "." {
			return err
		}
		target := filepath.Join(to, relative)
		switch info, err := entry.Info(); {
		case err != nil:
			return err
		case info.IsDir():
			return os.Mkdir(target, 0o755)
		case info.Mode().IsRegular():
			return copyFile(path, target, info.Mode().Perm())
		case info.Mode()&fs.ModeSymlink != 0:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(to, target)
		default:
			return fmt.Errorf("%s is no file, folder or link", path)
		}
	})
}

func copyFile(from, to string, mode fs.FileMode) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Chmod(mode), target.Close())
}

// syncAll has the file system of a folder write all that it holds back.
func syncAll(folder string) error {
	opened, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(unix.Syncfs(int(opened.Fd())), opened.Close())
}

// link sets the link to a version, which is replaced whole.
func link(name, folder string) error {
	current := filepath.Join(folder, Current)
	if to, err := os.Readlink(current); err == nil && to == name {
		return nil
	}
	half, err := os.MkdirTemp(folder, ".new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(half)
	if err := os.Symlink(name, filepath.Join(half, Current)); err != nil {
		return err
	}
	return os.Rename(filepath.Join(half, Current), current)
}

// Exec makes root this process's root and runs a program of it in this process's place. It
// returns only when it could not.
func Exec(root, program string, args, environment []string) error {
	if err := unix.Chroot(root); err != nil {
		return fmt.Errorf("make %s the root (the container must be privileged): %w", root, err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	return fmt.Errorf("run %s: %w", program, unix.Exec(program, append([]string{program}, args...), environment))
}
