// SPDX-License-Identifier: Apache-2.0

// Command cluster starts a Kubernetes cluster of one real node in namespaces of its own:
// etcd, API server, controller-manager, scheduler, containerd and kubelet, and on the
// node Divvy with simulated GPUs. Nothing of the machine's own network, control groups,
// mounts, /run, /var, /etc and /opt is touched, and all of it goes when the cluster goes.
//
//	cluster run  --folder F --components B --divvy R -- COMMAND   runs COMMAND inside, then ends
//	cluster up   --folder F --components B --divvy R              stays, reached by F/kubeconfig
//	cluster down --folder F
//	cluster able --folder F                                       says whether this machine lets it be made
//
// Five processes make it (the first is gone in `up`):
//
//	run     waits, passes Ctrl-C on by closing a pipe
//	keep    a session of its own, so that no Ctrl-C reaches it; in control groups of its
//	        own; forwards a port to the API server; removes what is left in the end
//	first   process 1 of the namespaces; makes mounts and network, reaps
//	inside  starts the components, and COMMAND
//	...     the components
//
// When process 1 ends, the kernel ends all others; when any of the upper ones is killed,
// process 1 is.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// settings is what all five processes know; it is passed on as flags.
type settings struct {
	folder     string // of this cluster: logs, data, kubeconfig
	components string // what test/cluster/components/build printed
	divvy      string // root of a Divvy build: bin, lib
	images     string // folder of image archives to import
	cards      string // for the simulator
	node       string // how divvy-kube node runs: pod, service (of the host), none
	try        bool   // makes namespaces, mounts, control groups and network, and ends
	command    []string
}

func (s settings) flags(do string) []string {
	args := []string{do, "--folder", s.folder, "--components", s.components, "--divvy", s.divvy, "--images", s.images, "--cards", s.cards,
		"--node", s.node, fmt.Sprintf("--try=%v", s.try), "--"}
	return append(args, s.command...)
}

func (s settings) at(name ...string) string {
	return filepath.Join(append([]string{s.folder}, name...)...)
}

// name makes what has to have a name outside (control groups) this cluster's.
func (s settings) name() string { return "divvy-cluster-" + filepath.Base(s.folder) }

// exitError carries COMMAND's exit status through the processes.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// exitUnable is the exit status of `able` where the machine does not let a cluster be made; what is
// on its standard error says why not.
const exitUnable = 3

// unable says whether an error is the machine's refusal, and no fault of ours.
func unable(err error) bool {
	for _, refusal := range []error{
		errNotRoot, unix.EPERM, unix.EACCES, unix.EROFS, unix.ENOSYS, unix.ENODEV, unix.EOPNOTSUPP, unix.EUSERS,
		unix.ENOSPC, // more namespaces than user.max_* allows
	} {
		if errors.Is(err, refusal) {
			return true
		}
	}
	return false
}

func main() {
	err := run(os.Args[1:])
	var code exitError
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case unable(err):
		fmt.Fprintln(os.Stderr, "cluster: error:", err)
		os.Exit(exitUnable)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster: error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("say run, up, down or able")
	}
	var s settings
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.StringVar(&s.folder, "folder", "", "folder of this cluster")
	flags.StringVar(&s.components, "components", "", "folder of the built components")
	flags.StringVar(&s.divvy, "divvy", "", "root of a Divvy build")
	flags.StringVar(&s.images, "images", "", "folder of image archives")
	flags.StringVar(&s.cards, "cards", "2xA100-40GB", "simulated GPUs")
	flags.StringVar(&s.node, "node", nodePod, "how divvy-kube node runs: pod, service, none")
	flags.BoolVar(&s.try, "try", false, "end when namespaces, mounts, control groups and network are made")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	s.command = flags.Args()
	if !slices.Contains([]string{nodePod, nodeService, nodeNone}, s.node) {
		return fmt.Errorf("--node is pod, service or none, not %q", s.node)
	}
	for _, path := range []*string{&s.folder, &s.components, &s.divvy, &s.images} {
		if *path == "" {
			continue
		}
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return err
		}
		*path = absolute
	}
	if s.folder == "" {
		return errors.New("--folder is missing")
	}
	if os.Geteuid() != 0 {
		return errNotRoot
	}
	switch args[0] {
	case "run":
		return outside(s, true)
	case "up":
		return outside(s, false)
	case "down":
		return down(s)
	case "able":
		s.try = true
		return outside(s, true)
	case "keep":
		return keep(s)
	case "first":
		return first(s)
	case "inside":
		return inside(s)
	}
	return fmt.Errorf("no such command: %s", args[0])
}

