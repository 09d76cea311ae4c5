// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// A store keeps descriptors for a process that may die: a keeper holds them
// and hands them to the next one. One packet per message: a letter, a name,
// and with 'S' a descriptor.
const (
	storeMessage = 'S' // store under this name; from the keeper: this you had stored
	dropMessage  = 'D' // close what has this name
	endMessage   = 'E' // from the keeper: that was all
	leaveMessage = 'L' // the process leaves on purpose, for the reason in place of a name
	readyMessage = 'R' // the process does its work now

	maxNameBytes = 255
	maxStored    = 4096
)

var errStore = errors.New("not a message of a descriptor store")

type storeConn struct{ conn *net.UnixConn }

func newStoreConn(file *os.File) (storeConn, error) {
	conn, err := net.FileConn(file)
	if err != nil {
		return storeConn{}, fmt.Errorf("descriptor store: %w", err)
	}
	unixConn, ok := conn.(*net.UnixConn)
	if !ok {
		_ = conn.Close()
		return storeConn{}, fmt.Errorf("descriptor store: not a unix socket")
	}
	return storeConn{unixConn}, nil
}

func (c storeConn) send(letter byte, name string, file *os.File) error {
	if len(name) > maxNameBytes {
		return fmt.Errorf("descriptor store: name of %d bytes", len(name))
	}
	var rights []byte
	if file != nil {
		raw, err := file.SyscallConn()
		if err != nil {
			return fmt.Errorf("descriptor store: %w", err)
		}
		var sent error
		err = raw.Control(func(fd uintptr) {
			rights = unix.UnixRights(int(fd))
			_, _, sent = c.conn.WriteMsgUnix(append([]byte{letter}, name...), rights, nil)
		})
		return errors.Join(err, sent)
	}
	_, _, err := c.conn.WriteMsgUnix(append([]byte{letter}, name...), nil, nil)
	return err
}

// receive returns io.EOF when the other side is gone.
func (c storeConn) receive() (letter byte, name string, file *os.File, err error) {
	body := make([]byte, 1+maxNameBytes+1)
	control := make([]byte, unix.CmsgSpace(4*4))
	n, controlBytes, flags, _, err := c.conn.ReadMsgUnix(body, control)
	if err != nil {
		return 0, "", nil, err
	}
	files := received(control[:controlBytes])
	strange := n > 1+maxNameBytes || flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 ||
		len(files) > 1 || len(files) == 1 && (n == 0 || body[0] != storeMessage)
	if strange {
		for _, f := range files {
			_ = unix.Close(f)
		}
		return 0, "", nil, errStore
	}
	if n == 0 {
		return 0, "", nil, io.EOF
	}
	name = string(body[1:n])
	if len(files) == 1 {
		file = os.NewFile(uintptr(files[0]), name)
	}
	return body[0], name, file, nil
}

func received(control []byte) []int {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil
	}
	var files []int
	for _, m := range messages {
		if more, err := unix.ParseUnixRights(&m); err == nil {
			for _, f := range more {
				unix.CloseOnExec(f)
			}
			files = append(files, more...)
		}
	}
	return files
}

// Store is the side of the process whose descriptors are kept.
type Store struct {
	conn storeConn
}

// OpenStore takes over file, the connection to a keeper, and returns what an
// earlier process had stored. The caller owns the files.
func OpenStore(file *os.File) (*Store, map[string]*os.File, error) {
	conn, err := newStoreConn(file)
	if err != nil {
		return nil, nil, err
	}
	s := &Store{conn: conn}
	kept := map[string]*os.File{}
	for {
		letter, name, stored, err := conn.receive()
		switch {
		case err != nil:
			err = fmt.Errorf("descriptor store: %w", err)
		case letter == endMessage:
			return s, kept, nil
		case letter != storeMessage || stored == nil || kept[name] != nil || len(kept) >= maxStored:
			err = errStore
		default:
			kept[name] = stored
			continue
		}
		for _, f := range kept {
			_ = f.Close()
		}
		_ = conn.conn.Close()
		return nil, nil, err
	}
}

// Put stores a copy of file under name.
func (s *Store) Put(name string, file *os.File) error { return s.conn.send(storeMessage, name, file) }

// Drop forgets what is stored under name.
func (s *Store) Drop(name string) error { return s.conn.send(dropMessage, name, nil) }

// Ready tells the keeper that this process does its work.
func (s *Store) Ready() error { return s.conn.send(readyMessage, "", nil) }

// Leave tells the keeper that this process ends on purpose.
func (s *Store) Leave(why string) error { return s.conn.send(leaveMessage, why, nil) }

// Wait returns when the keeper is gone, or the store is closed.
func (s *Store) Wait() {
	for {
		if _, _, file, err := s.conn.receive(); err != nil {
			return
		} else if file != nil {
			_ = file.Close()
		}
	}
}

// Close ends the connection; the keeper keeps what is stored.
func (s *Store) Close() { _ = s.conn.conn.Close() }

// Keeper holds descriptors for one process after the other.
type Keeper struct {
	mutex sync.Mutex // guards files
	files map[string]*os.File
}

// NewKeeper returns one that holds nothing.
func NewKeeper() *Keeper { return &Keeper{files: map[string]*os.File{}} }

// Pair makes a connection; theirs is for the process, as a descriptor that it
// inherits, ours for Serve. The caller closes theirs when the process has it.
func (k *Keeper) Pair() (ours, theirs *os.File, err error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("descriptor store: %w", err)
	}
	return os.NewFile(uintptr(pair[0]), "store"), os.NewFile(uintptr(pair[1]), "store"), nil
}

// Life is what a process told its keeper.
type Life struct {
	Ready bool   // it did its work
	Left  string // why it left on purpose
}

// Serve hands out what is held and keeps what comes, until the process is
// gone. It closes ours.
func (k *Keeper) Serve(ours *os.File) (life Life, err error) {
	conn, err := newStoreConn(ours)
	_ = ours.Close()
	if err != nil {
		return life, err
	}
	defer conn.conn.Close()
	if err := k.handOut(conn); err != nil {
		return life, err
	}
	for {
		letter, name, file, err := conn.receive()
		switch {
		case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
			return life, nil
		case err != nil:
			return life, fmt.Errorf("descriptor store: %w", err)
		case letter == storeMessage && file != nil:
			k.put(name, file)
		case letter == dropMessage:
			k.put(name, nil)
		case letter == leaveMessage:
			life.Left = name
		case letter == readyMessage:
			life.Ready = true
		default:
			return life, errStore
		}
	}
}

func (k *Keeper) handOut(conn storeConn) error {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for name, file := range k.files {
		if err := conn.send(storeMessage, name, file); err != nil {
			return fmt.Errorf("hand out %s: %w", name, err)
		}
	}
	if err := conn.send(endMessage, "", nil); err != nil {
		return fmt.Errorf("hand out descriptors: %w", err)
	}
	return nil
}

func (k *Keeper) put(name string, file *os.File) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	if old := k.files[name]; old != nil {
		_ = old.Close()
		delete(k.files, name)
	}
	if file == nil {
		return
	}
	if len(k.files) >= maxStored {
		_ = file.Close()
		return
	}
	k.files[name] = file
}

// Close closes everything that is held.
func (k *Keeper) Close() {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for name, file := range k.files {
		_ = file.Close()
		delete(k.files, name)
	}
}
