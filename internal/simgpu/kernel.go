// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// client is a compute process.
type client struct {
	id      silicon.ProcessID
	pid     int
	pidfd   *os.File
	page    *os.File
	token   uint64
	arenas  []*os.File // by card; nil: none yet
	hits    []hits     // by card
	reports int        // of its own faults
	exports int        // open descriptors that name its objects
	session *session   // nil: detached
}

// export is a descriptor that names an object: the write end of a pipe, whose
// read end tells when all copies are closed.
type export struct {
	object silicon.ObjectID
	client *client // who made it
	reader *os.File
}

// kernel owns all state; run is its goroutine.
type kernel struct {
	config   Config
	driver   Driver
	log      *slog.Logger
	machine  *silicon.Machine
	contents *contents
	clock    *clock
	division *division
	seats    []silicon.Seat

	condition *condition.Cards
	notice    *notice

	clients  map[silicon.ProcessID]*client
	detached map[silicon.ProcessID]*client
	objects  map[silicon.ObjectID]*os.File
	exports  map[uint64]*export // by inode of the pipe
	moments  map[momentOf]moment
	sessions int

	openings chan *session
	requests chan request
	endings  chan ending
	closed   chan uint64 // inodes of exports that nobody has open any more
	watchers sync.WaitGroup
}

func newKernel(config Config, driver Driver, cards []silicon.Card) (*kernel, error) {
	contents := newContents(config.HostBudgetBytes)
	notice, err := newNotice(contents)
	if err != nil {
		return nil, err
	}
	machine := silicon.New(cards, config.Limits)
	seats, err := silicon.Connect(cards, config.Topology)
	if err != nil {
		notice.close()
		return nil, fmt.Errorf("topology: %w", err)
	}
	division, err := newDivision(machine, cards, config.MIG)
	if err != nil {
		notice.close()
		return nil, err
	}
	return &kernel{
		config:    config,
		driver:    driver,
		log:       config.Log,
		machine:   machine,
		division:  division,
		seats:     seats,
		contents:  contents,
		clock:     newClock(config, machine.Slots()),
		condition: condition.New(cards, nowNS(), config.Limits.History),
		notice:    notice,

		clients:  map[silicon.ProcessID]*client{},
		detached: map[silicon.ProcessID]*client{},
		objects:  map[silicon.ObjectID]*os.File{},
		exports:  map[uint64]*export{},
		moments:  map[momentOf]moment{},
		openings: make(chan *session),
		requests: make(chan request),
		endings:  make(chan ending),
		closed:   make(chan uint64),
	}, nil
}

// run serves until ctx is done and all sessions have ended, or until it has
// been idle for long enough.
func (k *kernel) run(ctx context.Context) {
	done := ctx.Done()
	look := newAlarm()
	idle := newAlarm()
	defer look.set(0)
	defer idle.set(0)
	k.await(look, idle)
	for done != nil || k.sessions > 0 {
		select {
		case <-done:
			done = nil
		case s := <-k.openings:
			k.sessions++
			if done == nil {
				_ = s.conn.Close()
			}
		case r := <-k.requests:
			r.reply <- k.handle(r)
			continue // nothing to wait for has changed
		case e := <-k.endings:
			k.ended(e)
		case inode := <-k.closed:
			k.exportClosed(inode)
		case <-look.timer.C:
			look.armed = false
			k.lookAfterDetached()
		case <-idle.timer.C:
			k.log.Info("leaving: no one is connected", "for", k.config.IdleExit)
			return
		}
		k.await(look, idle)
	}
}

// await sets the alarms to what is due next.
func (k *kernel) await(look, idle *alarm) {
	if len(k.detached) > 0 {
		look.set(detachedInterval)
	} else {
		look.set(0)
	}
	if k.sessions == 0 && len(k.clients) == 0 {
		idle.set(k.config.IdleExit)
	} else {
		idle.set(0)
	}
}

// alarm is a timer that is set once, however often it is asked for.
type alarm struct {
	timer *time.Timer
	armed bool
}

func newAlarm() *alarm {
	timer := time.NewTimer(time.Hour)
	timer.Stop()
	return &alarm{timer: timer}
}

// set arms it unless it is armed; 0 disarms it.
func (a *alarm) set(after time.Duration) {
	switch {
	case after == 0:
		a.timer.Stop()
	case !a.armed:
		a.timer.Reset(after)
	}
	a.armed = after != 0
}

// close lets go of everything. run has returned.
func (k *kernel) close() {
	for _, c := range k.clients {
		_ = c.pidfd.Close()
	}
	for _, e := range k.exports {
		_ = e.reader.Close()
	}
	watched := make(chan struct{})
	go func() {
		k.watchers.Wait()
		close(watched)
	}()
	for {
		select {
		case <-k.closed:
			continue
		case <-watched:
		}
		break
	}
	k.clock.close()
	k.notice.close()
	clear(k.clients)
	clear(k.exports)
	k.contents.close()
}

func nowNS() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0
	}
	return ts.Nano()
}