var errNotRoot = errors.New("only root can make the cluster's namespaces: run it with sudo")

const startLimit = 3 * time.Minute // until the cluster is ready, on a busy machine

// outside starts the keeper. With wait it lives as long as the cluster: it holds one end
// of a pipe, so that the keeper sees when it is gone, however it went.
func outside(s settings, wait bool) error {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	if kept, err := s.kept(); err != nil || kept {
		return errors.Join(err, fmt.Errorf("there is a cluster in %s already: make cluster-down", s.folder))
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	held, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	says, said, err := os.Pipe()
	if err != nil {
		return err
	}
	keeper := exec.Command(self, s.flags("keep")...)
	keeper.ExtraFiles = []*os.File{said, held} // 3 and 4
	keeper.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if wait {
		keeper.Stdin, keeper.Stdout, keeper.Stderr = os.Stdin, os.Stdout, os.Stderr
	} else {
		keeper.Env = append(os.Environ(), stayVariable+"=yes")
		log, err := os.Create(s.at("cluster.log"))
		if err != nil {
			return err
		}
		defer log.Close()
		keeper.Stdout, keeper.Stderr = log, log
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := keeper.Start(); err != nil {
		return err
	}
	said.Close()
	held.Close()
	if !wait {
		return arrived(ctx, s, says, hold)
	}
	ended := make(chan error, 1)
	go func() { ended <- keeper.Wait() }()
	select {
	case err = <-ended:
	case <-ctx.Done():
		hold.Close()
		if err = <-ended; err == nil {
			err = exitError(130)
		}
	}
	return status(err)
}

// arrived waits until the keeper says that the cluster is there.
func arrived(ctx context.Context, s settings, says io.Reader, hold *os.File) error {
	line := make(chan string, 1)
	go func() {
		text, _ := bufio.NewReader(says).ReadString('\n') // no line: it ended
		line <- strings.TrimSpace(text)
	}()
	select {
	case <-ctx.Done():
		hold.Close()
		<-line
		return exitError(130)
	case text := <-line:
		if text != "ready" {
			return fmt.Errorf("the cluster did not start: %s", s.at("cluster.log"))
		}
		// The keeper lets go of the pipe now that it has said so.
		fmt.Println(s.at("kubeconfig"))
		return nil
	}
}

// kept says whether a keeper holds the folder.
func (s settings) kept() (bool, error) {
	lock, err := os.Open(s.at("keeper"))
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil, nil
}

// down ends the cluster of a folder and waits until it is gone.
func down(s settings) error {
	lock, err := os.OpenFile(s.at("keeper"), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer lock.Close()
	var pid int
	if unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil {
		return nil // nobody keeps it
	}
	if _, err := fmt.Fscan(lock, &pid); err != nil {
		return fmt.Errorf("who keeps the cluster: %w", err)
	}
	if err := unix.Kill(pid, unix.SIGTERM); err != nil {
		return fmt.Errorf("end the keeper, process %d: %w", pid, err)
	}
	return unix.Flock(int(lock.Fd()), unix.LOCK_EX)
}

// status makes a child's exit status ours.
func status(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		if exit.ExitCode() < 0 {
			return exitError(137)
		}
		return exitError(exit.ExitCode())
	}
	return err
}
