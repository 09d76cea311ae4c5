// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// virtual is an agent without goroutines, in a time that passes as fast as it can be
// calculated: the test has its turns, and sees the pages and sockets as programs do.
type virtual struct {
	t      testing.TB
	loop   *loop
	random *rand.Rand
	begun  time.Time
	now    time.Duration
	due    []moment // in order
	timer  time.Duration
	honest *virtualProgram
	shown  []int // processes, by the driver
}

type moment struct {
	at   time.Duration
	what func()
}

// attached is a process of a share, with its end of the connection.
type attached struct {
	connection *connection
	page       *wire.ClientPage
	file       int // of its page
	socket     int // its end
	id         core.ClientID
	packets    [][]byte // that it was sent and has not looked at
}

func newVirtual(t testing.TB, seed uint64) *virtual {
	t.Helper()
	cfg := testConfig(t)
	must(t, cfg.Validate())
	must(t, makeFolders(cfg))
	v := &virtual{t: t, random: rand.New(rand.NewPCG(seed, 1)), begun: time.Now(), now: time.Hour}
	l, err := newLoop(t.Context(), cfg, newFakeSource(), nil, nil)
	must(t, err)
	t.Cleanup(l.close)
	l.clock = func() time.Duration { return v.now }
	v.loop = l
	return v
}

// turn is one of the loop; what has come of it is on the pages.
func (v *virtual) turn(f func(*loop)) {
	l := v.loop
	l.now = v.begun.Add(v.now)
	l.core.Tick(l.now)
	f(l)
	l.carryOut()
	l.begun = nil // nobody waits for connections, or asks a driver
	if next := l.time.next; next != v.timer {
		v.timer = next
		if next > 0 {
			v.at(max(next, v.now)+v.lateness(), func() {
				if v.timer == next {
					v.timer = 0
					v.turn(func(l *loop) {
						l.time.next = 0
						for _, k := range l.time.cards {
							k.arbiter.Tick(v.now)
						}
					})
				}
			})
		}
	}
	if v.honest != nil {
		v.honest.look()
	}
}

func (v *virtual) at(at time.Duration, what func()) {
	i, _ := slices.BinarySearchFunc(v.due, at+1, func(m moment, at time.Duration) int { return int(m.at - at) })
	v.due = slices.Insert(v.due, i, moment{at, what})
}

// lateness is how late somebody wakes, or a message comes.
func (v *virtual) lateness() time.Duration {
	return 20*time.Microsecond + time.Duration(v.random.Int64N(int64(300*time.Microsecond)))
}

func (v *virtual) run(until time.Duration) {
	for len(v.due) > 0 && v.due[0].at <= until && !v.t.Failed() {
		next := v.due[0]
		v.due = v.due[1:]
		v.now = max(v.now, next.at)
		next.what()
	}
	v.now = until
}

func (v *virtual) share(spec core.Spec, owner int) {
	v.t.Helper()
	v.turn(func(l *loop) {
		_, err := l.core.CreateShare(l.now, spec, owner)
		must(v.t, err)
		must(v.t, l.openShare(spec.Name, nil))
	})
}

// attach has a process of a user come under a share; nil: it is refused.
func (v *virtual) attach(name string, pid, uid int) *attached {
	v.t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	must(v.t, err)
	file := os.NewFile(uintptr(pair[0]), "agent's end")
	conn, err := net.FileConn(file)
	must(v.t, err)
	must(v.t, file.Close())
	c := &connection{daemon: v.loop.daemon, share: name, conn: conn.(*net.UnixConn), payer: uid, ended: make(chan struct{})}
	c.turn = c.turns.Add(1)
	c.id = core.ClientID(v.random.Uint64() | 1)
	page, err := wire.NewClientPage(uint64(c.id), c.turn)
	must(v.t, err)
	a := &arrival{process: core.Process{PID: pid, UID: uid, Start: 1, Name: name}, page: page, id: c.id,
		member: &member{share: name, turn: c.turn, conn: c, page: page}, files: [2]int{-1, page.TakeFile()}}
	v.turn(func(l *loop) { err = l.admit(c, a) })
	one := &attached{connection: c, page: page, file: a.files[1], socket: pair[1], id: c.id}
	v.t.Cleanup(one.close)
	if err != nil {
		page.Close()
		one.close()
		return nil
	}
	_ = unix.Close(a.files[0]) // the test has the page itself
	return one
}

func (a *attached) close() {
	if a.socket >= 0 {
		_ = a.connection.conn.Close()
		_ = unix.Close(a.socket)
		_ = unix.Close(a.file)
		a.socket, a.file = -1, -1
	}
}

