// SPDX-License-Identifier: Apache-2.0

// Package pipe passes the bytes of a connection on to another one, both ways, as relay and
// server of remote calls do. It looks into none of them.
package pipe

import (
	"io"
	"net"
	"sync/atomic"
)

// End is one end of a pipe: a connection that can say that nothing more comes.
type End interface {
	net.Conn
	CloseWrite() error
}

// bufferBytes of each direction: a write per batch of calls, and no batch waits for more.
const bufferBytes = 256 << 10

// Pipe is two connections.
type Pipe struct {
	near, far End
	// Sent and Received are how many bytes went from near to far, and back.
	Sent, Received atomic.Uint64
	// NearEnded is closed when nothing more comes from near, and all that came is passed
	// on; FarEnded the same of far.
	NearEnded, FarEnded chan struct{}
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

// Close breaks both connections.
func (p *Pipe) Close() {
	_ = p.near.Close()
	_ = p.far.Close()
}

// pass copies until the end of from, or until one of them breaks.
func (p *Pipe) pass(to, from End, passed *atomic.Uint64) {
	_, err := io.CopyBuffer(counted{to, passed}, plain{from}, make([]byte, bufferBytes))
	if err == nil {
		err = to.CloseWrite()
	}
	if err != nil {
		p.Close()
	}
}

// plain hides all of a connection but Read: what else it has would do without our buffer.
type plain struct{ from io.Reader }

func (p plain) Read(buffer []byte) (int, error) { return p.from.Read(buffer) }

// counted counts what is written.
type counted struct {
	to     io.Writer
	passed *atomic.Uint64
}

func (c counted) Write(bytes []byte) (int, error) {
	n, err := c.to.Write(bytes)
	c.passed.Add(uint64(n))
	return n, err
}
