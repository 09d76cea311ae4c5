// SPDX-License-Identifier: Apache-2.0

// Package private keeps one user's own agent, and the simulator beside it, for
// machines where no system agent runs. For each kind of card that was asked
// for there is one folder with the sockets, a lock file, logs and a record of
// who was started. Both daemons leave by themselves when nobody needs them; a
// start that meets a leave is tried again and never reported.
//
// It decides nothing about shares and never starts anything for another user.
package private

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// ErrUnsafe says that a folder is not ours alone: another owner, a mode that
// lets others in, or a link in its place.
var ErrUnsafe = errors.New("not a private folder")

// Root is the folder under which a user's private daemons live.
type Root struct {
	path string
}

// maxRuntimeDirectory leaves room for the rest of a share's socket in the 107
// bytes that the path of a socket can have: /divvy/sim-0123456789/shares/NAME/share.sock
// with a name of at least 20.
const maxRuntimeDirectory = 45

// Locate finds the root of the user without creating it: divvy in
// runtimeDirectory ($XDG_RUNTIME_DIR) when that is the user's own and not too
// long for the path of a socket, else /tmp/divvy-UID, or where /tmp cannot be written
// to the like in another folder for what is temporary. In a user namespace it is that
// of the user outside, by whom its files are.
func Locate(runtimeDirectory string, uid int) Root {
	if filepath.IsAbs(runtimeDirectory) && len(filepath.Clean(runtimeDirectory)) <= maxRuntimeDirectory {
		var st unix.Stat_t
		if unix.Lstat(runtimeDirectory, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid {
			return Root{path: filepath.Join(filepath.Clean(runtimeDirectory), "divvy")}
		}
	}
	name := fmt.Sprintf("divvy-%d", outside(uid, "/proc/self/uid_map"))
	for _, place := range []string{"/tmp", "/dev/shm", "/var/tmp"} {
		path := filepath.Join(place, name)
		if checkPrivate(path) == nil || unix.Access(place, unix.W_OK|unix.X_OK) == nil {
			return Root{path: path}
		}
	}
	return Root{path: filepath.Join("/tmp", name)}
}

// maxMapBytes bounds the map of a user namespace: 340 lines.
const maxMapBytes = 64 << 10

// outside is what a user is called outside of this process's user namespace, by the
// namespace's map: lines of a first number inside, one outside, and how many.
func outside(uid int, file string) int {
	raw, err := readFile(file, maxMapBytes)
	if err != nil {
		return uid
	}
	for line := range strings.Lines(string(raw)) {
		var inside, out, count int
		if n, err := fmt.Sscan(line, &inside, &out, &count); n == 3 && err == nil && uid >= inside && uid-inside < count {
			return out + uid - inside
		}
	}
	return uid
}

// Path is where the root is, or would be.
func (r Root) Path() string { return r.path }

// Create makes the root, or checks that it is the user's alone.
func (r Root) Create() error { return ensurePrivate(r.path) }

// MountPoint makes a folder that stays empty: mount namespaces mount on it.
func (r Root) MountPoint() (string, error) {
	if err := ensurePrivate(r.path); err != nil {
		return "", err
	}
	path := filepath.Join(r.path, ".mount")
	return path, ensurePrivate(path)
}

// Cache makes a folder for what can be made again, for a user who has no other.
func (r Root) Cache() (string, error) {
	if err := ensurePrivate(r.path); err != nil {
		return "", err
	}
	path := filepath.Join(r.path, ".front")
	return path, ensurePrivate(path)
}

// folder opens the folder name under the root and creates both as needed.
func (r Root) folder(name string) (*Folder, error) {
	if err := ensurePrivate(r.path); err != nil {
		return nil, err
	}
	path := filepath.Join(r.path, name)
	if err := ensurePrivate(path); err != nil {
		return nil, err
	}
	return &Folder{path: path}, nil
}

// folders lists what is under the root; none when there is no root.
func (r Root) folders() ([]*Folder, error) {
	if err := checkPrivate(r.path); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		return nil, err
	}
	entries, err := os.ReadDir(r.path)
	if err != nil {
		return nil, err
	}
	var found []*Folder
	for _, entry := range entries {
		path := filepath.Join(r.path, entry.Name())
		if !entry.IsDir() || strings.HasPrefix(entry.Name(), ".") || checkPrivate(path) != nil {
			continue
		}
		found = append(found, &Folder{path: path})
	}
	return found, nil
}

// ensurePrivate makes a folder that is ours alone, or checks that it is.
func ensurePrivate(path string) error {
	if err := unix.Mkdir(path, 0o700); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("create %s: %w", path, err)
	}
	return checkPrivate(path)
}

// checkPrivate says whether a folder is ours and nobody else can look into it.
func checkPrivate(path string) error { return check(path, 0o077) }

// checkOwned says whether a folder is ours and nobody else can write to it.
func checkOwned(path string) error { return check(path, 0o022) }

func check(path string, others uint32) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return fmt.Errorf("%s: %w: not a folder, or a link to one", path, ErrUnsafe)
	}
	if errors.Is(err, unix.EACCES) {
		return fmt.Errorf("%s: %w: it belongs to somebody else", path, ErrUnsafe)
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat %s: %w", path, err)
	}
	switch {
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("%s: %w: it belongs to uid %d", path, ErrUnsafe, st.Uid)
	case st.Mode&others != 0:
		return fmt.Errorf("%s: %w: its mode %#o lets others in", path, ErrUnsafe, st.Mode&0o777)
	}
	return nil
}