// send has the agent handle what a process sends; false: it hangs up.
func (v *virtual) send(a *attached, packet []byte) bool {
	v.t.Helper()
	m, err := wire.Decode(packet)
	if err == nil {
		done := make(chan error, 1)
		go func() { done <- a.connection.handle(context.Background(), m, -1) }()
		for handled := false; !handled; {
			select {
			case <-v.loop.jobs.some:
				if j := v.loop.takeJob(); j != nil {
					v.turn(func(l *loop) { j.f(l) }) // has one turn: none of a connection's has more
					close(j.done)
				}
			case err = <-done:
				handled = true
			}
		}
	}
	for packet := make([]byte, 512); ; {
		n, failed := unix.Read(a.socket, packet)
		if failed != nil || n <= 0 {
			break
		}
		a.packets = append(a.packets, slices.Clone(packet[:n]))
	}
	a.packets = a.packets[max(len(a.packets)-1, 0):]
	if err != nil {
		v.leave(a)
	}
	return err == nil
}

// leave closes a process's connection.
func (v *virtual) leave(a *attached) {
	v.turn(func(l *loop) {
		if m := l.members[a.id]; m != nil && m.conn == a.connection {
			m.conn = nil
			l.core.Detach(l.now, a.id)
			l.clientEnded(m)
		}
	})
	a.close()
	v.at(v.now+time.Millisecond, func() {
		v.turn(func(l *loop) { l.core.ReleaseEnded(l.now, testUUID, v.account(l.now)) })
	})
}

// account is what the driver says: it shows the attacker's processes, or none.
func (v *virtual) account(now time.Time) core.Account {
	a := core.Account{At: now}
	for _, pid := range v.shown {
		a.Processes = append(a.Processes, core.Holding{PID: pid, Bytes: 64 * mib, Known: true})
	}
	return a
}

func (a *attached) put(offset int, value uint64) {
	_, _ = unix.Pwrite(a.file, binary.LittleEndian.AppendUint64(nil, value), int64(offset))
}

func (a *attached) say(word int, d time.Duration) { a.put(wire.ClientOffsetCard+word, uint64(d)) }

// virtualProgram always has work, of kernels of 1 ms that the GPU runs one after the
// other, and launches it as the front does.
type virtualProgram struct {
	*attached
	v         *virtual
	limits    *wire.LimitsPage
	busy      time.Duration
	submitted int           // kernels
	ends      time.Duration // the one that runs
	word      uint32        // of its lease, as it was seen last
	asked     uint32
	waits     time.Duration // since when; 0: it does not
	begin     time.Duration // of the last lease that it was late for
	late      time.Duration
	ran       []time.Duration // ends
}

const virtualKernel = time.Millisecond

// look wakes the program when its lease has changed.
func (p *virtualProgram) look() {
	if word := p.limits.LeaseWord(0); word != p.word {
		p.word = word
		p.v.at(p.v.now+p.v.lateness(), p.launch)
	}
}

func (p *virtualProgram) launch() {
	v := p.v
	lease := p.limits.Lease(0)
	for p.submitted == 0 || time.Duration(p.submitted+1)*virtualKernel <= time.Duration(lease.BacklogNs) {
		remaining := time.Duration(0)
		if p.submitted > 0 {
			remaining = p.ends - v.now + time.Duration(p.submitted-1)*virtualKernel
		}
		if lease.Turn != 0 && lease.Turn != p.connection.turn || v.now+remaining >= time.Duration(lease.EndNs) {
			if p.waits == 0 {
				p.waits = v.now
			}
			if p.asked != p.word {
				p.asked = p.word
				v.at(v.now+v.lateness(), func() { v.message(p.attached, wire.Message{Type: wire.LeaseWant}) })
			}
			break
		}
		if begin := time.Duration(lease.BeginNs); p.waits > 0 && begin != p.begin {
			p.begin = begin
			p.late += v.now - max(begin, p.waits)
		}
		p.waits = 0
		if p.submitted++; p.submitted == 1 {
			p.execute()
		}
	}
	p.tell()
}

func (p *virtualProgram) execute() {
	v := p.v
	p.ends = v.now + virtualKernel
	v.at(p.ends, func() {
		p.busy += virtualKernel
		p.ran = append(p.ran, v.now)
		if p.submitted--; p.submitted > 0 {
			p.execute()
		}
		p.say(wire.ClientCardOffsetLastEndNs, v.now)
		p.launch()
		ran := len(p.ran)
		v.at(v.now+200*time.Microsecond, func() {
			if p.submitted == 0 && len(p.ran) == ran {
				v.message(p.attached, wire.Message{Type: wire.LeaseBack})
			}
		})
	})
}

