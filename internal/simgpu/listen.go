// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ErrInUse says that a live simulator listens on the socket already.
var ErrInUse = errors.New("another simulator listens there")

// door is the listening socket and the file it stands for.
type door struct {
	listener *net.UnixListener
	path     string
	inode    uint64
}

// openDoor binds the socket. A file that a dead simulator left is replaced; a
// live one is refused. Two that start at once take turns by a lock on the
// folder, which leaves no file behind.
func openDoor(path string, mode os.FileMode) (*door, error) {
	unlock, err := lockFolder(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	defer unlock()
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener.SetUnlinkOnClose(false)
	d := &door{listener: listener, path: path}
	if err := d.adopt(mode); err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", path, err), d.close())
	}
	return d, nil
}

// lockFolder takes the lock on the folder of a socket; it leaves no file.
func lockFolder(path string) (unlock func(), err error) {
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			break
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", folder.Name(), err), folder.Close())
	}
	return func() { _ = folder.Close() }, nil // the lock goes with its descriptor
}

// adopt remembers which file is ours, so that close removes no other.
func (d *door) adopt(mode os.FileMode) error {
	var st unix.Stat_t
	if err := unix.Lstat(d.path, &st); err != nil {
		return fmt.Errorf("find the socket again: %w", err)
	}
	d.inode = st.Ino
	if err := os.Chmod(d.path, mode); err != nil {
		return fmt.Errorf("open it to users: %w", err)
	}
	return nil
}

// removeStale clears the way, or says why it is not clear.
func removeStale(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return errors.New("there is a file of another kind; it is left alone")
	}
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	switch {
	case err == nil:
		return errors.Join(ErrInUse, conn.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	default:
		return fmt.Errorf("cannot tell whether the socket there is live: %w", err)
	}
}

// close stops listening and removes the file, unless it is another's by now.
func (d *door) close() error {
	if unlock, err := lockFolder(d.path); err == nil { // else the folder is gone, and the file with it
		defer unlock()
	}
	var st unix.Stat_t
	var removed error
	if err := unix.Lstat(d.path, &st); err == nil && st.Ino == d.inode {
		removed = os.Remove(d.path)
	}
	if err := errors.Join(d.listener.Close(), removed); err != nil && !errors.Is(err, net.ErrClosed) {
		return fmt.Errorf("close %s: %w", d.path, err)
	}
	return nil
}
