// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inside starts the cluster, and then COMMAND or nothing.
func inside(s settings) error {
	n := &node{settings: s, services: map[string]*service{}}
	if err := n.serveAPI(); err != nil {
		return err
	}
	started := time.Now()
	if err := n.start(); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "cluster: ready after %.1f s\n", time.Since(started).Seconds())
	n.mu.Lock()
	n.ready = true
	n.mu.Unlock()
	if err := n.listen(); err != nil {
		return err
	}
	ready := os.NewFile(3, "ready")
	fmt.Fprintln(ready, "ready")
	ready.Close()
	if len(s.command) == 0 {
		select {} // until process 1 is killed
	}
	command := exec.Command(s.command[0], s.command[1:]...)
	command.Stdin, command.Stdout, command.Stderr = os.Stdin, os.Stdout, os.Stderr
	command.Env = append(n.environment(),
		"KUBECONFIG="+s.at("pki", "admin.kubeconfig"), "DIVVY_CLUSTER="+s.folder, "DIVVY_ROOT="+s.divvy)
	return status(command.Run())
}

// node is the cluster as it runs.
type node struct {
	settings
	mu       sync.Mutex
	services map[string]*service
	ready    bool // from then on what ends by itself is started again
}

// service is one component.
type service struct {
	name    string
	args    []string
	more    []string     // arguments that a suite added; it has them until it is started without
	extra   []string     // environment
	before  func() error // makes what its unit would make before it starts
	process *exec.Cmd
	ended   chan struct{}
	stopped bool // on request
}

func (n *node) environment() []string {
	return []string{
		"PATH=" + n.components + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root",
		"SSL_CERT_DIR=/nowhere", // only the cluster's own authority counts
	}
}

// run starts a component; what it says is in log/NAME.
func (n *node) run(name string, args ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runLocked(&service{name: name, args: args})
}

// runAfter is run for what needs something of /run.
func (n *node) runAfter(before func() error, name string, args ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.runLocked(&service{name: name, args: args, before: before})
}