func (p *virtualProgram) tell() {
	drain := time.Duration(0)
	if p.submitted > 0 {
		drain = p.ends + time.Duration(p.submitted-1)*virtualKernel
	}
	p.page.Work(0, uint64(p.busy), uint64(p.submitted)*uint64(virtualKernel), uint64(drain))
	p.say(wire.ClientCardOffsetSpanNs, p.busy)
	p.say(wire.ClientCardOffsetLateNs, p.late)
	p.say(wire.ClientCardOffsetKernelNs, virtualKernel)
}

func (v *virtual) message(a *attached, m wire.Message) bool {
	v.t.Helper()
	m.Magic, m.Version, m.Sequence = wire.MessageMagic, wire.Version, 2
	return v.send(a, encode(m))
}

// leastOf is the least part of the GPU, in percent, that it had in a window.
func (p *virtualProgram) leastOf(from, to, window time.Duration) float64 {
	const step = 10 * time.Millisecond
	least := 100.0
	for at := from; at+window <= to; at += step {
		first, _ := slices.BinarySearch(p.ran, at+1)
		last, _ := slices.BinarySearch(p.ran, at+window+1)
		least = min(least, 100*float64(last-first)*virtualKernel.Seconds()/window.Seconds())
	}
	return least
}

// attacker does on its pages and its connections what bytes choose, again and again.
type virtualAttacker struct {
	v     *virtual
	share string
	bytes []byte
	at    int
	of    []*attached
	last  time.Duration
	said  map[int]uint64 // by word
	pid   int            // the first of three that attach

	starting time.Duration // what the processes need that have just been started
}

func (a *virtualAttacker) next() byte {
	b := a.bytes[a.at%len(a.bytes)]
	a.at++
	return b
}

// step is one thing that it does:
//
//	bits 0 to 3 of the first byte: a word of the GPU on its page, or: 14: eight bytes anywhere on it, 15: a message
//	bits 4 and 5: then asks for the GPU; gives it back; hangs up and comes again; comes a second time
//	bits 6 and 7: how long until the next one, at least 4 ms where a process starts
func (a *virtualAttacker) step() {
	v, how := a.v, a.next()
	if len(a.of) == 0 && !a.come(0) {
		a.fork()
		v.at(v.now+time.Millisecond, a.step)
		return
	}
	me := a.of[len(a.of)-1]
	passed := v.now - a.last
	a.last = v.now
	switch word := int(how & 15); word {
	case 15:
		packet := encode(wire.Message{Magic: wire.MessageMagic, Version: wire.Version, Sequence: 3, Type: uint16(a.next()) % 24,
			Slot: uint32(a.next()) / 250, Kind: uint32(a.next()) % 32, Amount: uint64(1) << (a.next() % 64)})
		if b := a.next(); b&7 == 0 {
			packet[int(a.next())%len(packet)] = b
		}
		if !v.send(me, packet) && a.come(max(len(a.of)-1, 0)) {
			me = a.of[len(a.of)-1]
		}
	case 14:
		me.put(8*(int(a.next())%(wire.ClientSize/8)), a.value(0, passed))
	default:
		a.said[word] = a.value(a.said[word], passed)
		me.put(wire.ClientOffsetCard+8*word, a.said[word])
	}
	switch how >> 4 & 3 {
	case 0, 1:
		if me.socket >= 0 && !v.message(me, wire.Message{Type: []uint16{wire.LeaseWant, wire.LeaseBack}[how>>4&1]}) {
			a.come(max(len(a.of)-1, 0))
		}
	case 2:
		if me.socket >= 0 {
			v.leave(me)
		}
		a.come(max(len(a.of)-1, 0))
	case 3:
		if len(a.of) < 3 {
			a.come(len(a.of))
		}
	}
	for _, one := range a.of[:max(len(a.of)-1, 0)] {
		if one.socket >= 0 {
			v.message(one, wire.Message{Type: wire.LeaseWant})
		}
	}
	pause := [4]time.Duration{time.Millisecond, time.Millisecond, 3 * time.Millisecond, 8 * time.Millisecond}[how>>6]
	v.at(v.now+max(pause, a.starting), a.step)
	a.starting = 0
}

// value is what a byte makes of what was said before.
func (a *virtualAttacker) value(before uint64, passed time.Duration) uint64 {
	b := a.next()
	more, now := uint64(b>>3), uint64(a.v.now)
	switch b & 7 {
	case 0:
		return 0
	case 1:
		return 1 << more
	case 2:
		return now - more*uint64(time.Millisecond)
	case 3:
		return now + more*uint64(time.Millisecond)
	case 4:
		return before + more*uint64(passed)/16
	case 5:
		return ^uint64(0) >> more
	case 6:
		return more * uint64(time.Millisecond)
	}
	return now + uint64(time.Hour)
}

