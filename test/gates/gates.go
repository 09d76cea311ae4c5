// SPDX-License-Identifier: Apache-2.0

// Package gates leads the real gates of several processes (clib/test/gates.c) by the
// real arbiter, on a clock of their own: what comes of it is the same on any host, and
// the host that it plays may be as slow as a test wants.
package gates

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/arbiter"
)

// Host says how slow it is.
type Host struct {
	Usual, Rare, Most time.Duration // half of all sleepers wake later, one in a thousand, none
	Launch            time.Duration // what a launch takes its thread
}

// Program is one process of a share.
type Program struct {
	Share   string
	Kernel  time.Duration
	Pattern string
}

// Case is what runs.
type Case struct {
	Seconds  float64
	Schedule int
	Host     Host
	Slice    time.Duration
	Terms    []arbiter.Terms
	Programs []Program
	// Blind keeps from the gates when others' work may run beside theirs.
	Blind bool
}

// Moment is what was the case at an instant.
type Moment struct {
	Now     time.Duration
	Used    time.Duration   // the card was busy
	Busy    []time.Duration // each program had it, by the card's account
	Page    []Page          // by the gates'
	Account arbiter.Account
	// Charged is what each share was charged so far, and has run of what is in flight.
	Charged map[string]time.Duration
}

// Page is what a process says of itself.
type Page struct {
	Busy, InFlight, Drain, Waited, Late, LastEnd, Kernel, Span, Gap time.Duration
}

const words = 9 // of a page

// Run plays a case; look, which may be nil, is told of each call that was made.
func Run(program string, c Case, look func(what string, now time.Duration, process int, l *Leader)) ([]Moment, error) {
	arguments := []string{
		strconv.FormatFloat(c.Seconds, 'f', -1, 64), strconv.Itoa(c.Schedule),
		fmt.Sprintf("%d:%d:%d", c.Host.Usual, c.Host.Rare, c.Host.Most), strconv.Itoa(int(c.Host.Launch)), strconv.Itoa(int(c.Slice)),
	}
	for _, p := range c.Programs {
		arguments = append(arguments, fmt.Sprintf("0:%d:%s", p.Kernel, p.Pattern))
	}
	process := exec.Command(program, arguments...)
	output, err := process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	input, err := process.StdinPipe()
	if err != nil {
		return nil, err
	}
	var complaint strings.Builder
	process.Stderr = &complaint
	if err := process.Start(); err != nil {
		return nil, err
	}
	l := &Leader{Case: c, pages: make([]Page, len(c.Programs))}
	l.Arbiter = arbiter.New(arbiter.Default(10*time.Millisecond), l)
	err = l.lead(output, input, look)
	if err != nil {
		_ = process.Process.Kill()
	}
	if ended := process.Wait(); err == nil && ended != nil {
		err = fmt.Errorf("%w: %s", ended, complaint.String())
	}
	return l.moments, err
}

// Leader is the arbiter's place in it.
type Leader struct {
	Case
	Arbiter *arbiter.Arbiter
	pages   []Page
	set     bool
	moments []Moment
}

// Usage is what internal/core makes of pages.
func (l *Leader) Usage(now time.Duration, share string) (u arbiter.Usage) {
	for i, p := range l.Programs {
		if p.Share != share {
			continue
		}
		page := l.pages[i]
		u.Busy += page.Busy
		u.Span += page.Span
		u.Gap += page.Gap
		u.Late += page.Late
		u.Processes++
		u.LastEnd = max(u.LastEnd, min(page.LastEnd, now))
		u.Kernel = max(u.Kernel, page.Kernel)
		if page.InFlight > 0 {
			u.Submitted += page.InFlight
			u.Remaining = max(u.Remaining, page.Drain-now)
		}
	}
	return u
}

func (l *Leader) lead(output io.Reader, input io.Writer, look func(string, time.Duration, int, *Leader)) error {
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		what, numbers := words[0], make([]time.Duration, len(words)-1)
		for i, w := range words[1:] {
			n, err := strconv.ParseInt(w, 10, 64)
			if err != nil {
				return fmt.Errorf("line %q: %w", lines.Text(), err)
			}
			numbers[i] = time.Duration(n)
		}
		if what == "mark" {
			l.mark(numbers)
			continue
		}
		l.read(l.pages, numbers[2:])
		l.call(what, numbers[0], int(numbers[1]))
		if look != nil {
			look(what, numbers[0], int(numbers[1]), l)
		}
		if err := l.answer(numbers[0], input); err != nil {
			return err
		}
	}
	return lines.Err()
}

func (l *Leader) read(pages []Page, numbers []time.Duration) {
	for i := range pages {
		n := numbers[i*words:]
		pages[i] = Page{n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]}
	}
}

func (l *Leader) mark(numbers []time.Duration) {
	n := len(l.Programs)
	m := Moment{Now: numbers[0], Used: numbers[1], Busy: numbers[2 : 2+n], Page: make([]Page, n)}
	l.read(m.Page, numbers[2+n:])
	m.Account = l.Arbiter.Account(m.Now)
	m.Charged = map[string]time.Duration{}
	for i, p := range l.Programs {
		m.Charged[p.Share] += m.Page[i].Busy
		if m.Page[i].InFlight > 0 {
			m.Charged[p.Share] += max(m.Page[i].InFlight-max(m.Page[i].Drain-m.Now, 0), 0)
		}
	}
	for share := range m.Charged {
		m.Charged[share] -= l.Arbiter.Overcount(share)
	}
	l.moments = append(l.moments, m)
}

func (l *Leader) call(what string, now time.Duration, process int) {
	if !l.set {
		l.Arbiter.Set(now, l.Terms)
		l.set = true
	}
	switch what {
	case "want":
		l.Arbiter.Want(now, l.Programs[process-1].Share, uint64(process))
	case "back":
		l.Arbiter.Back(now, l.Programs[process-1].Share, uint64(process))
	case "tick":
		l.Arbiter.Tick(now)
	}
}

// answer writes the leases that have changed.
func (l *Leader) answer(now time.Duration, input io.Writer) error {
	l.Arbiter.Drain()
	var leases []string
	for i, p := range l.Programs {
		lease := l.Arbiter.Lease(p.Share)
		if l.Blind {
			lease.BesideTo, lease.BesideFrom = 0, 0
		}
		gated := 0
		if l.Arbiter.Gated(p.Share) {
			gated = 1
		}
		leases = append(leases, fmt.Sprintf("%d %d %d %d %d %d %d %d", i+1, gated, lease.End, l.Arbiter.LeaseBegin(p.Share), lease.Backlog, lease.Process,
			lease.BesideTo, lease.BesideFrom))
	}
	_, err := fmt.Fprintf(input, "%d %d %s\n", l.Arbiter.NextWake(now), len(leases), strings.Join(leases, " "))
	return err
}
