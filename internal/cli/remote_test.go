// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// fakeWorker is the worker of a session: it welcomes, and answers each frame with its
// environment.
func fakeWorker() {
	conn := os.NewFile(3, "connection")
	if f, _, err := protocol.Read(conn, protocol.MaxControl); err != nil || f.Op != protocol.Hello {
		os.Exit(3)
	}
	err := protocol.Write(conn, protocol.Welcome, nil)
	for err == nil {
		if _, _, err = protocol.Read(conn, protocol.MaxPayload); err == nil {
			err = protocol.Write(conn, protocol.Reply, []byte(strings.Join(os.Environ(), "\n")))
		}
	}
}

// remoteProgram is a program of a run on a server: it begins a session, prints what the
// worker says, and then stays if it is told so, until its session has ended.
func remoteProgram() {
	token, err := protocol.ParseToken(os.Getenv(remoteRunVariable))
	fail := func(what string, err error) {
		if err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
			os.Exit(1)
		}
	}
	fail("token", err)
	conn, err := net.Dial("unix", os.Getenv(remoteSocketVariable))
	fail("connect", err)
	h := protocol.HelloPayload{Magic: protocol.Magic, Oldest: 1, Newest: 1, PID: uint32(os.Getpid()), Token: token}
	copy(h.Command[:], "program")
	fail("hello", protocol.Write(conn, protocol.Hello, h.Encode()))
	f, payload, err := protocol.Read(conn, protocol.MaxControl)
	fail("welcome", err)
	if f.Op == protocol.Refused {
		r, err := protocol.DecodeRefusal(payload)
		fail("refusal", err)
		fail("refused", r)
	}
	fail("call", protocol.Write(conn, protocol.FirstCall, nil))
	_, payload, err = protocol.Read(conn, protocol.MaxPayload)
	fail("reply", err)
	fmt.Printf("%s\nLIBRARY=%s\nVISIBLE=%s\n", payload, os.Getenv("LD_PRELOAD"), os.Getenv("CUDA_VISIBLE_DEVICES"))
	if len(os.Args) > 1 {
		_, _ = io.Copy(io.Discard, conn)
		fmt.Println("the session has ended")
	}
}

// remoteLibsCommand is: remotelibs FOLDER. It makes a folder of libraries like the built one,
// with a small library of remote calls and the worker above.
func remoteLibsCommand(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: remotelibs FOLDER")
	}
	built, made := ts.Getenv("DIVVY_LIBDIR"), ts.MkAbs(args[0])
	link := func(from, to string) {
		entries, err := os.ReadDir(from)
		ts.Check(err)
		ts.Check(os.MkdirAll(to, 0o755))
		for _, entry := range entries {
			ts.Check(os.Symlink(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
		}
	}
	link(built, made)
	ts.Check(os.Remove(filepath.Join(made, "tools")))
	link(filepath.Join(built, "tools"), filepath.Join(made, "tools"))
	for _, ours := range []string{"remote", "tools/divvy-worker"} {
		_ = os.Remove(filepath.Join(made, ours))
	}
	ts.Check(os.Symlink(lookIn(ts.Getenv("PATH"), "divvy-worker"), filepath.Join(made, "tools", "divvy-worker")))
	ts.Check(os.Mkdir(filepath.Join(made, "remote"), 0o755))
	source := filepath.Join(made, "remote", "remote.c")
	ts.Check(os.WriteFile(source, []byte("int cuInit(unsigned f) { return (int)f; }\nint cuOfNoDriver(void) { return 0; }\nint nvmlInit_v2(void) { return 0; }\n"), 0o600))
	out, err := exec.Command("gcc", "-shared", "-fPIC", "-Wl,--hash-style=sysv", "-Wl,--build-id=sha1", "-Wl,-Bsymbolic", "-Wl,-soname,libcuda.so.1",
		"-o", filepath.Join(made, "remote", "libcuda.so.1"), source).CombinedOutput()
	if err != nil {
		ts.Fatalf("gcc: %v\n%s", err, out)
	}
}

// freePortCommand is: freeport VARIABLE.
func freePortCommand(ts *testscript.TestScript, negated bool, args []string) {
	if negated || len(args) != 1 {
		ts.Fatalf("usage: freeport VARIABLE")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	_, port, err := net.SplitHostPort(l.Addr().String())
	ts.Check(err)
	ts.Check(l.Close())
	ts.Setenv(args[0], port)
}
