// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
)

// hand is a process that does what testdata/handed.py says.
type hand struct {
	t       *testing.T
	process *exec.Cmd
	input   io.WriteCloser
	answers *bufio.Scanner
}

// hands are two of them, that can send each other descriptors.
func (h *host) hands(t *testing.T, maker, taker []string) (one, other *hand) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	start := func(env []string, end int) *hand {
		line := os.NewFile(uintptr(end), "line")
		defer line.Close()
		of := &hand{t: t, process: exec.Command("/usr/bin/python3", filepath.Join(root(t), "test", "e2e", "testdata", "handed.py"))}
		of.process.Env, of.process.ExtraFiles, of.process.Stderr = env, []*os.File{line}, os.Stderr
		output, err := of.process.StdoutPipe()
		if err == nil {
			of.input, err = of.process.StdinPipe()
		}
		if err == nil {
			err = of.process.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(of.kill)
		of.answers = bufio.NewScanner(output)
		if !of.answers.Scan() || of.answers.Text() != "ready" {
			t.Fatalf("it says %q", of.answers.Text())
		}
		of.do("start")
		return of
	}
	return start(maker, ends[0]), start(taker, ends[1])
}

func (p *hand) kill() {
	_ = p.process.Process.Kill()
	_ = p.process.Wait()
}

func (p *hand) ask(format string, arguments ...any) string {
	p.t.Helper()
	if _, err := fmt.Fprintf(p.input, format+"\n", arguments...); err != nil || !p.answers.Scan() {
		p.t.Fatalf("%s: no answer: %v", format, err)
	}
	return strings.TrimSpace(p.answers.Text())
}

// do has it do something, and returns what came of it.
func (p *hand) do(format string, arguments ...any) string {
	p.t.Helper()
	answer, ok := strings.CutPrefix(p.ask(format, arguments...), "ok")
	if !ok {
		p.t.Fatalf("%s: %s", fmt.Sprintf(format, arguments...), answer)
	}
	return strings.TrimSpace(answer)
}

// refused has it try what there is no room for.
func (p *hand) refused(format string, arguments ...any) {
	p.t.Helper()
	if answer := p.ask(format, arguments...); !strings.HasPrefix(answer, "error 2 ") {
		p.t.Fatalf("%s: %s", fmt.Sprintf(format, arguments...), answer)
	}
}

const handedQuota = 1024 * mib

// booked waits until a share's ledger and the simulator say the same: so much, and never
// more than the quota.
func (h *host) booked(t *testing.T, share api.Share, ledger, held uint64) {
	t.Helper()
	truth := h.truth(t)
	eventually(t, "the ledger and the simulator agree", func() error {
		cards, err := truth.Cards(t.Context())
		if err != nil {
			return err
		}
		if used := h.look(t, share.Name).UsedBytes; used != ledger || cards[0].UsedBytes != held {
			return fmt.Errorf("%d MiB on the ledger, want %d; %d MiB on the card, want %d", used/mib, ledger/mib, cards[0].UsedBytes/mib, held/mib)
		}
		return nil
	})
	if peak := h.peak(t); peak > handedQuota {
		t.Errorf("the card held %d MiB under a quota of %d", peak/mib, handedQuota/mib)
	}
}