func (n *node) runLocked(c *service) error {
	if c.before != nil {
		if err := c.before(); err != nil {
			return err
		}
	}
	log, err := os.OpenFile(n.at(logFolder, c.name), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	process := exec.Command(c.args[0], append(slices.Clone(c.args[1:]), c.more...)...)
	process.Dir, process.Env = n.folder, append(n.environment(), c.extra...)
	process.Stdout, process.Stderr = log, log
	process.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := process.Start(); err != nil {
		return fmt.Errorf("start %s: %w", c.name, err)
	}
	ended := make(chan struct{})
	c.process, c.ended, c.stopped = process, ended, false
	n.services[c.name] = c
	go func() {
		_ = process.Wait() // whoever cares reads its log
		close(ended)
		time.Sleep(restartAfter)
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.ready && isNodeService(c.name) && c.ended == ended && !c.stopped {
			fmt.Fprintf(os.Stderr, "cluster: %s ended (%v) and is started again\n", c.name, process.ProcessState)
			if err := n.runLocked(c); err != nil {
				fmt.Fprintln(os.Stderr, "cluster: error:", err)
			}
		}
	}()
	return nil
}

// restartAfter is what units of the host have as RestartSec.
const restartAfter = 200 * time.Millisecond

// until asks until the answer is no error; it gives up early when a component ended.
func (n *node) until(ctx context.Context, what, component string, ask func() error) error {
	var last error
	for {
		if last = ask(); last == nil {
			return nil
		}
		n.mu.Lock()
		c := n.services[component]
		n.mu.Unlock()
		select {
		case <-c.ended:
			return fmt.Errorf("%s ended: %s", component, n.at(logFolder, component))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w; see %s", what, last, n.at(logFolder, component))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// serveAPI lets the keeper, which is outside, reach the API server, and pods, which know
// the address of its service.
func (n *node) serveAPI() error {
	outside, err := net.Listen("unix", n.at("api.sock"))
	if err != nil {
		return err
	}
	service, err := net.Listen("tcp", serviceAddress+":443")
	if err != nil {
		return err
	}
	for _, listener := range []net.Listener{outside, service} {
		go func() {
			for {
				from, err := listener.Accept()
				if err != nil {
					return
				}
				go join(from, func() (net.Conn, error) { return net.Dial("tcp", apiAddress) })
			}
		}()
	}
	return nil
}

// A suite asks for what only the machine's owner can do to its components: one JSON
// object on a connection to controlSocket, one in return.
const controlSocket = "@divvy-cluster" // abstract, so of this network namespace only

type request struct {
	Do   string   `json:"do"`             // start, stop (signal and wait), kill-worker (of the agent), status, reboot
	Name string   `json:"name,omitempty"` // of a component
	Kill bool     `json:"kill,omitempty"` // with SIGKILL
	Env  []string `json:"env,omitempty"`  // for start, besides its own
	Args []string `json:"args,omitempty"` // for start, behind its own
}

type answer struct {
	Error string         `json:"error,omitempty"`
	PIDs  map[string]int `json:"pids,omitempty"` // of components that run
}

func (n *node) listen() error {
	listener, err := net.Listen("unix", controlSocket)
	if err != nil {
		return err
	}
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go n.serve(connection)
		}
	}()
	return nil
}

func (n *node) serve(connection net.Conn) {
	defer connection.Close()
	var asked request
	var says answer
	if err := json.NewDecoder(connection).Decode(&asked); err != nil {
		says.Error = err.Error()
	} else if says.PIDs, err = n.obey(asked); err != nil {
		says.Error = err.Error()
	}
	_ = json.NewEncoder(connection).Encode(says) // who has gone does not want it
}

func (n *node) obey(asked request) (map[string]int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	var err error
	switch asked.Do {
	case "status":
	case "stop":
		err = n.stopLocked(asked.Name, asked.Kill)
	case "start":
		c := n.services[asked.Name]
		if c == nil {
			return nil, fmt.Errorf("no such component: %s", asked.Name)
		}
		if err = n.stopLocked(asked.Name, false); err == nil {
			c.extra, c.more = asked.Env, asked.Args
			err = n.runLocked(c)
		}
	case "kill-worker":
		err = n.killWorker()
	case "reboot":
		err = n.rebootLocked()
	default:
		err = fmt.Errorf("no such request: %s", asked.Do)
	}
	pids := map[string]int{}
	for name, c := range n.services {
		select {
		case <-c.ended:
		default:
			pids[name] = c.process.Process.Pid
		}
	}
	return pids, err
}

func (n *node) stopLocked(name string, kill bool) error {
	c := n.services[name]
	if c == nil {
		return fmt.Errorf("no such component: %s", name)
	}
	c.stopped = true
	signal := unix.SIGTERM
	if kill {
		signal = unix.SIGKILL
	}
	if err := c.process.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	if kill && name == agentService {
		// Its unit has its worker killed with it; a runtime's containers outlive the runtime.
		if err := killSession(c.process.Process.Pid); err != nil {
			return err
		}
	}
	select {
	case <-c.ended:
	case <-time.After(20 * time.Second):
		_ = c.process.Process.Kill()
		<-c.ended
		return fmt.Errorf("%s did not end within 20 s of signal %v", name, signal)
	}
	return nil
}

const agentService = "agent"

// nodeServices are the components of the node, in the order in which they start.
var nodeServices = []string{"containerd", "simulator", agentService, "kubelet", "node"}

// rebootLocked does to the node what a reboot does: every process but the control plane's
// is gone, /run is empty, the pods' mounts, control groups and networks are gone. What is on
// disk stays.
func (n *node) rebootLocked() error {
	for _, name := range nodeServices {
		if n.services[name] != nil {
			if err := n.stopLocked(name, true); err != nil {
				return err
			}
		}
	}
	spared := map[int]bool{1: true, os.Getpid(): true}
	for name, c := range n.services {
		if !isNodeService(name) {
			spared[c.process.Process.Pid] = true
		}
	}
	if err := killAllBut(spared); err != nil {
		return err
	}
	if err := unmountBelow("/run/", "/var/lib/kubelet/", "/var/lib/containerd/"); err != nil {
		return err
	}
	// A kubelet that finds groups of containers asks the runtime for each, for 3 s.
	var pods groups
	for _, pattern := range []string{"/sys/fs/cgroup/kubepods", "/sys/fs/cgroup/*/kubepods"} {
		folders, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		pods.folders = append(pods.folders, folders...)
	}
	if err := pods.remove(); err != nil {
		return err
	}
	entries, err := os.ReadDir("/run")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join("/run", entry.Name())); err != nil {
			return err
		}
	}
	if err := exec.Command("ip", "link", "delete", "cni0").Run(); err != nil && !isExit(err) {
		return err
	}
	for _, name := range nodeServices {
		if c := n.services[name]; c != nil {
			if err := n.runLocked(c); err != nil {
				return err
			}
		}
	}
	return nil
}

