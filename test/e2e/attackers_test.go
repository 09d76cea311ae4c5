// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/bench"
)

// Users of a machine: who attacks, and who is honest. Only root can be all of them;
// else all are the one who runs the test.
const (
	attackerOne, attackerTwo = 12001, 12002
	honestUser               = 12003
)

// crowd is a host with its users, and all that they run where they can read it.
type crowd struct {
	*host
	attacker, divvy string // programs
	env             []string
}

func newCrowd(t testing.TB, o hostOptions) *crowd {
	t.Helper()
	h := newCards(t, o)
	h.Target = publicCopy(t, h)
	for path, mode := range map[string]os.FileMode{h.directory: 0o755, h.SimulatorSocket: 0o666} {
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	base := filepath.Join(h.directory, "public")
	libraries := filepath.Join(base, "lib")
	if err := os.CopyFS(filepath.Join(libraries, "front"), os.DirFS(built(t, "lib", "divvy", "front"))); err != nil {
		t.Fatal(err)
	}
	c := &crowd{host: h, attacker: filepath.Join(base, "attacker"), divvy: filepath.Join(base, "divvy"),
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=/", "DIVVY_LIBDIR=" + libraries, "DIVVY_AGENT=" + h.AgentSocket}}
	copyProgram(t, divvy(t), c.divvy)
	build := exec.Command("go", "build", "-o", c.attacker, "./test/attacker")
	build.Dir = root(t)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the attacker: %v\n%s", err, out)
	}
	h.begin(t, o)
	return c
}

// as is a command that runs as a user, if we may.
func (c *crowd) as(uid int, program string, args ...string) *exec.Cmd {
	command := exec.Command(program, args...)
	command.Dir = "/"
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		command.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}
	}
	return command
}

// holderAs starts a holder of a user under a share; an empty socket: under none.
func (c *crowd) holderAs(t testing.TB, uid int, socket string) *bench.Holder {
	t.Helper()
	env := c.Unheld()
	if socket != "" {
		env = c.Environ(socket)
	}
	holder, err := bench.HolderOf(c.as(uid, filepath.Join(c.ToolsDirectory, "holder")), env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(holder.Kill)
	if err := holder.Greeting(); err != nil {
		t.Fatal(err)
	}
	return holder
}

// attack is an attacker that attacks.
type attack struct {
	command *exec.Cmd
	input   io.Closer
	output  *bufio.Reader
	ended   bool
}

// attack starts an attacker of these kinds, and waits until it attacks.
func (c *crowd) attack(t testing.TB, uid int, seed uint64, share string, kinds ...string) *attack {
	t.Helper()
	command := c.as(uid, c.attacker, append([]string{"--agent", c.AgentSocket, "--share", share, "--seed", strconv.FormatUint(seed, 10),
		"--tools", c.ToolsDirectory, "--divvy", c.divvy}, kinds...)...)
	command.Env = append(c.Unheld(), c.env...)
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	a := &attack{command: command, input: input, output: bufio.NewReader(output)}
	t.Cleanup(func() {
		if !a.ended {
			_ = syscall.Kill(-command.Process.Pid, syscall.SIGKILL)
			_ = command.Wait()
		}
	})
	if line, err := a.output.ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready ") {
		t.Fatalf("the attacker says %q (%v)", line, err)
	}
	return a
}

// end ends an attacker and says how often it did what.
func (a *attack) end(t testing.TB) map[string]int {
	t.Helper()
	late := time.AfterFunc(waitAtMost, func() { _ = syscall.Kill(-a.command.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	_ = a.input.Close()
	done := map[string]int{}
	for {
		var kind string
		var times int
		line, err := a.output.ReadString('\n')
		if err != nil {
			break
		}
		if _, err := fmt.Sscan(line, &kind, &times); err != nil {
			t.Errorf("the attacker says %q", line)
		}
		done[kind] = times
	}
	if err := a.command.Wait(); err != nil {
		t.Errorf("the attacker: %v", err)
	}
	a.ended = true
	_ = syscall.Kill(-a.command.Process.Pid, syscall.SIGKILL) // what it has left
	return done
}

// Two users who connect and hang up without end, to the interface and to shares, keep
// nobody out: neither commands of others, nor their programs. The control is the same
// with nobody who attacks.
func TestStormOfConnections(t *testing.T) {
	c := newCrowd(t, hostOptions{})
	w := c.witness(t)
	open := c.share(t, "open", 256*mib)
	rounds := func(t *testing.T) {
		for range 12 {
			listed := run(t, c.env, c.divvy, "share", "list")
			if listed.code != 0 || !strings.Contains(listed.stdout, "witness") {
				t.Errorf("share list: exit code %d\n%s%s", listed.code, listed.stdout, listed.stderr)
			}
		}
		for range 3 {
			made := finish(t, c.as(honestUser, c.divvy, "run", "--mem", "128MiB", "--", "true"), c.env)
			if made.code != 0 {
				t.Errorf("run: exit code %d\n%s", made.code, made.stderr)
			}
			holder := c.holderAs(t, honestUser, open.Socket)
			do(t, holder, "start")
			holder.Kill()
		}
		w.content(t, c.host)
	}
	t.Run("control", rounds)
	t.Run("storm", func(t *testing.T) {
		attacks := []*attack{c.attack(t, attackerOne, 1, open.Socket, "storm"), c.attack(t, attackerTwo, 2, open.Socket, "storm")}
		rounds(t)
		for _, a := range attacks {
			if done := a.end(t); done["connections"] < 1000 {
				t.Errorf("that was no storm: %v", done)
			}
		}
	})
}
