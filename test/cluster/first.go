// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	nodeName    = "node1"
	nodeAddress = "192.168.77.1"
	// of the service `kubernetes`: the first of its range
	serviceAddress = "10.96.0.1"
)

// first is process 1: it makes the node's mounts and network, starts `inside` and reaps
// whatever becomes an orphan.
func first(s settings) error {
	if os.Getpid() != 1 {
		return errors.New("this is for process 1 of the cluster's namespaces: it mounts over /sys/fs/cgroup, /run and more")
	}
	runtime.LockOSThread()
	for _, step := range []struct {
		name string
		do   func(settings) error
	}{{"mounts", mounts}, {"control groups", innerGroups}, {"network", network}} {
		if err := step.do(s); err != nil {
			if s.try && errors.Is(err, unix.EINVAL) {
				// Said of mounts that are locked (in a user namespace), and of file systems that no
				// overlay can write to.
				err = fmt.Errorf("%w (%w)", err, unix.EOPNOTSUPP)
			}
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if s.try {
		return command("ip link add cni0 type bridge") // as CNI will
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	child := exec.Command(self, s.flags("inside")...)
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{os.NewFile(3, "ready")}
	child.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	if err := child.Start(); err != nil {
		return err
	}
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case pid != child.Process.Pid:
		case status.Signaled():
			return exitError(128 + int(status.Signal()))
		case status.ExitStatus() != 0:
			return exitError(status.ExitStatus())
		default:
			return nil
		}
	}
}

// mounts gives the node private copies of the folders that kubelet, containerd and CNI
// write to by their full names.
func mounts(s settings) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return err
	}
	if err := unix.Mount("run", "/run", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, folder := range []string{"var", "opt", "usr/libexec", "etc"} {
		upper, work := s.at("overlay", folder, "upper"), s.at("overlay", folder, "work")
		if err := errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755), os.MkdirAll("/"+folder, 0o755)); err != nil {
			return err
		}
		options := fmt.Sprintf("lowerdir=/%s,upperdir=%s,workdir=%s", folder, upper, work)
		if err := unix.Mount("overlay", "/"+folder, "overlay", 0, options); err != nil {
			return fmt.Errorf("overlay over /%s, with %s: %w", folder, upper, err)
		}
	}
	// No overlay below these: containers have overlays of their own.
	for from, to := range map[string]string{"kubelet": "/var/lib/kubelet", "containerd": "/var/lib/containerd"} {
		if err := errors.Join(os.MkdirAll(s.at(from), 0o755), os.MkdirAll(to, 0o755)); err != nil {
			return err
		}
		if err := unix.Mount(s.at(from), to, "", unix.MS_BIND, ""); err != nil {
			return err
		}
	}
	if err := os.RemoveAll("/etc/cdi"); err != nil { // the machine's own devices are not this node's
		return err
	}
	return unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, "")
}

// innerGroups mounts control groups anew, as the new namespace sees them: the cluster's
// own groups are their roots.
func innerGroups(settings) error {
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	if err := unix.Unmount("/sys/fs/cgroup", unix.MNT_DETACH); err != nil {
		return err
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) == 1 {
		return innerGroup2()
	}
	if err := unix.Mount("cgroup", "/sys/fs/cgroup", "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, line := range lines {
		parts := strings.SplitN(line, ":", 3)
		if len(parts) != 3 || parts[1] == "" {
			continue
		}
		name, options := parts[1], parts[1]
		if named, ok := strings.CutPrefix(name, "name="); ok {
			name, options = named, "none,"+options
		}
		folder := filepath.Join("/sys/fs/cgroup", name)
		if err := os.Mkdir(folder, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("cgroup", folder, "cgroup", 0, options); err != nil {
			return fmt.Errorf("mount the controllers %s: %w", options, err)
		}
		if single := strings.Split(name, ","); len(single) > 1 {
			for _, controller := range single {
				if err := os.Symlink(name, filepath.Join("/sys/fs/cgroup", controller)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// innerGroup2 is version 2: the root of this namespace must have no processes for its
// children to have controllers.
func innerGroup2() error {
	if err := unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, ""); err != nil {
		return err
	}
	services := "/sys/fs/cgroup/services"
	if err := os.Mkdir(services, 0o755); err != nil {
		return err
	}
	if err := move(services); err != nil {
		return err
	}
	controllers, err := os.ReadFile("/sys/fs/cgroup/cgroup.controllers")
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+controller), 0o644); err != nil {
			return fmt.Errorf("pass controller %s on: %w", controller, err)
		}
	}
	return nil
}

// network gives the node an address on a pair of devices whose two ends stay here.
func network(settings) error {
	if err := unix.Sethostname([]byte(nodeName)); err != nil {
		return err
	}
	for _, line := range []string{
		"link set lo up",
		"link add node0 type veth peer name node0p",
		"addr add " + nodeAddress + "/24 dev node0",
		"link set node0 up",
		"link set node0p up",
		"route add default dev node0",
		// There is no kube-proxy: the one service that pods need is an address of the node.
		"addr add " + serviceAddress + "/32 dev lo",
	} {
		if err := command("ip " + line); err != nil {
			return err
		}
	}
	return os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o644)
}

// command runs one of the machine's programs. What it says of a refusal is an error that unable knows.
func command(line string) error {
	words := strings.Fields(line)
	text, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err == nil {
		return nil
	}
	for says, meant := range map[string]error{"not permitted": unix.EPERM, "not supported": unix.EOPNOTSUPP, "Unknown device type": unix.ENODEV} {
		if strings.Contains(string(text), says) {
			err = meant
		}
	}
	return fmt.Errorf("%s: %w: %s", line, err, text)
}