// killWorker kills the agent's worker alone.
func (n *node) killWorker() error {
	c := n.services[agentService]
	if c == nil {
		return fmt.Errorf("no such component: %s", agentService)
	}
	return eachProcess(func(pid int) error {
		if _, parent := stat(pid); parent != c.process.Process.Pid {
			return nil
		}
		return kill(pid)
	})
}

// killSession kills the processes of a session.
func killSession(session int) error {
	return eachProcess(func(pid int) error {
		if of, err := unix.Getsid(pid); err != nil || of != session {
			return nil // it has ended, or is another's
		}
		return kill(pid)
	})
}

func kill(pid int) error {
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

func eachProcess(do func(pid int) error) error {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if pid, err := strconv.Atoi(entry.Name()); err == nil {
			if err := do(pid); err != nil {
				return err
			}
		}
	}
	return nil
}

func isExit(err error) bool {
	var exit *exec.ExitError
	return errors.As(err, &exit)
}

func isNodeService(name string) bool {
	for _, known := range nodeServices {
		if name == known {
			return true
		}
	}
	return false
}

// killAllBut ends processes of the namespace that were started on the node: all that do
// not descend from what is spared. The command of `run` is one of the latter.
func killAllBut(spared map[int]bool) error {
	for range 100 {
		left := 0
		err := eachProcess(func(pid int) error {
			if spared[pid] || descends(pid, spared) || dead(pid) {
				return nil
			}
			left++
			return kill(pid)
		})
		if err != nil || left == 0 {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
	return errors.New("processes of the node do not end")
}

// stat says a process's state and parent.
func stat(pid int) (state string, parent int) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	text := string(raw)
	_, _ = fmt.Sscanf(text[strings.LastIndex(text, ")")+1:], "%s %d", &state, &parent)
	return state, parent
}

func dead(pid int) bool {
	state, _ := stat(pid)
	return state == "" || state == "Z" || state == "X"
}

// descends says whether a process was started by what is spared, other than process 1.
func descends(pid int, spared map[int]bool) bool {
	for pid > 1 {
		_, pid = stat(pid)
		if pid > 1 && spared[pid] {
			return true
		}
	}
	return false
}

// unmountBelow unmounts all below some folders, the innermost first.
func unmountBelow(prefixes ...string) error {
	raw, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	for i := len(lines) - 1; i >= 0; i-- {
		fields := strings.Fields(lines[i])
		for _, prefix := range prefixes {
			if len(fields) > 1 && strings.HasPrefix(fields[1], prefix) {
				if err := unix.Unmount(strings.ReplaceAll(fields[1], `\040`, " "), unix.MNT_DETACH); err != nil &&
					!errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
					return fmt.Errorf("unmount %s: %w", fields[1], err)
				}
			}
		}
	}
	return nil
}
