// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"sync"
)

// Environments reads those of processes, and waits for none for longer than asked. A process
// may have its own in a file system that its user runs, and then who reads it waits for as long
// as that user likes. A read that hangs is left alone, and nothing waits for its goroutine;
// there are few of them.
type Environments struct {
	table Table

	mutex sync.Mutex // guards the rest
	reads map[int]*environmentRead
}

// environmentRead is a read that is on its way.
type environmentRead struct {
	done chan struct{} // closed when the rest stands
	raw  []byte
	err  error
	late bool // somebody has waited in vain; the mutex above guards it
}

// ErrSlow says that a process's environment has not come in time.
var ErrSlow = errors.New("it does not come in time")

// mostEnvironments bounds the reads that hang.
const mostEnvironments = 64

// NewEnvironments reads the environments of a table's processes.
func NewEnvironments(table Table) *Environments {
	return &Environments{table: table, reads: map[int]*environmentRead{}}
}

// Read is Table.Environment, until the context ends. A process that has kept somebody
// waiting in vain is not waited for again before that read has ended.
func (e *Environments) Read(ctx context.Context, pid int) ([]byte, error) {
	r := e.begin(pid)
	if r == nil {
		return nil, ErrSlow
	}
	select {
	case <-r.done:
		return r.raw, r.err
	case <-ctx.Done():
		e.mutex.Lock()
		defer e.mutex.Unlock()
		r.late = true
		return nil, ErrSlow
	}
}

// begin is the read to wait for, one that another has begun too; nil: there is none.
func (e *Environments) begin(pid int) *environmentRead {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	r := e.reads[pid]
	switch {
	case r != nil && r.late, r == nil && len(e.reads) >= mostEnvironments:
		return nil
	case r != nil:
		return r
	}
	r = &environmentRead{done: make(chan struct{})}
	e.reads[pid] = r
	go func() {
		r.raw, r.err = e.table.Environment(pid)
		e.mutex.Lock()
		defer e.mutex.Unlock()
		delete(e.reads, pid)
		close(r.done)
	}()
	return r
}

// Variable returns what a process was given as a variable when its program started, empty if
// it was not, we may not look, or the context has ended.
func (e *Environments) Variable(ctx context.Context, pid int, name string) string {
	raw, err := e.Read(ctx, pid)
	if err != nil {
		return ""
	}
	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(name+"=")); ok {
			return string(value)
		}
	}
	return ""
}
