// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"crypto/md5"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// hashcatBytes is less than hashcat holds when it cracks, and more than a context.
const hashcatBytes = 2 * contextBytes

// hashcat compiles its kernels by NVRTC and keeps them in a folder of this test; the
// rest is as it comes from Debian, its self-test included. Where an OpenCL driver for the
// processor is installed, it would crack there what the share has no room for.
func (c *clients) hashcat(t testing.TB, env []string, session string, args ...string) *exec.Cmd {
	t.Helper()
	command := bounded(t, "hashcat", append([]string{"--force", "--backend-ignore-opencl", "--hwmon-disable", "--potfile-disable",
		"--session", session, "--kernel-accel", "1", "--kernel-loops", "1"}, args...)...)
	for i, v := range env {
		if strings.HasPrefix(v, "LD_LIBRARY_PATH=") {
			env[i] += ":" + filepath.Join(c.folder, "nvrtc")
		}
	}
	command.Env = append(env, "HOME="+c.home, "XDG_CACHE_HOME="+c.home, "XDG_DATA_HOME="+c.home)
	return command
}

// crack finds a word of three letters and a digit by its digest.
func (c *clients) crack(t testing.TB, env []string, word string) error {
	t.Helper()
	digest := fmt.Sprintf("%x", md5.Sum([]byte(word)))
	found := filepath.Join(c.home, word)
	command := c.hashcat(t, env, word, "-m", "0", "-a", "3", "--outfile", found, digest, "?l?l?l?d")
	got := finish(t, command, command.Env)
	text, err := os.ReadFile(found)
	if got.code != 0 || string(text) != digest+":"+word+"\n" {
		return fmt.Errorf("code %d, found %q, %v: %s%s", got.code, text, err, tail(got.stdout, 1500), tail(got.stderr, 1500))
	}
	return nil
}

func TestClientHashcat(t *testing.T) {
	c := newClients(t, "python", "hashcat")
	t.Run("alone", func(t *testing.T) {
		const quota = 1024 * mib
		share := c.share(t, "alone", quota)
		command := c.hashcat(t, c.Environ(share.Socket), "info", "-I")
		if got := finish(t, command, command.Env); got.code != 0 || !strings.Contains(got.stdout, "Memory.Total...: 1024 MB") {
			t.Errorf("code %d, sees another GPU than its share: %s", got.code, tail(got.stdout, 1500))
		}
		c.resetPeak(t)
		start := time.Now()
		if err := c.crack(t, c.Environ(share.Socket), "gpu7"); err != nil {
			t.Fatal(err)
		}
		c.figures(t, "hashcat", time.Since(start), quota)
	})
	t.Run("together", func(t *testing.T) {
		var wait sync.WaitGroup
		for _, word := range []string{"red1", "ace5"} {
			share := c.share(t, word, 768*mib)
			wait.Go(func() {
				if err := c.crack(t, c.Environ(share.Socket), word); err != nil {
					t.Errorf("share %s: %v", word, err)
				}
			})
		}
		wait.Wait()
	})
	t.Run("too small", func(t *testing.T) {
		const quota = 80 * mib
		share := c.share(t, "small", quota)
		c.resetPeak(t)
		command := c.hashcat(t, c.Environ(share.Socket), "small", "-m", "0", "-a", "3", fmt.Sprintf("%x", md5.Sum([]byte("gpu7"))), "?l?l?l?d")
		got := finish(t, command, command.Env)
		if said := strings.ToLower(got.stdout + got.stderr); got.code < 250 || !strings.Contains(said, "not enough allocatable device memory") {
			t.Errorf("code %d: %s%s", got.code, tail(got.stdout, 1500), tail(got.stderr, 1500))
		}
		if peak := c.peak(t); peak > quota {
			t.Errorf("hashcat held %d bytes of %d", peak, quota)
		}
	})
	t.Run("killed", func(t *testing.T) {
		share := c.share(t, "killed", 512*mib)
		command := c.hashcat(t, c.Environ(share.Socket), "long", "-m", "0", "-a", "3", strings.Repeat("0123", 8), "?a?a?a?a?a?a?a?a")
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		c.accounted(t, share, command.Process.Pid, hashcatBytes)
		_ = command.Process.Kill()
		_ = command.Wait()
		c.memoryBack(t, share)
	})
}
