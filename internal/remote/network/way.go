// SPDX-License-Identifier: Apache-2.0

package network

import (
	"errors"
	"io"
	"sync"
	"time"
)

// errCut says that a connection is to be cut.
var errCut = errors.New("the network is cut")

// errClosed says that the link is no more.
var errClosed = errors.New("the network is closed")

// way is one direction of a link.
type way struct {
	delay time.Duration
	speed int // bytes per second; 0: no bound
	over  chan struct{}

	mutex  sync.Mutex // guards what follows
	passed int64
	left   int64         // until all is cut; negative: no cut
	cut    chan struct{} // closed when it is
	free   time.Time     // when the last byte so far has left
	silent bool
}

func newWay(c Conditions) *way {
	return &way{delay: c.RTT / 2, speed: c.BytesPerSecond, over: make(chan struct{}), left: -1}
}

func (w *way) count() int64 {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.passed
}

func (w *way) cutAfter(bytes int64) <-chan struct{} {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.left, w.cut = bytes, make(chan struct{})
	return w.cut
}

func (w *way) silence() {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	w.silent = true
}

func (w *way) close() { close(w.over) }

// parcel is what was read at once, and when it is to arrive.
type parcel struct {
	bytes []byte
	due   time.Time
}

// Bounds of what is on the way on a connection.
const (
	parcelBytes = 64 << 10
	maxParcels  = 1024
)

// carry carries a connection's bytes until from has ended (true), or until one of them breaks
// or is cut: then it calls broken, which makes reads and writes fail, and may be called twice.
func (w *way) carry(to io.Writer, from io.Reader, broken func(error)) bool {
	underway, delivered := make(chan parcel, maxParcels), make(chan struct{})
	var failed error
	go func() {
		defer close(delivered)
		if failed = w.deliver(to, underway); failed != nil {
			broken(failed)
		}
	}()
	err := w.collect(underway, from, delivered)
	close(underway)
	if err != nil {
		broken(err)
	}
	<-delivered
	return err == nil && failed == nil
}

// collect reads until from ends; delivered tells that nobody takes more.
func (w *way) collect(underway chan<- parcel, from io.Reader, delivered <-chan struct{}) error {
	buffer := make([]byte, parcelBytes)
	for {
		n, err := from.Read(buffer)
		if n > 0 {
			select {
			case underway <- parcel{append([]byte(nil), buffer[:n]...), w.send(n)}:
			case <-delivered:
				return nil
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// send says when the last of so many bytes that leave now arrives.
func (w *way) send(bytes int) time.Time {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if now := time.Now(); w.free.Before(now) {
		w.free = now
	}
	if w.speed > 0 {
		w.free = w.free.Add(time.Duration(float64(bytes) / float64(w.speed) * float64(time.Second)))
	}
	return w.free.Add(w.delay)
}

// deliver writes each parcel when it is due.
func (w *way) deliver(to io.Writer, underway <-chan parcel) error {
	for p := range underway {
		if wait := time.Until(p.due); wait > 0 {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-w.over:
				timer.Stop()
				return errClosed
			}
		}
		arrives, cut := w.arrive(len(p.bytes))
		if arrives > 0 {
			if _, err := to.Write(p.bytes[:arrives]); err != nil {
				return err
			}
		}
		if cut {
			return errCut
		}
	}
	return nil
}

// arrive says how many of so many bytes arrive, and whether all is cut behind them.
func (w *way) arrive(bytes int) (arrives int, cut bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if w.silent {
		return 0, false
	}
	arrives = bytes
	if w.left >= 0 {
		arrives = int(min(int64(bytes), w.left))
		w.left -= int64(arrives)
		if cut = w.left == 0; cut {
			w.left = -1
			close(w.cut)
		}
	}
	w.passed += int64(arrives)
	return arrives, cut
}
