// SPDX-License-Identifier: Apache-2.0

package socket

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	return info.Mode()
}

func TestListenHasExactlyItsMode(t *testing.T) {
	folder := t.TempDir()
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, mode := range []fs.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(folder, "s.sock")
		listener, err := Listen(Packet, path, mode)
		must(t, err)
		if got := modeOf(t, path); got.Perm() != mode || got.Type() != fs.ModeSocket {
			t.Errorf("mode %v, want %v", got, mode)
		}
		must(t, listener.Close())
		if got := modeOf(t, path); got.Type() != fs.ModeSocket {
			t.Errorf("closing took the path away")
		}
	}
	entries, err := os.ReadDir(folder)
	must(t, err)
	if len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
}

func TestListenReplacesAndFollowsNoLink(t *testing.T) {
	folder := t.TempDir()
	target := filepath.Join(folder, "precious")
	must(t, os.WriteFile(target, []byte("precious"), 0o600))
	path := filepath.Join(folder, "s.sock")
	must(t, os.Symlink(target, path))
	listener, err := Listen(Stream, path, 0o600)
	must(t, err)
	defer listener.Close()
	if raw, err := os.ReadFile(target); err != nil || string(raw) != "precious" {
		t.Errorf("the target of the link: %q, %v", raw, err)
	}
	if _, err := net.Dial("unix", path); err != nil {
		t.Errorf("nobody listens in place of the link: %v", err)
	}
	linked := filepath.Join(folder, "linked")
	must(t, os.Symlink(folder, linked))
	if _, err := Listen(Stream, filepath.Join(linked, "x.sock"), 0o600); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a folder that is a link: %v", err)
	}
}

func TestMakeFolder(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "a")
	must(t, MakeFolder(path, 0o700))
	must(t, os.Chmod(path, 0o777))
	must(t, MakeFolder(path, 0o700))
	if got := modeOf(t, path).Perm(); got != 0o700 {
		t.Errorf("mode %v, want 0700", got)
	}
	must(t, os.Symlink(path, filepath.Join(folder, "link")))
	if err := MakeFolder(filepath.Join(folder, "link"), 0o700); !errors.Is(err, ErrUnsafe) {
		t.Errorf("a link: %v", err)
	}
	if os.Geteuid() == 0 {
		must(t, os.Chown(path, 1, 1))
		if err := MakeFolder(path, 0o700); !errors.Is(err, ErrUnsafe) {
			t.Errorf("somebody else's folder: %v", err)
		}
	}
}

// A child that connects, and ends.
func TestPeerAndItsEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	listener, err := Listen(Packet, path, 0o600)
	must(t, err)
	defer listener.Close()
	child := exec.Command(os.Args[0], "-test.run=TestChild")
	child.Env = append(os.Environ(), "SOCKET_TEST_CONNECT="+path)
	stdin, err := child.StdinPipe()
	must(t, err)
	must(t, child.Start())
	accepted, err := listener.Accept()
	must(t, err)
	conn, err := accepted.Conn()
	must(t, err)
	defer conn.Close()
	peer, err := PeerOf(conn)
	must(t, err)
	if accepted.Peer != peer {
		t.Errorf("accepted of %+v, who is %+v", accepted.Peer, peer)
	}
	if peer.PID != child.Process.Pid || peer.UID != os.Geteuid() {
		t.Errorf("peer %+v, want process %d", peer, child.Process.Pid)
	}
	process, err := ProcessOf(conn, peer)
	must(t, err)
	defer process.Close()
	if process.Ended() {
		t.Error("ended while it runs")
	}
	waited := make(chan bool)
	must(t, process.Await(newPoller(t), func() { waited <- process.Ended() }))
	must(t, stdin.Close())
	if !<-waited {
		t.Error("it is said to have ended, and has not")
	}
	_ = child.Wait()
	if _, err := OpenProcess(child.Process.Pid); !errors.Is(err, ErrGone) {
		t.Errorf("open a process that is gone: %v", err)
	}
}

func TestChild(t *testing.T) {
	path := os.Getenv("SOCKET_TEST_CONNECT")
	if path == "" {
		return // only as a child of TestPeerAndItsEnd
	}
	conn, err := net.Dial("unixpacket", path)
	must(t, err)
	_, _ = os.Stdin.Read(make([]byte, 1))
	_ = conn.Close()
}