// TestHandedMemory: memory that one process makes and another one holds is charged once in
// a share, whoever has it by then, and until nobody has. The simulator's account is the
// truth.
func TestHandedMemory(t *testing.T) {
	t.Parallel()
	const contexts, piece = 2 * contextBytes, 256 * mib
	h := newHost(t, hostOptions{})
	// restart kills the agent's worker and waits for the programs.
	restart := func(t *testing.T, share api.Share) {
		t.Helper()
		before, err := h.client.Version(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := syscall.Kill(before.PID, syscall.SIGKILL); err != nil { // its supervisor starts another
			t.Fatal(err)
		}
		eventually(t, "another agent has both back", func() error {
			now, err := h.client.Version(t.Context())
			if err == nil && now.PID == before.PID {
				err = fmt.Errorf("process %d answers", now.PID)
			}
			if err == nil && h.look(t, share.Name).Clients != 2 {
				err = errors.New("not both are back")
			}
			return err
		}, h.agent)
	}
	for name, test := range map[string]func(t *testing.T, share api.Share, maker, taker *hand){
		"released by its maker": func(t *testing.T, share api.Share, maker, taker *hand) {
			var taken []string
			for range 3 {
				made := maker.do("create %d", piece)
				maker.do("send %s", made)
				taken = append(taken, taker.do("take"))
				maker.do("release %s", made)
			}
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			taker.refused("create %d", piece)
			for i, one := range taken {
				taker.do("release %s", one)
				h.booked(t, share, contexts+uint64(2-i)*piece, contexts+uint64(2-i)*piece)
			}
			maker.do("release %s", maker.do("create %d", 3*piece))
		},
		"paid once": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("send %s", made)
			taken := taker.do("take")
			view := taker.do("map %s %d", taken, 3*piece)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			taker.do("release %s", taken)
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece) // what is mapped is held
			maker.refused("create %d", piece)
			taker.do("unmap %s", view)
			h.booked(t, share, contexts, contexts)
		},
		"imported by its maker": func(t *testing.T, share api.Share, maker, _ *hand) {
			made := maker.do("create %d", 3*piece)
			again := maker.do("again %s", made)
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			maker.do("release %s", again)
			h.booked(t, share, contexts, contexts)
		},
		"its maker killed": func(t *testing.T, share api.Share, maker, taker *hand) {
			maker.do("send %s", maker.do("create %d", 3*piece))
			taken := taker.do("take")
			maker.kill()
			h.booked(t, share, contextBytes+3*piece, contextBytes+3*piece)
			taker.refused("create %d", piece)
			taker.do("release %s", taken)
			h.booked(t, share, contextBytes, contextBytes)
			taker.do("create %d", 3*piece)
		},
		"who holds it killed": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("send %s", made)
			taker.do("take")
			maker.do("release %s", made)
			taker.kill()
			h.booked(t, share, contextBytes, contextBytes)
			maker.do("create %d", 3*piece)
		},
		"kept by a descriptor": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("keep %s", made)
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			if free := taker.do("info"); free != fmt.Sprint(handedQuota-contexts-3*piece) {
				t.Errorf("%s bytes are free", free)
			}
			maker.do("drop")
			h.booked(t, share, contexts, contexts)
		},
		"kept by another's descriptor": func(t *testing.T, share api.Share, maker, taker *hand) {
			maker.do("send %s", maker.do("create %d", 3*piece))
			taker.do("hold")
			maker.kill()
			h.booked(t, share, contextBytes+3*piece, contextBytes+3*piece)
			taker.refused("create %d", piece)
			if free := taker.do("info"); free != fmt.Sprint(handedQuota-contextBytes-3*piece) {
				t.Errorf("%s bytes are free", free)
			}
			taker.do("drop")
			h.booked(t, share, contextBytes, contextBytes)
		},
		"by IPC": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("alloc %d", 3*piece)
			text := maker.do("ipc %s", made)
			opened := taker.do("open %s", text)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			again := taker.do("open %s", text)
			taker.do("close %s", again)
			maker.do("free %s", made)
			// A simulated card has it back now; a driver keeps it for who has it open.
			h.booked(t, share, contexts+3*piece, contexts)
			taker.do("close %s", opened)
			h.booked(t, share, contexts, contexts)
		},
		"by IPC, its maker killed": func(t *testing.T, share api.Share, maker, taker *hand) {
			opened := taker.do("open %s", maker.do("ipc %s", maker.do("alloc %d", 3*piece)))
			maker.kill()
			h.booked(t, share, contextBytes+3*piece, contextBytes)
			taker.do("close %s", opened)
			h.booked(t, share, contextBytes, contextBytes)
		},
		"of a pool": func(t *testing.T, share api.Share, maker, taker *hand) {
			made, text, _ := strings.Cut(maker.do("pool %d", 3*piece), " ")
			at := taker.do("pointer %s", text)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			taker.do("free %s", at)
			maker.do("free %s", made)
			maker.do("release %s", maker.do("create %d", 3*piece))
		},
		"of a pool, its maker killed": func(t *testing.T, share api.Share, maker, taker *hand) {
			_, text, _ := strings.Cut(maker.do("pool %d", 3*piece), " ")
			at := taker.do("pointer %s", text)
			maker.kill()
			h.booked(t, share, contextBytes+3*piece, contextBytes)
			taker.do("free %s", at)
			h.booked(t, share, contextBytes, contextBytes)
		},
		"as external memory": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("send %s", made)
			memory, view, _ := strings.Cut(taker.do("external %d", 3*piece), " ")
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			taker.do("free %s", view)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			taker.do("destroy %s", memory)
			h.booked(t, share, contexts, contexts)
		},
		"over a restart of the agent": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("send %s", made)
			taken := taker.do("take")
			restart(t, share)
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			taker.do("release %s", taken)
			h.booked(t, share, contexts, contexts)
			maker.do("create %d", 3*piece)
		},
		"kept by a descriptor over a restart of the agent": func(t *testing.T, share api.Share, maker, taker *hand) {
			made := maker.do("create %d", 3*piece)
			maker.do("send %s", made)
			taker.do("hold")
			restart(t, share)
			maker.do("release %s", made)
			h.booked(t, share, contexts+3*piece, contexts+3*piece)
			maker.refused("create %d", piece)
			taker.do("drop")
			h.booked(t, share, contexts, contexts)
			maker.do("create %d", 3*piece)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h.empty(t)
			share := h.share(t, "handed", handedQuota)
			h.resetPeak(t)
			maker, taker := h.hands(t, h.Environ(share.Socket), h.Environ(share.Socket))
			test(t, share, maker, taker)
			maker.kill()
			taker.kill()
			h.booked(t, share, 0, 0)
		})
	}

	t.Run("in another share", func(t *testing.T) {
		h.empty(t)
		share, other := h.share(t, "handed", handedQuota), h.share(t, "taken", handedQuota)
		maker, taker := h.hands(t, h.Environ(share.Socket), h.Environ(other.Socket))
		made := maker.do("create %d", 3*piece)
		for range 2 {
			maker.do("send %s", made)
		}
		taken := taker.do("take")
		again := taker.do("take")
		for _, s := range []api.Share{share, other} {
			if used := h.look(t, s.Name).UsedBytes; used != contextBytes+3*piece {
				t.Errorf("%s: %d MiB", s.Name, used/mib)
			}
		}
		maker.do("send %s", maker.do("create %d", 128*mib))
		taker.do("take")
		taker.do("alloc %d", 64*mib)
		maker.do("send %s", maker.do("create %d", 64*mib))
		taker.refused("take") // and nothing is left of it
		maker.do("release %s", made)
		taker.do("release %s", taken)
		taker.do("release %s", again)
		maker.kill()
		taker.kill()
		h.empty(t)
	})

	// Without Divvy nothing holds them to a quota.
	t.Run("control", func(t *testing.T) {
		h.empty(t)
		h.resetPeak(t)
		maker, taker := h.hands(t, h.Unheld(), h.Unheld())
		for range 5 {
			made := maker.do("create %d", piece)
			maker.do("send %s", made)
			taker.do("take")
			maker.do("release %s", made)
		}
		if peak := h.peak(t); peak != contexts+5*piece {
			t.Errorf("the card held %d MiB", peak/mib)
		}
	})
}
