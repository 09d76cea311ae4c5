// SPDX-License-Identifier: Apache-2.0

// Package pipe passes the bytes of a connection on to another one, both ways, as relay and
// server of remote calls do. It looks into none of them.
package pipe

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// End is one end of a pipe: a connection that can say that nothing more comes.
type End interface {
	net.Conn
	CloseWrite() error
}

// bufferBytes of a direction in use: a write per batch of calls, and no batch waits for more.
const bufferBytes = 256 << 10

// Pipe is two connections.
type Pipe struct {
	near, far End
	// Sent and Received are how many bytes went from near to far, and back.
	Sent, Received atomic.Uint64
	// NearEnded is closed when nothing more comes from near, and all that came is passed
	// on; FarEnded the same of far.
	NearEnded, FarEnded chan struct{}

	died atomic.Bool
}

// New makes a pipe, which Run starts.
func New(near, far End) *Pipe {
	return &Pipe{near: near, far: far, NearEnded: make(chan struct{}), FarEnded: make(chan struct{})}
}

// Run passes bytes on until both directions have ended, and closes both ends. An end of one
// direction is passed on at once; when a connection breaks, so does the other.
func (p *Pipe) Run() {
	go func() {
		defer close(p.FarEnded)
		p.pass(p.near, p.far, &p.Received)
	}()
	p.pass(p.far, p.near, &p.Sent)
	close(p.NearEnded)
	<-p.FarEnded
	p.Close()
}

// Died says whether an end was found dead.
func (p *Pipe) Died() bool { return p.died.Load() }

// Close breaks both connections.
func (p *Pipe) Close() {
	_ = p.near.Close()
	_ = p.far.Close()
}

// pass copies until the end of from, or until one of them breaks.
func (p *Pipe) pass(to, from End, passed *atomic.Uint64) {
	err := copyAll(to, from, passed)
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		if Dead(err) {
			p.died.Store(true)
		}
		p.Close()
	}
}

// copyAll copies until the end of from.
func copyAll(to io.Writer, from io.Reader, passed *atomic.Uint64) error {
	var in room
	defer in.leave()
	reads, writes := batchOf(from), batchOf(to)
	for {
		buffer := in.buffer()
		n, err := from.Read(buffer)
		if in.large != nil && reads != nil && err == nil {
			var more int
			more, err = reads.readHere(from, buffer[n:])
			n += more
		}
		if n > 0 {
			if failed := write(to, writes, buffer[:n]); failed != nil {
				return failed
			}
			passed.Add(uint64(n))
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		in.had(n)
	}
}

// write writes it, at once where it is more than a record of TLS.
func write(to io.Writer, batch *Batch, buffer []byte) error {
	if batch != nil && len(buffer) > recordBytes {
		return batch.writeAtOnce(to, buffer)
	}
	_, err := to.Write(buffer)
	return err
}

// room is where one reads. Who is idle keeps a small buffer; a large one is borrowed for as long
// as there is more than that.
type room struct {
	small []byte
	large *[bufferBytes]byte
}

// idleBytes is the buffer of who reads little.
const idleBytes = 4 << 10

// buffers are the large ones that nobody uses now.
var buffers = sync.Pool{New: func() any { return new([bufferBytes]byte) }}

func (r *room) buffer() []byte {
	if r.large != nil {
		return r.large[:]
	}
	if r.small == nil {
		r.small = make([]byte, idleBytes)
	}
	return r.small
}

// had chooses the next buffer by how much came into the last, of which nothing is needed any more.
func (r *room) had(n int) {
	switch {
	case r.large == nil && n == idleBytes:
		r.large, _ = buffers.Get().(*[bufferBytes]byte)
	case r.large != nil && n < idleBytes:
		r.leave()
	}
}

// leave gives the large one back.
func (r *room) leave() {
	if r.large != nil {
		buffers.Put(r.large)
		r.large = nil
	}
}
