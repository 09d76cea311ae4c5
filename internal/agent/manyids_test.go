// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
)

// manyIDs attaches to a share as one user id after another, as "FIRST COUNT" of a line of its input
// says, keeps what it gets, and says how often that was.
func manyIDs(path string) {
	fmt.Println("ready", os.Getpid())
	lines := bufio.NewScanner(os.Stdin)
	before := os.Geteuid()
	var kept []*front
	for lines.Scan() {
		var first, count int
		if _, err := fmt.Sscan(lines.Text(), &first, &count); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		for id := first; id < first+count; id++ {
			if err := syscall.Setresuid(-1, id, -1); err != nil {
				fmt.Println("error", err)
				os.Exit(1)
			}
			if f, err := newFront(path); err == nil {
				kept = append(kept, f)
			}
			if before == 0 {
				_ = syscall.Setresuid(-1, 0, -1)
			}
		}
		fmt.Println(len(kept))
	}
}

// idsOf starts a process of manyIDs, by a program that makes another user of it or puts it into a namespace.
func idsOf(t *testing.T, path string, by ...string) *child {
	t.Helper()
	binary, err := os.Open("/proc/self/exe") // in a folder where other users may not look
	must(t, err)
	defer binary.Close()
	return startChild(t, path, func(command *exec.Cmd) {
		*command = *exec.Command("/usr/bin/env", append(by, "/proc/self/fd/3")...)
		command.Env = append(os.Environ(), "AGENT_TEST_IDS="+path)
		command.ExtraFiles = []*os.File{binary}
		command.Stderr = os.Stderr
	})
}

// take attaches as so many ids from one on, and says how often it is attached then.
func (c *child) take(first, count int) int {
	c.t.Helper()
	_, err := fmt.Fprintln(c.stdin, first, count)
	must(c.t, err)
	n, err := strconv.Atoi(c.read())
	must(c.t, err)
	return n
}

// One person with hundreds of user ids has no more places than one user: root and another user
// get theirs. The control are ids of which nobody tells whose they are: they take all places that
// users get, and of root's none.
func TestManyIDsOfOnePerson(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can be many users")
	}
	const (
		person, other, first = 12001, 12002, 165536
		processes, each      = 20, 16
		most                 = 256
	)
	asPerson := []string{"setpriv", "--reuid", strconv.Itoa(person), "--regid", strconv.Itoa(person), "--clear-groups"}
	unshare := []string{"unshare", "--user", "--keep-caps"}
	for _, c := range []struct {
		name  string
		given string   // of the machine's subordinate ids
		by    []string // puts a process into a user namespace; nil: there is none
		join  bool     // all are in that of the first one
		want  int      // places
	}{
		{"nobody tells", "", nil, false, most - most/8},
		{"subordinate", fmt.Sprintf("%d:%d:65536\n", person, first), nil, false, most / 2},
		{"namespaces", "", append(asPerson, unshare...), false, most / 2},
		{"namespace of root's", "", unshare, true, most / 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := &rig{t: t, cfg: testConfig(t), source: newFakeSource()}
			folder := filepath.Dir(r.cfg.Directory)
			must(t, os.Chmod(folder, 0o755))
			r.cfg.Private, r.cfg.ShareSocketMode, r.cfg.Creation = false, 0o666, CreateEphemeral
			r.cfg.MaxClients, r.cfg.MaxShareClients = most, most
			r.prepare = func(d *daemon) {
				given := subordinatesOf(t, "", c.given)
				d.subordinates.path, d.subordinates.users = given.path, given.users
			}
			r.client = client.New(r.cfg.APISocket())
			r.start()
			t.Cleanup(func() { r.stop() })
			r.share(api.ShareSpec{Name: "s", MemoryBytes: gib})
			path, by, from, taken := r.cfg.ShareSocket("s"), c.by, first, 0
			for n := range processes {
				attacker := idsOf(t, path, by...)
				if c.by != nil {
					from = 1 // inside
				}
				if c.by != nil && (n == 0 || !c.join) {
					eventually(t, "it is in a namespace", func() bool {
						_, _, ok := r.daemon.table.UserNamespace(attacker.pid)
						return ok
					})
					for _, ids := range []string{"gid_map", "uid_map"} {
						file := fmt.Sprintf("/proc/%d/%s", attacker.pid, ids)
						must(t, os.WriteFile(file, fmt.Appendf(nil, "0 %d 65536\n", first), 0o600))
					}
				}
				if c.join && n == 0 {
					by = []string{"nsenter", "--user", "--target", strconv.Itoa(attacker.pid)}
				}
				taken += attacker.take(from+n*each, each)
			}
			if taken != c.want {
				t.Errorf("%d processes with %d ids each have %d of %d places, want %d", processes, each, taken, most, c.want)
			}
			want := 1
			if c.want > most/2 {
				want = 0
			}
			if got := idsOf(t, path, "setpriv", "--reuid", strconv.Itoa(other), "--clear-groups").take(other, 1); got != want {
				t.Errorf("another user is let in %d times, want %d", got, want)
			}
			r.front("s") // root
		})
	}
}