// come attaches a process in place of one that has hung up; false: it is refused.
func (a *virtualAttacker) come(i int) bool {
	a.starting = 4 * time.Millisecond
	one := a.v.attach(a.share, a.pid+i, attackerUser)
	a.of = a.of[:i]
	if one == nil {
		return false
	}
	a.of = append(a.of, one)
	return true
}

// fork goes on with processes that were never seen.
func (a *virtualAttacker) fork() {
	a.pid += 3
	if len(a.v.shown) > 0 {
		a.v.shown = append(a.v.shown, a.pid, a.pid+1, a.pid+2)
	}
}

const attackerUser = 12001

// besideAttacker is the least part of the GPU that a share of a fixed 60 %, whose program always has
// work, gets in any window beside another share's processes; and the least bound is checked of its memory.
func besideAttacker(t *testing.T, in []byte, window time.Duration) float64 {
	const warm = time.Second
	v := newVirtual(t, uint64(in[0]))
	v.share(core.Spec{Name: witnessName, MemoryBytes: witnessBytes, Policy: share.Fixed, CoresPercent: 60}, 12003)
	other := core.Spec{Name: "attacker", MemoryBytes: gib, Policy: share.Fixed, CoresPercent: 40}
	if in[0]&1 == 1 {
		other.Policy, other.CoresPercent = share.Equal, 0
	}
	v.share(other, attackerUser)
	one := v.attach(witnessName, 999, 12003)
	if !one.page.Take(0, witnessKeeps) {
		t.Fatal("the witness has no memory")
	}
	limits := v.loop.sockets[witnessName].limits
	v.honest = &virtualProgram{attached: one, v: v, limits: limits, word: limits.LeaseWord(0), asked: ^uint32(0)}
	a := &virtualAttacker{v: v, share: "attacker", bytes: in[1:], said: map[int]uint64{}, pid: 1000}
	if in[0]&2 == 2 {
		v.shown = []int{1000, 1001, 1002}
	}
	if !a.come(0) {
		t.Fatal("the attacker's process is refused")
	}
	begin := v.now
	v.at(v.now, v.honest.launch)
	v.at(v.now+time.Millisecond, a.step)
	v.run(begin + warm + window + 2*time.Second)

	v.turn(func(l *loop) {
		if s, err := l.core.Share(witnessName); err != nil || s.UsedBytes != witnessKeeps || s.State != core.StateActive {
			t.Errorf("the witness should use %d bytes: %+v, %v", witnessKeeps, s, err)
		}
		for _, k := range l.core.Cards() {
			if k.BookedBytes > k.UsableBytes {
				t.Errorf("%d of %d bytes promised", k.BookedBytes, k.UsableBytes)
			}
		}
	})
	if !one.page.Take(0, witnessBytes-witnessKeeps) {
		t.Error("the witness does not get the rest of its share")
	}
	v.message(one, wire.Message{Type: wire.Charge, Kind: wire.ChargeFinal, Amount: 512})
	if m, err := wire.Decode(one.packets[len(one.packets)-1]); err != nil || m.Type != wire.Denied {
		t.Errorf("more than the witness's share: %+v, %v", m, err)
	}
	return v.honest.leastOf(begin+warm, v.now, window)
}

// FuzzTimeOfWitness: whatever the processes of another user's share write on their pages and send,
// and however they come and go, a share of 60 % gets no more than 3 points less in 5 seconds,
// and its memory to the byte.
func FuzzTimeOfWitness(f *testing.F) {
	const window, least = 5 * time.Second, 57
	for _, in := range [][]byte{
		{0, 6, 1},                               // in flight for ever, by 1 ns
		{0, 0x46, 6<<3 | 6, 0x47, 7},            // in flight, much of it
		{0, 5, 16<<3 | 4, 11, 16<<3 | 4, 13, 6}, // says that it uses all that passes
		{0, 0x2a, 2, 0x20, 0},                   // hangs up again and again
		{2, 0x2a, 2, 0x20, 0},                   // the same, and the driver shows it
		{80, 207, 193, 214},                     // takes each lease and hangs up 8 ms later: it got 55.2 %
		{1, 5, 5, 0x3e, 9, 5},                   // all that a word holds, of an equal share
		{1, 15, 14, 0, 0, 0, 1, 6, 20<<3 | 6, 7, 20<<3 | 3},
	} {
		f.Add(in)
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < 2 || len(in) > 64 {
			return
		}
		if got := besideAttacker(t, in, window); got < least {
			t.Errorf("the witness got %.1f %% of the GPU in some %v, promised 60 %%", got, window)
		}
	})
}