// attach makes a compute process of a session, or gives a returning one its
// state back.
func (k *kernel) attach(s *session, id silicon.ProcessID, token uint64) error {
	if id != 0 {
		c, ok := k.clients[id]
		if !ok || c.token != token || c.pid != s.pid {
			return fmt.Errorf("process %d comes back as %d: %w", s.pid, id, silicon.ErrNotFound)
		}
		if c.session != nil {
			c.session.client = nil // its end has not been noticed yet
		}
		delete(k.detached, id)
		s.client, c.session = c, s
		return nil
	}
	page, err := k.contents.create("divvy-page", simwire.PageBytes)
	if err != nil {
		return fmt.Errorf("attach process %d: %w", s.pid, err)
	}
	id, err = k.machine.Attach(s.pid, nowNS())
	if err != nil {
		k.contents.drop(page)
		return err
	}
	c := &client{id: id, pid: s.pid, pidfd: s.pidfd, page: page, token: randomWord(),
		arenas: make([]*os.File, k.machine.Slots()), hits: make([]hits, k.machine.Cards()), session: s}
	s.client, s.pidfd = c, nil
	k.clients[id] = c
	return nil
}

func randomWord() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says its package
	return binary.LittleEndian.Uint64(b[:])
}

// ended is the end of a connection. A process that still maps its page lives
// on, and keeps what it holds.
func (k *kernel) ended(e ending) {
	k.sessions--
	s := e.session
	if s.pidfd != nil {
		_ = s.pidfd.Close()
	}
	if e.cause != nil {
		event := silicon.Event{Kind: silicon.EventGarbage, PID: s.pid, Card: -1, Text: e.cause.Error()}
		if s.client != nil {
			event.Process = s.client.id
		}
		k.machine.Note(nowNS(), event)
		k.log.Warn("connection closed", "pid", s.pid, "error", e.cause)
	}
	c := s.client
	if c == nil {
		return
	}
	c.session = nil
	if unmapped(c.page) {
		k.end(c)
		return
	}
	k.detached[c.id] = c
	k.machine.Detached(c.id, nowNS())
}

// unmapped says whether no process maps the page writable any more. The
// system refuses to bar writing from a file that is mapped so, and it takes
// mappings down before descriptors when a process dies or executes another.
func unmapped(page *os.File) bool {
	_, err := unix.FcntlInt(page.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	return !errors.Is(err, unix.EBUSY)
}

func (k *kernel) lookAfterDetached() {
	for _, c := range k.detached {
		if unmapped(c.page) {
			k.end(c)
		}
	}
}

// end frees everything a process holds.
func (k *kernel) end(c *client) {
	now := k.settle()
	ring, awaited := k.clock.end(c.id, c.pid, now)
	if ring != nil {
		k.contents.drop(ring)
	}
	if awaited {
		k.notice.changed() // who sleeps for it asks again
	}
	gone := k.machine.End(c.id, now)
	delete(k.clients, c.id)
	delete(k.detached, c.id)
	if c.session != nil {
		c.session.client = nil
	}
	k.contents.drop(c.page)
	for _, arena := range c.arenas {
		if arena != nil {
			k.contents.drop(arena)
		}
	}
	_ = c.pidfd.Close()
	for _, id := range gone {
		k.dropObject(id)
	}
	k.forgetMoments(c.id)
}

func (k *kernel) dropObject(id silicon.ObjectID) {
	if file, ok := k.objects[id]; ok {
		k.contents.drop(file)
		delete(k.objects, id)
	}
}

// exportObject makes a descriptor that names an object and keeps it alive.
func (k *kernel) exportObject(c *client, id silicon.ObjectID) (*os.File, error) {
	if c.exports >= k.config.Limits.Objects {
		return nil, fmt.Errorf("process %d has %d exported descriptors: %w", c.id, c.exports, silicon.ErrLimit)
	}
	reader, writer, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("export object %d: %w", id, err)
	}
	inode, err := inodeOf(writer)
	if err == nil {
		err = k.machine.ExportObject(c.id, id)
	}
	if err != nil {
		return nil, errors.Join(err, reader.Close(), writer.Close())
	}
	c.exports++
	k.exports[inode] = &export{object: id, client: c, reader: reader}
	k.watchers.Go(func() {
		// Whoever writes into it writes for nothing; the end is what counts.
		_, _ = io.Copy(io.Discard, reader)
		k.closed <- inode
	})
	return writer, nil
}

func (k *kernel) exportClosed(inode uint64) {
	e, ok := k.exports[inode]
	if !ok {
		return
	}
	delete(k.exports, inode)
	e.client.exports--
	_ = e.reader.Close()
	if k.machine.ExportClosed(e.object) {
		k.dropObject(e.object)
	}
}

func inodeOf(file *os.File) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &st); err != nil {
		return 0, fmt.Errorf("look at %s: %w", file.Name(), err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFIFO {
		return 0, fmt.Errorf("%s is no exported object: %w", file.Name(), silicon.ErrNotFound)
	}
	return st.Ino, nil
}

// duplicate makes a descriptor that the session can send and close.
func duplicate(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("duplicate %s: %w", file.Name(), err)
	}
	return os.NewFile(uintptr(fd), file.Name()), nil
}
