// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	stayVariable = "DIVVY_CLUSTER_STAYS"
	// kept across clusters of a folder; everything else in it is removed in the end.
	logFolder = "log"
)

// keep runs the namespaces and removes what is left of them in the end. It has two pipes:
// 3, on which it says that the cluster is ready, and 4, which ends with who started it.
func keep(s settings) error {
	runtime.LockOSThread() // the child's death signal hangs on the thread that started it
	said, held := os.NewFile(3, "ready"), os.NewFile(4, "hold")
	lock, err := os.OpenFile(s.at("keeper"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		return fmt.Errorf("another process keeps %s: %w", s.folder, err)
	}
	if err := lock.Truncate(0); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(lock, os.Getpid()); err != nil {
		return err
	}
	groups, err := ownGroups(s.name())
	if err != nil {
		return err
	}
	if err := errors.Join(groups.remove(), clean(s)); err != nil { // of one whose keeper was killed
		return fmt.Errorf("remove what an earlier cluster left: %w", err)
	}
	if err := os.MkdirAll(s.at(logFolder), 0o755); err != nil {
		return err
	}
	code := keepInside(s, groups, said, held)
	return errors.Join(code, groups.leave(), groups.remove(), clean(s))
}

// keepInside starts process 1 in namespaces of its own and waits for its end.
func keepInside(s settings, groups groups, said, held *os.File) error {
	if err := groups.enter(); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	hears, tells, err := os.Pipe()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	stays := os.Getenv(stayVariable) != ""
	process := exec.Command(self, s.flags("first")...)
	process.Stdin, process.Stdout, process.Stderr = os.Stdin, os.Stdout, os.Stderr
	process.ExtraFiles = []*os.File{tells} // 3
	process.SysProcAttr = &syscall.SysProcAttr{
		Pdeathsig: unix.SIGKILL,
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC |
			unix.CLONE_NEWCGROUP,
	}
	if err := process.Start(); err != nil {
		return fmt.Errorf("make namespaces: %w", err)
	}
	tells.Close()
	var forwarder *forwarder
	if stays {
		if forwarder, err = forward(s); err != nil {
			fmt.Fprintln(os.Stderr, "cluster: error:", err)
			stop()
		}
		defer forwarder.close()
	}
	ready, gone := make(chan struct{}), make(chan struct{})
	go func() {
		line, _ := bufio.NewReader(hears).ReadString('\n') // no line: it ended
		if line != "ready\n" || forwarder == nil {
			return
		}
		if err := forwarder.kubeconfig(s); err != nil {
			fmt.Fprintln(os.Stderr, "cluster: error:", err)
			return
		}
		close(ready) // whoever started it may go
		fmt.Fprint(said, line)
	}()
	go func() {
		_, _ = io.Copy(io.Discard, held) // it ends when all who hold the other end are gone
		close(gone)
	}()
	ended := make(chan error, 1)
	go func() { ended <- process.Wait() }()
	remains := false
	select {
	case <-ready:
		remains = true
	case err := <-ended:
		return status(err)
	case <-gone:
	case <-ctx.Done():
	}
	if remains {
		select {
		case err := <-ended:
			return status(err)
		case <-ctx.Done():
		}
	}
	if kill := process.Process.Kill(); kill != nil && !errors.Is(kill, os.ErrProcessDone) {
		return kill
	}
	<-ended
	return exitError(130)
}

// clean removes a cluster's files, but for its logs.
func clean(s settings) error {
	entries, err := os.ReadDir(s.folder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		switch entry.Name() {
		case "keeper", "cluster.log", logFolder:
			continue
		}
		if e := os.RemoveAll(s.at(entry.Name())); e != nil {
			err = errors.Join(err, e)
		}
	}
	return err
}

// groups are the control groups of a cluster: one in each hierarchy, below the one that
// this process was in.
type groups struct {
	folders []string
	before  []string // where this process was
}

// ownGroups finds where the groups of a name belong. On version 1 that is a child of this
// process's group in each hierarchy; where version 2 is all there is, a child of the
// root, since a group with processes can have no children with controllers.
func ownGroups(name string) (groups, error) {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return groups{}, err
	}
	var g groups
	lines := strings.Fields(strings.TrimSpace(strings.ReplaceAll(string(raw), " ", "?")))
	for _, line := range lines {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || parts[1] == "" && len(lines) > 1 {
			continue // of both versions the first
		}
		at := "/sys/fs/cgroup"
		if parts[1] != "" {
			at = filepath.Join(at, strings.TrimPrefix(parts[1], "name="))
		}
		g.before = append(g.before, filepath.Join(at, parts[2]))
		if parts[1] == "" {
			parts[2] = ""
		}
		g.folders = append(g.folders, filepath.Join(at, parts[2], name))
	}
	if len(g.folders) == 0 {
		return groups{}, errors.New("no control groups here")
	}
	return g, nil
}

