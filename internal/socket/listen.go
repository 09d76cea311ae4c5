// SPDX-License-Identifier: Apache-2.0

// Package socket is the transport between the agent and everybody else on the
// machine: unix sockets with exact modes that replace stale ones and follow no
// links, who is at the other end, and listening sockets that outlive the
// process that made them. It knows nothing about what is said on them.
package socket

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Kind is the type of a unix socket.
type Kind int

// Kinds of sockets.
const (
	Stream Kind = unix.SOCK_STREAM
	Packet Kind = unix.SOCK_SEQPACKET
)

// MaxPathBytes is the longest path of a unix socket.
const MaxPathBytes = 107

const backlog = 4096 // the kernel cuts it to net.core.somaxconn

// ErrUnsafe says that a folder could be changed by somebody else.
var ErrUnsafe = errors.New("not safe")

// MakeFolder makes a folder with exactly this mode, or checks that what is
// there is a folder of ours that nobody else can write to. It follows no link
// in the last element.
func MakeFolder(path string, mode fs.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	err := unix.Mkdir(path, uint32(mode.Perm()))
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("make folder %s: %w", path, err)
	}
	folder, err := openFolder(path)
	if err != nil {
		return err
	}
	defer unix.Close(folder)
	var stat unix.Stat_t
	if err := unix.Fstat(folder, &stat); err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	if int(stat.Uid) != os.Geteuid() {
		return fmt.Errorf("%w: folder %s belongs to uid %d, not to %d", ErrUnsafe, path, stat.Uid, os.Geteuid())
	}
	if fs.FileMode(stat.Mode).Perm() == mode.Perm() {
		return nil
	}
	// O_PATH descriptors cannot be given to fchmod.
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", folder), uint32(mode.Perm())); err != nil {
		return fmt.Errorf("folder %s: %w", path, err)
	}
	return nil
}

func openFolder(path string) (int, error) {
	folder, err := unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) {
		return -1, fmt.Errorf("%w: %s is not a folder (a link is not followed)", ErrUnsafe, path)
	}
	if err != nil {
		return -1, fmt.Errorf("open folder %s: %w", path, err)
	}
	return folder, nil
}

// Listen listens at path with exactly this mode. What is there already is
// replaced in one step, so that a path that somebody connects to is never
// missing: the caller makes sure that nobody uses it any more.
func Listen(kind Kind, path string, mode fs.FileMode) (*Listener, error) {
	if len(path) > MaxPathBytes {
		return nil, fmt.Errorf("listen at %s: the path has more than %d bytes", path, MaxPathBytes)
	}
	folder, err := openFolder(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	defer unix.Close(folder)
	file, err := unix.Socket(unix.AF_UNIX, int(kind)|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	owned := os.NewFile(uintptr(file), path)
	defer owned.Close()
	name := filepath.Base(path)
	if err := bind(file, folder, name, mode); err != nil {
		return nil, fmt.Errorf("listen at %s: %w", path, err)
	}
	return ListenerOf(owned)
}

func bind(file, folder int, name string, mode fs.FileMode) error {
	next := "." + name + ".new"
	// The socket gets its mode before it has a name: nobody slips in.
	if err := unix.Fchmod(file, uint32(mode.Perm())); err != nil {
		return err
	}
	if err := unix.Unlinkat(folder, next, 0); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	if err := unix.Bind(file, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", folder, next)}); err != nil {
		return err
	}
	// The umask may have taken bits away.
	err := unix.Fchmodat(folder, next, uint32(mode.Perm()), 0)
	if err == nil {
		err = unix.Listen(file, backlog)
	}
	if err == nil {
		err = unix.Renameat(folder, next, folder, name)
	}
	if err != nil {
		_ = unix.Unlinkat(folder, next, 0)
	}
	return err
}