func TestWaitEndsWithClose(t *testing.T) {
	process, err := OpenProcess(os.Getpid())
	must(t, err)
	waited := make(chan error)
	go func() { waited <- process.Wait() }()
	process.Close()
	if err := <-waited; err == nil {
		t.Error("the wait for a living process ended without an error")
	}
}

// A connection that is made while nobody runs is there for the next process.
func TestStoreKeepsConnections(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.sock")
	keeper := NewKeeper()
	defer keeper.Close()
	generation := func(use func(*Store, map[string]*os.File)) Life {
		ours, theirs, err := keeper.Pair()
		must(t, err)
		lives := make(chan Life)
		go func() {
			life, err := keeper.Serve(ours)
			if err != nil {
				t.Error(err)
			}
			lives <- life
		}()
		store, kept, err := OpenStore(theirs)
		must(t, err)
		must(t, theirs.Close())
		use(store, kept)
		store.Close()
		for _, f := range kept {
			_ = f.Close()
		}
		return <-lives
	}
	first := generation(func(store *Store, kept map[string]*os.File) {
		if len(kept) != 0 {
			t.Errorf("the first process gets %v", kept)
		}
		listener, err := Listen(Packet, path, 0o600)
		must(t, err)
		file, err := listener.File()
		must(t, err)
		must(t, store.Put("share a", file))
		must(t, store.Put("other", file))
		must(t, store.Drop("other"))
		must(t, file.Close())
		must(t, listener.Close())
	})
	conn, err := net.Dial("unixpacket", path)
	must(t, err)
	defer conn.Close()
	second := generation(func(store *Store, kept map[string]*os.File) {
		if len(kept) != 1 || kept["share a"] == nil {
			t.Fatalf("the next process gets %v", kept)
		}
		listener, err := ListenerOf(kept["share a"])
		must(t, err)
		defer listener.Close()
		if !listener.Pending() {
			t.Error("the connection is not there")
		}
		accepted, err := listener.Accept()
		must(t, err)
		accepted.Close()
		if listener.Pending() {
			t.Error("it is there twice")
		}
		must(t, store.Ready())
		must(t, store.Leave("idle"))
	})
	if first != (Life{}) || second != (Life{Ready: true, Left: "idle"}) {
		t.Errorf("lives %+v, %+v", first, second)
	}
}

// Whatever comes to a keeper, it keeps a bounded number of descriptors and no
// other stays open.
func FuzzKeeper(f *testing.F) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		f.Fatal(err)
	}
	defer null.Close()
	f.Add([]byte("Sshare a"), true, []byte("Dshare a"), false)
	f.Add([]byte("Lidle"), true, []byte(""), true)
	f.Fuzz(func(t *testing.T, one []byte, oneFile bool, two []byte, twoFile bool) {
		before := openDescriptors(t)
		keeper := NewKeeper()
		ours, theirs, err := keeper.Pair()
		must(t, err)
		served := make(chan error)
		go func() {
			_, err := keeper.Serve(ours)
			served <- err
		}()
		process, err := newStoreConn(theirs)
		must(t, err)
		must(t, theirs.Close())
		if letter, _, _, err := process.receive(); err != nil || letter != endMessage {
			t.Fatalf("an empty keeper hands out %q: %v", letter, err)
		}
		for _, packet := range []struct {
			bytes []byte
			file  bool
		}{{one, oneFile}, {two, twoFile}} {
			var rights []byte
			if packet.file {
				rights = unix.UnixRights(int(null.Fd()))
			}
			// It may have hung up, or the packet may be too long.
			_, _, _ = process.conn.WriteMsgUnix(packet.bytes, rights, nil)
		}
		must(t, process.conn.Close())
		if err := <-served; err != nil && !errors.Is(err, errStore) {
			t.Errorf("serve: %v", err)
		}
		if len(keeper.files) > 2 {
			t.Errorf("%d kept of two packets", len(keeper.files))
		}
		keeper.Close()
		if after := openDescriptors(t); after != before {
			t.Errorf("%d descriptors are open, %d were before", after, before)
		}
	})
}

func openDescriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}
