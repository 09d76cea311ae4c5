// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// rootfs unpacks Debian packages into a root file system: a C library,
// ldconfig, a shell and Python. It is kept in build/ and never written to.
func rootfs(t *testing.T) string {
	t.Helper()
	python, err := os.Readlink("/usr/bin/python3")
	if err != nil {
		t.Fatalf("which Python the distribution has: %v", err)
	}
	python = filepath.Base(python)
	packages := []string{"libc6", "libc-bin", "busybox", python + "-minimal", "lib" + python + "-minimal",
		"lib" + python + "-stdlib", "libexpat1", "zlib1g", "libffi8"}
	base := filepath.Join(root(t), "build", "rootfs")
	done := filepath.Join(base, "packages")
	if known, err := os.ReadFile(done); err == nil && string(known) == strings.Join(packages, " ") {
		return filepath.Join(base, "root")
	}
	if err := os.RemoveAll(base); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(base, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	fetch := exec.CommandContext(t.Context(), "apt-get", append([]string{"-q", "download"}, packages...)...)
	fetch.Dir = base
	if text, err := fetch.CombinedOutput(); err != nil {
		t.Skipf("no Debian package can be fetched here: %v\n%s", err, tail(string(text), 500))
	}
	files, err := filepath.Glob(filepath.Join(base, "*.deb"))
	if err != nil || len(files) != len(packages) {
		t.Fatalf("%d packages fetched, want %d (%v)", len(files), len(packages), err)
	}
	for _, file := range files {
		if text, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", file, filepath.Join(base, "root")).CombinedOutput(); err != nil {
			t.Fatalf("unpack %s: %v\n%s", file, err, text)
		}
	}
	if err := os.Symlink(python, filepath.Join(base, "root", "usr", "bin", "python3")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(done, []byte(strings.Join(packages, " ")), 0o600); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(base, "root")
}

// containerScript plays a container runtime: it makes a root of its own from
// the image, puts the driver into it as a runtime does, moves the driver aside
// and the front over its names, and runs a program there without environment.
//
//	$1 image  $2 work folder  $3 driver file  $4 front file or "-"  $5 share socket  $6 simulator socket
//	$7 "ldconfig" or "-"  then the program and its arguments
const containerScript = `
set -eu
image=$1 work=$2 driver=$3 front=$4 share=$5 simulator=$6 ldconfig=$7
shift 7
mount -t tmpfs none "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay -o "lowerdir=$image,upperdir=$work/upper,workdir=$work/work" none "$work/root"
root=$work/root
libraries=$root/usr/lib/x86_64-linux-gnu
mkdir -p "$root/proc" "$root/dev" "$root/tmp" "$root/etc" "$root/run/divvy/driver" "$root/programs" "$libraries"
mount -t proc proc "$root/proc"
mount --bind /dev "$root/dev"
mount --bind "$PROGRAMS" "$root/programs"
# The runtime's part: versioned files and links to them.
touch "$libraries/libcuda.so.535.104.05"
mount --bind "$driver" "$libraries/libcuda.so.535.104.05"
ln -s libcuda.so.535.104.05 "$libraries/libcuda.so.1"
ln -s libcuda.so.1 "$libraries/libcuda.so"
touch "$libraries/libnvidia-ml.so.535.104.05"
mount --bind "$driver" "$libraries/libnvidia-ml.so.535.104.05"
ln -s libnvidia-ml.so.535.104.05 "$libraries/libnvidia-ml.so.1"
touch "$root/run/divvy/simulator.sock"
mount --bind "$simulator" "$root/run/divvy/simulator.sock"
# Divvy's part: the driver by another path first, then the front over its names.
if [ "$front" != - ]; then
	for name in libcuda.so.1 libnvidia-ml.so.1; do
		touch "$root/run/divvy/driver/$name"
		mount --bind "$libraries/$name" "$root/run/divvy/driver/$name"
	done
	for name in libcuda.so.1 libnvidia-ml.so.1; do
		mount --bind "$front" "$libraries/$name"
	done
	touch "$root/run/divvy/share.sock"
	mount --bind "$share" "$root/run/divvy/share.sock"
	echo /usr/lib/x86_64-linux-gnu/libcuda.so.1 > "$root/etc/ld.so.preload"
fi
if [ "$ldconfig" = ldconfig ]; then
	chroot "$root" /sbin/ldconfig
fi
exec chroot "$root" /bin/busybox env -i "$@"
`

// inContainer runs a program in a root file system of its own, in its own mount
// and process id namespaces, without any environment.
func (h *host) inContainer(t *testing.T, front, socket string, ldconfig bool, program ...string) outcome {
	t.Helper()
	run := "-"
	if ldconfig {
		run = "ldconfig"
	}
	args := []string{"--mount", "--pid", "--fork", "--kill-child"}
	if os.Geteuid() != 0 {
		args = append(args, "--map-root-user")
	}
	args = append(args, "sh", "-c", containerScript, "container", rootfs(t), t.TempDir(),
		filepath.Join(h.DriverDirectory, "libcuda.so.1"), front, socket, h.SimulatorSocket, run)
	command := exec.CommandContext(t.Context(), "unshare", append(args, program...)...)
	return finish(t, command, []string{"PATH=" + os.Getenv("PATH"), "PROGRAMS=" + built(t, "build", "test")})
}

func TestInsideARootFileSystem(t *testing.T) {
	t.Parallel()
	const quota = 512 * mib
	h := newHost(t, hostOptions{})
	share := h.share(t, "container", quota)
	front := filepath.Join(h.FrontDirectory, "libcuda.so.1")
	snippets := func(flags ...string) []string {
		return append([]string{"/programs/snippets-linked", "linear", fmt.Sprint(quota)}, flags...)
	}
	python := []string{"/usr/bin/python3", "-c", ctypesProgram, fmt.Sprint(quota)}
	clean := func(t *testing.T, got outcome) {
		t.Helper()
		if got.code != 0 || !strings.Contains(got.stdout, "ok cuMemAlloc_v2") || strings.Contains(got.stdout, "not ok") {
			t.Errorf("code %d\n%s%s", got.code, tail(got.stdout, 1500), tail(got.stderr, 1500))
		}
	}
	for _, ldconfig := range []bool{false, true} {
		name := "as installed"
		if ldconfig {
			name = "after ldconfig"
		}
		t.Run(name, func(t *testing.T) {
			h.resetPeak(t)
			clean(t, h.inContainer(t, front, share.Socket, ldconfig, snippets()...))
			got := h.inContainer(t, front, share.Socket, ldconfig, python...)
			want := fmt.Sprintf("total %d free %d alloc %d\n", quota, quota-contextBytes, outOfMemory)
			if got.code != 0 || got.stdout != want {
				t.Errorf("python: code %d, %q, want %q\n%s", got.code, got.stdout, want, tail(got.stderr, 1000))
			}
			if peak := h.peak(t); peak > quota {
				t.Errorf("the driver saw %d bytes in use, quota %d", peak, quota)
			}
		})
	}
	t.Run("control", func(t *testing.T) {
		h.resetPeak(t)
		clean(t, h.inContainer(t, "-", share.Socket, true, snippets("--control")...))
		if peak := h.peak(t); peak <= quota {
			t.Errorf("without the front the driver saw only %d bytes in use", peak)
		}
	})
}
