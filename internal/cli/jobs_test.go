// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// jobHelper leaves its number in the file $JOB, says that it is there, and says
// whenever it is continued.
func jobHelper() {
	continued := make(chan os.Signal, 16)
	signal.Notify(continued, unix.SIGCONT)
	// Written aside: who finds the file finds all of it.
	path := os.Getenv("JOB")
	if os.WriteFile(path+"~", []byte(strconv.Itoa(os.Getpid())), 0o600) != nil || os.Rename(path+"~", path) != nil {
		os.Exit(1)
	}
	fmt.Println("job ready")
	for range continued {
		fmt.Println("job continued")
	}
}

// shell is bash with job control on a terminal of its own.
type shell struct {
	*terminal
	run  string // what stands before commands
	file string // where a job leaves its number
	said []string
}

func startShell(t *testing.T, run string) *shell {
	t.Helper()
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Fatal(err)
	}
	s := &shell{run: run, file: filepath.Join(t.TempDir(), "job")}
	t.Setenv("JOB", s.file)
	t.Setenv("PS1", "")
	s.terminal = startOnTerminal(t, bash, "--norc", "--noprofile", "--noediting", "-i")
	s.do("stty -echo noflsh; PS1=; echo there is a she''ll")
	s.until("there is a shell")
	s.said = nil
	t.Cleanup(func() { // what is left of a failed test
		if pid := numberIn(s.file); pid != 0 {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	})
	return s
}

// do types a line; RUN in it is what stands before commands.
func (s *shell) do(line string) {
	fmt.Fprintln(s.master, strings.ReplaceAll(line, "RUN ", s.run))
}

// until collects what is said up to a line that holds want.
func (s *shell) until(want string) {
	s.t.Helper()
	timeout := time.NewTimer(eventuallyDeadline)
	defer timeout.Stop()
	for {
		select {
		case line, ok := <-s.lines:
			if !ok {
				s.t.Fatalf("the terminal is closed; want %q after %q", want, s.said)
			}
			s.said = append(s.said, line)
			if strings.Contains(line, want) {
				return
			}
		case <-timeout.C:
			s.t.Fatalf("waited in vain for %q after %q", want, s.said)
		}
	}
}

// ask types a line and collects all that is said until it is done.
func (s *shell) ask(line string) {
	s.t.Helper()
	s.do(line + "; echo do''ne")
	s.until("done")
}

// numberIn reads the number that a job has left in a file; 0: none yet.
func numberIn(file string) int {
	text, _ := os.ReadFile(file)
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || pid < 2 { // others are not one process to kill(2)
		return 0
	}
	return pid
}

// job is the last job's process.
func (s *shell) job() int {
	s.t.Helper()
	pid := 0
	awaited(s.t, "the job says its number", func() bool {
		pid = numberIn(s.file)
		return pid != 0
	})
	return pid
}

// signal sends a signal to the job's process alone.
func (s *shell) signal(number syscall.Signal) {
	s.t.Helper()
	if err := unix.Kill(s.job(), number); err != nil {
		s.t.Fatal(err)
	}
}

// shellSees waits until the shell says of its job what matches a pattern. What it says
// before is a matter of moments.
func (s *shell) shellSees(state string) {
	s.t.Helper()
	before := slices.Clone(s.said)
	defer func() {
		if s.t.Failed() {
			s.t.Logf("last heard: %q", s.said)
		}
	}()
	awaited(s.t, "the shell sees "+state, func() bool {
		s.said = slices.Clone(before)
		// Bash takes note of its children when a signal tells it to, and of one stop in 200, beside
		// busy processes, it does not; a command's end has it look again.
		s.ask("/bin/true; jobs")
		return regexp.MustCompile(state).MatchString(strings.Join(s.said[len(before):], "\n"))
	})
}

// awaited waits for something to be so.
func awaited(t *testing.T, what string, is func() bool) {
	t.Helper()
	deadline := time.NewTimer(eventuallyDeadline)
	defer deadline.Stop()
	poll := time.NewTicker(5 * time.Millisecond)
	defer poll.Stop()
	for !is() {
		select {
		case <-deadline.C:
			t.Fatalf("waited in vain until %s", what)
		case <-poll.C:
		}
	}
}

func (s *shell) sees(pid int, stopped bool) {
	s.t.Helper()
	awaited(s.t, fmt.Sprintf("process %d stopped: %v", pid, stopped), func() bool {
		return process.New("/proc").Stopped(pid) == stopped
	})
}