func move(group string) error {
	if err := os.WriteFile(filepath.Join(group, "cgroup.procs"), fmt.Append(nil, os.Getpid()), 0o644); err != nil {
		return fmt.Errorf("enter a control group: %w", err)
	}
	return nil
}

func (g groups) enter() error {
	for _, folder := range g.folders {
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} { // version 1: empty at first, and nothing may enter
			if raw, err := os.ReadFile(filepath.Join(filepath.Dir(folder), file)); err == nil {
				if err := os.WriteFile(filepath.Join(folder, file), raw, 0o644); err != nil && filepath.Base(filepath.Dir(folder)) == "cpuset" {
					return err
				}
			}
		}
		_ = os.WriteFile(filepath.Join(folder, "cgroup.clone_children"), []byte("1"), 0o644) // version 1 of cpuset has it
		if err := move(folder); err != nil {
			return err
		}
	}
	return nil
}

// leave goes back, so that the groups can be removed.
func (g groups) leave() error {
	var err error
	for _, folder := range g.before {
		err = errors.Join(err, move(folder))
	}
	return err
}

// remove removes the groups, the innermost first. Processes that are dead but not yet
// gone hold them for a moment.
func (g groups) remove() error {
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := g.removeOnce()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (g groups) removeOnce() error {
	var failed error
	for _, top := range g.folders {
		var folders []string
		err := filepath.WalkDir(top, func(name string, entry fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && entry.IsDir() {
				folders = append(folders, name)
			}
			return err
		})
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		for _, folder := range slices.Backward(folders) {
			if err := unix.Rmdir(folder); err != nil && !errors.Is(err, unix.ENOENT) {
				failed = errors.Join(failed, fmt.Errorf("remove %s: %w", folder, err))
			}
		}
	}
	return failed
}

// forwarder lets programs outside reach the API server: a port of the machine's loopback,
// through a socket in the cluster's folder.
type forwarder struct {
	listener net.Listener
}

func forward(s settings) (*forwarder, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return // it was closed
			}
			go join(from, func() (net.Conn, error) { return net.Dial("unix", s.at("api.sock")) })
		}
	}()
	return &forwarder{listener: listener}, nil
}

func (f *forwarder) close() {
	if f != nil {
		f.listener.Close()
	}
}

// kubeconfig is the administrator's, with the forwarded port.
func (f *forwarder) kubeconfig(s settings) error {
	raw, err := os.ReadFile(s.at("pki", "admin.kubeconfig"))
	if err != nil {
		return err
	}
	text := strings.ReplaceAll(string(raw), "https://"+apiAddress, "https://"+f.listener.Addr().String())
	return os.WriteFile(s.at("kubeconfig"), []byte(text), 0o600)
}

// join passes bytes between two connections until one side ends.
func join(from net.Conn, dial func() (net.Conn, error)) {
	defer from.Close()
	to, err := dial()
	if err != nil {
		return // who asked sees the connection end
	}
	defer to.Close()
	done := make(chan struct{}, 2)
	pass := func(a, b net.Conn) {
		_, _ = io.Copy(a, b) // an end is an end
		done <- struct{}{}
	}
	go pass(from, to)
	go pass(to, from)
	<-done
}
