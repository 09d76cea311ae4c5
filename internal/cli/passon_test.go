// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// passOnHelper is a program that only passes on, as divvy run does.
func passOnHelper() {
	path, err := findCommand(os.Args[1])
	if err == nil {
		var code int
		code, err = (&app{}).passOn(&exec.Cmd{Path: path, Args: os.Args[1:], Env: os.Environ()}, watch{})
		if err == nil {
			err = &exitError{code: code}
		}
	}
	os.Exit(exitCode(err))
}

// counterHelper prints a line for each signal that it gets; SIGTERM ends it
// with code 7.
func counterHelper() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, unix.SIGINT, unix.SIGUSR1, unix.SIGWINCH, unix.SIGTERM)
	fmt.Println("counter ready")
	for s := range signals {
		fmt.Println("counter got", unix.SignalName(s.(syscall.Signal)))
		if s == unix.SIGTERM {
			os.Exit(7)
		}
	}
}

// leaderHelper plays a shell with job control: it runs its arguments in a group
// of their own in the foreground, says when they stop, continues them, and says
// how they ended.
func leaderHelper() {
	path, err := exec.LookPath(os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	job, err := os.StartProcess(path, os.Args[1:], &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Foreground: true, Ctty: 0},
	})
	if err != nil {
		os.Exit(1)
	}
	for {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(job.Pid, &status, syscall.WUNTRACED, nil); err != nil {
			os.Exit(1)
		}
		if !status.Stopped() {
			fmt.Println("leader: exit", status.ExitStatus())
			os.Exit(0)
		}
		fmt.Println("leader: stopped")
		_ = unix.Kill(-job.Pid, unix.SIGCONT)
	}
}

// terminal is a pseudo-terminal with a session on its other side.
type terminal struct {
	t      *testing.T
	master *os.File
	lines  chan string
	leader *exec.Cmd
}

// startOnTerminal runs a program as the leader of a session on a terminal.
func startOnTerminal(t *testing.T, program string, args ...string) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer slave.Close()
	term := &terminal{t: t, master: master, lines: make(chan string, 64), leader: helper(t, program, args...)}
	term.leader.Stdin, term.leader.Stdout, term.leader.Stderr = slave, slave, slave
	term.leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := term.leader.Start(); err != nil {
		t.Fatal(err)
	}
	go readLines(master, term.lines)
	t.Cleanup(func() { _ = term.leader.Process.Kill(); _ = term.leader.Wait() })
	return term
}

func readLines(r io.Reader, lines chan<- string) {
	defer close(lines)
	for scanner := bufio.NewScanner(r); scanner.Scan(); {
		lines <- strings.TrimSpace(scanner.Text())
	}
}

// expect waits for the line that ends in want; others must not come before it.
func expect(t *testing.T, lines <-chan string, want string) {
	t.Helper()
	timeout := time.NewTimer(20 * time.Second)
	defer timeout.Stop()
	select {
	case line, ok := <-lines:
		if !ok || !strings.HasSuffix(line, want) {
			t.Fatalf("got %q, want %q", line, want)
		}
	case <-timeout.C:
		t.Fatalf("waited in vain for %q", want)
	}
}

// helper is a command of this test binary under another name (TestMain).
func helper(t *testing.T, program string, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for _, name := range []string{"passon", "leader", "counter", "job"} {
		if err := os.Symlink(self, filepath.Join(folder, name)); err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(program, "/") {
		program = filepath.Join(folder, program)
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "PATH="+folder+":"+os.Getenv("PATH"))
	return cmd
}

// The terminal's own signals reach the command once, not a second time by us.
func TestTerminalSignalsComeOnce(t *testing.T) {
	term := startOnTerminal(t, "leader", "passon", "counter")
	expect(t, term.lines, "counter ready")
	fmt.Fprint(term.master, "\x03")
	expect(t, term.lines, "counter got SIGINT")
	fmt.Fprint(term.master, "\x1a") // everybody stops, and the leader continues them
	expect(t, term.lines, "leader: stopped")
	fmt.Fprint(term.master, "\x03")
	expect(t, term.lines, "counter got SIGINT")
	fmt.Fprint(term.master, "\x03")
	expect(t, term.lines, "counter got SIGINT")
}

// What others send to us is passed on, and the command's code comes back.
func TestSignalsArePassedOn(t *testing.T) {
	cmd := helper(t, "passon", "counter")
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // no terminal
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 16)
	go readLines(output, lines)
	expect(t, lines, "counter ready")
	for _, s := range []syscall.Signal{unix.SIGINT, unix.SIGUSR1, unix.SIGWINCH} {
		if err := cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		expect(t, lines, "counter got "+unix.SignalName(s))
	}
	if err := cmd.Process.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	expect(t, lines, "counter got SIGTERM")
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 7 {
		t.Errorf("exit code %d, want 7", code)
	}
}

func TestExitCodesOfCommands(t *testing.T) {
	folder := t.TempDir()
	script := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		args []string
		want int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 3"}, 3},
		{[]string{"sh", "-c", "kill -9 $$"}, 137},
		{[]string{"sh", "-c", "kill -TERM $$"}, 143},
		{[]string{"no-such-command"}, 127},
		{[]string{"/no/such/command"}, 127},
		{[]string{folder}, 126},
		{[]string{script("plain", "x", 0o644)}, 126},
		{[]string{script("noformat", "x", 0o755)}, 126},
		{[]string{script("nointerpreter", "#!/no/such/interpreter\n", 0o755)}, 127},
	} {
		cmd := helper(t, "passon", c.args...)
		_ = cmd.Run()
		if got := cmd.ProcessState.ExitCode(); got != c.want {
			t.Errorf("%q: exit code %d, want %d", c.args, got, c.want)
		}
	}
}