var (
	aNumber = regexp.MustCompile(`[0-9]{3,}`)
	aCode   = regexp.MustCompile(`Exit (137|143)`)
	aJob    = regexp.MustCompile(`^\[1\][+-]?`)
	spaces  = regexp.MustCompile(` +`)
)

// transcript is what was said, whatever stands before commands. A shell words the end
// of a program by a signal, and of one that says so by its exit code, in its own way;
// and whether it tells of a stop before it is asked is a matter of moments, as is whether
// it holds a command that it is about to forget for the current job.
func (s *shell) transcript() []string {
	var lines []string
	for _, line := range s.said {
		line = aCode.ReplaceAllStringFunc(line, func(code string) string {
			return map[string]string{"Exit 137": "Killed", "Exit 143": "Terminated"}[code]
		})
		line = strings.ReplaceAll(line, "passon ", "")
		line = aJob.ReplaceAllString(aNumber.ReplaceAllString(line, "N"), "[1]")
		if line = strings.TrimSpace(spaces.ReplaceAllString(line, " ")); line != "" && line != "done" && line != "[1] N" {
			lines = append(lines, line)
		}
	}
	return slices.Compact(lines)
}

// TestJobControl plays what people do with jobs and compares all that the shell and
// the job say with what they say of the bare command, also with one run in another.
func TestJobControl(t *testing.T) {
	for name, play := range map[string]func(s *shell){
		"stopped at the terminal, in the background, in the foreground": func(s *shell) {
			s.do("RUN job")
			s.until("job ready")
			fmt.Fprint(s.master, "\x1a")
			s.until("Stopped")
			s.shellSees("Stopped")
			s.do("bg")
			s.until("job continued")
			s.shellSees("Running")
			s.do("fg")
			s.shellSeesForeground()
			fmt.Fprint(s.master, "\x1a")
			s.until("Stopped")
			s.do("fg")
			s.until("job continued")
			fmt.Fprint(s.master, "\x03")
			s.ask("echo code $?")
			s.ask("jobs")
		},
		"stopped again at once": func(s *shell) {
			s.do("RUN job")
			s.until("job ready")
			for range 5 {
				fmt.Fprint(s.master, "\x1a")
				s.until("Stopped")
				s.do("bg")
				s.until("job continued")
				s.do("fg")
				s.shellSeesForeground()
			}
			fmt.Fprint(s.master, "\x03")
			s.ask("echo code $?")
		},
		"stopped and continued alone": func(s *shell) {
			s.do("RUN job &")
			s.until("job ready")
			s.signal(unix.SIGSTOP)
			s.shellSees("Stopped")
			s.signal(unix.SIGCONT)
			s.until("job continued")
			s.shellSees("Running")
			s.do("kill %1")
			s.shellSees("Killed|Terminated|Exit")
		},
		"stopped alone, continued as a job": func(s *shell) {
			s.do("RUN job &")
			s.until("job ready")
			s.signal(unix.SIGSTOP)
			s.shellSees("Stopped")
			s.do("bg")
			s.until("job continued")
			s.shellSees("Running")
			s.do("kill -9 %1")
			s.shellSees("Killed|Terminated|Exit")
		},
		"stopped alone in the foreground": func(s *shell) {
			s.do("RUN job")
			s.until("job ready")
			s.signal(unix.SIGTSTP)
			s.until("Stopped")
			s.shellSees("Stopped")
			s.do("fg")
			s.until("job continued")
			fmt.Fprint(s.master, "\x03")
			s.ask("echo code $?")
		},
		"killed alone while stopped": func(s *shell) {
			s.do("RUN job")
			s.until("job ready")
			fmt.Fprint(s.master, "\x1a")
			s.until("Stopped")
			s.signal(unix.SIGKILL)
			s.shellSees("Killed|Terminated|Exit")
		},
		"killed as a job while stopped": func(s *shell) {
			s.do("RUN sh -c 'echo $$ > $JOB; echo job ready; exec sleep 600'")
			s.until("job ready")
			fmt.Fprint(s.master, "\x1a")
			s.until("Stopped")
			s.do("kill %1; kill -CONT %1") // bash does the second itself, most of the time
			s.shellSees("Killed|Terminated|Exit")
		},
		"stopped by force as a job": func(s *shell) {
			s.do("RUN job &")
			s.until("job ready")
			s.do("kill -STOP %1")
			s.shellSees("Stopped")
			s.do("bg")
			s.until("job continued")
			s.shellSees("Running")
			s.do("kill -9 %1")
			s.shellSees("Killed|Terminated|Exit")
		},
		"asked to stop and to go on by its number": func(s *shell) {
			s.do("RUN job &")
			s.until("job ready")
			s.do("kill -TSTP $!")
			s.shellSees("Stopped")
			s.sees(s.job(), true)
			s.do("kill -CONT $!")
			s.until("job continued")
			s.shellSees("Running")
			s.do("kill $!")
			s.shellSees("Killed|Terminated|Exit")
			s.ask("wait $!; echo code $?")
		},
		"reads the terminal in the background": func(s *shell) {
			s.do("RUN cat &")
			s.shellSees("Stopped")
			s.do("fg")
			s.shellSeesForeground()
			s.do("words")
			s.until("words")
			fmt.Fprint(s.master, "\x04")
			s.ask("echo code $?")
		},
		"killed alone after it read in the background": func(s *shell) {
			s.do(`RUN sh -c 'echo $$ > $JOB; exec cat' &`)
			s.shellSees("Stopped")
			s.signal(unix.SIGKILL)
			s.shellSees("Killed|Terminated|Exit")
			s.ask("wait $!; echo code $?")
		},
		"writes to the terminal in the background": func(s *shell) {
			s.do("stty tostop; RUN sh -c 'echo hello; exit 3' &")
			s.shellSees("Stopped")
			s.do("fg; echo code $?")
			s.until("code ")
		},
	} {
		t.Run(name, func(t *testing.T) {
			said := func(run string) []string {
				var lines []string
				t.Run("with "+strings.TrimSpace(run), func(t *testing.T) {
					s := startShell(t, run)
					play(s)
					lines = s.transcript()
				})
				return lines
			}
			want := said("")
			t.Logf("the bare command: %q", want)
			for _, run := range []string{"passon ", "passon passon "} {
				if got := said(run); !slices.Equal(got, want) {
					t.Errorf("%s: got  %q\nwant %q", run, got, want)
				}
			}
		})
	}
}

