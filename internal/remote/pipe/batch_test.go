// SPDX-License-Identifier: Apache-2.0

package pipe

import (
	"bytes"
	"crypto/tls"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// counting counts how often it is read and written.
type counting struct {
	net.Conn
	reads, writes atomic.Int64
}

func (c *counting) Read(to []byte) (int, error) {
	c.reads.Add(1)
	return c.Conn.Read(to)
}

func (c *counting) Write(from []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(from)
}

// secured are both ends of a connection with TLS, over what below makes of its ends.
func secured(t *testing.T, below func(net.Conn) net.Conn) (client, server *tls.Conn) {
	t.Helper()
	authority := httptest.NewTLSServer(nil)
	t.Cleanup(authority.Close)
	trusted := authority.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
	trusted.ServerName, trusted.MinVersion = "127.0.0.1", tls.VersionTLS13
	a, b := pair(t)
	client, server = tls.Client(below(a), trusted), tls.Server(below(b), &tls.Config{Certificates: authority.TLS.Certificates, MinVersion: tls.VersionTLS13})
	shaken := make(chan error)
	go func() { shaken <- server.Handshake() }()
	if err := client.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	return client, server
}

// far is a program's end and a worker's, with two pipes and TLS between them.
func far(t *testing.T, below func(net.Conn) net.Conn) (program, worker *net.UnixConn) {
	t.Helper()
	client, server := secured(t, below)
	program, near := pair(t)
	last, worker := pair(t)
	done := make(chan struct{})
	for _, p := range []*Pipe{New(near, client), New(server, last)} {
		go func() {
			p.Run()
			done <- struct{}{}
		}()
	}
	t.Cleanup(func() {
		_ = program.Close()
		_ = worker.Close()
		<-done
		<-done
	})
	return program, worker
}

func noise(random *rand.Rand, bytes int) []byte {
	made := make([]byte, bytes)
	for i := range made {
		made[i] = byte(random.Uint32())
	}
	return made
}

// Whatever length a message has, all of it arrives without another one behind it.
func TestNothingIsHeldBack(t *testing.T) {
	program, worker := far(t, func(c net.Conn) net.Conn { return NewBatch(c) })
	go func() { _, _ = io.Copy(worker, worker) }()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	lengths := []int{1, idleBytes - 1, idleBytes, idleBytes + 1, recordBytes, recordBytes + 1, bufferBytes, bufferBytes + 1, 3 * bufferBytes}
	for range 100 {
		lengths = append(lengths, 1+random.IntN(1<<(1+random.IntN(20))))
	}
	for _, length := range lengths {
		sent := noise(random, length)
		if err := program.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = program.Write(sent) }()
		got := make([]byte, length)
		if n, err := io.ReadFull(program, got); err != nil || !bytes.Equal(got, sent) {
			t.Fatalf("seed %d: %d bytes: %d came back, %v", seed, length, n, err)
		}
	}
}

// What is there is passed on with few calls; without a Batch it takes one for each record.
func TestRecordsGoTogether(t *testing.T) {
	const records, rounds = 8, 20
	calls := func(below func(*counting) net.Conn) (writes, reads int64) {
		var ends [2]*counting
		made := 0
		program, worker := far(t, func(c net.Conn) net.Conn {
			ends[made] = &counting{Conn: c}
			made++
			return below(ends[made-1])
		})
		message := noise(rand.New(rand.NewPCG(1, 1)), records*recordBytes)
		for i := range rounds + 4 { // at first TLS writes short records
			if i == 4 {
				writes, reads = ends[0].writes.Load(), ends[1].reads.Load()
			}
			go func() { _, _ = program.Write(message) }()
			if _, err := io.ReadFull(worker, make([]byte, len(message))); err != nil {
				t.Fatal(err)
			}
		}
		return (ends[0].writes.Load() - writes) / rounds, (ends[1].reads.Load() - reads) / rounds
	}
	writes, reads := calls(func(c *counting) net.Conn { return NewBatch(c) })
	each, _ := calls(func(c *counting) net.Conn { return c })
	t.Logf("%d records: %d writes and %d reads, without a Batch %d writes", records, writes, reads, each)
	if writes >= each || each < records {
		t.Errorf("%d records took %d writes, without a Batch %d", records, writes, each)
	}
}

// A broken connection is found while TLS looks only for what is there, too.
func TestBatchEnds(t *testing.T) {
	client, server := secured(t, func(c net.Conn) net.Conn { return NewBatch(c) })
	if _, err := client.Write(make([]byte, 3*recordBytes)); err != nil {
		t.Fatal(err)
	}
	if err := client.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	buffer := make([]byte, bufferBytes)
	n, err := server.Read(buffer)
	for err == nil {
		var more int
		if more, err = batchOf(server).readHere(server, buffer[n:]); more == 0 && err == nil {
			more, err = server.Read(buffer[n:])
		}
		n += more
	}
	if n != 3*recordBytes || err != io.EOF {
		t.Errorf("%d bytes, %v", n, err)
	}
}
