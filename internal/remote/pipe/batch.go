// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"errors"
	"io"
	"net"
	"sync"
)

// recordBytes is what a record of TLS holds at most.
const recordBytes = 16 << 10

// Batch is a connection below TLS. TLS reads and writes a record at a time; of those that are
// there it reads many at once, and those of one write go out together.
type Batch struct {
	net.Conn
	// Of who reads.
	room room
	in   []byte // of it, what was read and not taken yet
	came int    // how much the last read brought
	here bool   // no more is to be waited for

	mutex sync.Mutex         // guards what follows: TLS answers some of what it reads
	out   *[bufferBytes]byte // what waits to go out; nil: nothing waits
	used  int                // of out
}

// NewBatch is a connection that reads and writes at once what TLS does in parts.
func NewBatch(conn net.Conn) *Batch { return &Batch{Conn: conn} }

// batchOf is what lies below TLS; nil: there is none.
func batchOf(conn any) *Batch {
	if secure, is := conn.(interface{ NetConn() net.Conn }); is {
		b, _ := secure.NetConn().(*Batch)
		return b
	}
	return nil
}

// errNotHere says that more would have to be waited for. To TLS it is one after which it goes on.
type errNotHere struct{ error }

func (errNotHere) Timeout() bool   { return true }
func (errNotHere) Temporary() bool { return true }

var notHere net.Error = errNotHere{errors.New("no more has come")}

func (b *Batch) Read(to []byte) (int, error) {
	if len(b.in) == 0 {
		if b.here {
			return 0, notHere
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(to, b.in)
	b.in = b.in[n:]
	return n, nil
}

// fill waits until something has come, of which nothing is left.
func (b *Batch) fill() error {
	b.room.had(b.came)
	buffer := b.room.buffer()
	n, err := b.Conn.Read(buffer)
	b.in, b.came = buffer[:n], n
	if n > 0 {
		return nil // an error comes again
	}
	if err == nil {
		err = io.ErrNoProgress
	}
	return err
}

// readHere reads through TLS, without waiting, until a buffer is nearly full.
func (b *Batch) readHere(secure io.Reader, buffer []byte) (n int, err error) {
	b.here = true
	defer func() { b.here = false }()
	for len(buffer)-n >= recordBytes && err == nil {
		var part int
		part, err = secure.Read(buffer[n:])
		n += part
	}
	if errors.Is(err, notHere) {
		err = nil
	}
	return n, err
}

func (b *Batch) Write(from []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if b.out == nil {
		return b.Conn.Write(from)
	}
	if len(from) > len(b.out)-b.used {
		if err := b.flushLocked(); err != nil {
			return 0, err
		}
	}
	b.used += copy(b.out[b.used:], from) // a record fits
	return len(from), nil
}

func (b *Batch) flushLocked() error {
	_, err := b.Conn.Write(b.out[:b.used])
	b.used = 0
	return err
}

// writeAtOnce writes through TLS.
func (b *Batch) writeAtOnce(secure io.Writer, buffer []byte) error {
	b.mutex.Lock()
	b.out, _ = buffers.Get().(*[bufferBytes]byte)
	b.mutex.Unlock()
	_, err := secure.Write(buffer)
	b.mutex.Lock()
	defer b.mutex.Unlock()
	err = errors.Join(err, b.flushLocked())
	buffers.Put(b.out)
	b.out = nil
	return err
}