// shellSeesForeground waits until another group than the shell's has the terminal.
func (s *shell) shellSeesForeground() {
	s.t.Helper()
	awaited(s.t, "a job has the terminal", func() bool {
		group, err := unix.IoctlGetInt(int(s.master.Fd()), unix.TIOCGPGRP)
		return err == nil && group != s.leader.Process.Pid
	})
}

// Without a terminal, what a parent is told of a run is what it is told of the bare
// command.
func TestStateWithoutTerminal(t *testing.T) {
	for _, run := range [][]string{{"job"}, {"passon", "job"}, {"passon", "passon", "job"}} {
		t.Run(strings.Join(run, " "), func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "job")
			t.Setenv("JOB", file)
			cmd := helper(t, run[0], run[1:]...)
			cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL) })
			job := 0
			awaited(t, "the job is there", func() bool {
				job = numberIn(file)
				return job != 0
			})
			told := func() syscall.WaitStatus {
				var status syscall.WaitStatus
				for {
					_, err := syscall.Wait4(cmd.Process.Pid, &status, syscall.WUNTRACED|syscall.WCONTINUED, nil)
					if err == nil {
						return status
					}
					if !errors.Is(err, syscall.EINTR) {
						t.Fatal(err)
					}
				}
			}
			for range 3 {
				_ = unix.Kill(job, unix.SIGTSTP) // in vain: nobody could continue it
				_ = unix.Kill(job, unix.SIGSTOP)
				if s := told(); !s.Stopped() || s.StopSignal() != unix.SIGSTOP {
					t.Fatalf("stopped: told %#x", s)
				}
				_ = unix.Kill(job, unix.SIGCONT)
				if s := told(); !s.Continued() {
					t.Fatalf("continued: told %#x", s)
				}
			}
			_ = unix.Kill(job, unix.SIGSTOP)
			if s := told(); !s.Stopped() {
				t.Fatalf("stopped again: told %#x", s)
			}
			_ = unix.Kill(job, unix.SIGKILL)
			s := told()
			if s.Continued() { // as it is before it says how the command ended
				s = told()
			}
			if !s.Signaled() && s.ExitStatus() != 137 {
				t.Fatalf("killed: told %#x", s)
			}
		})
	}
}
