// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"sync"
	"time"

	"github.com/divvy-gpu/divvy/internal/process"
)

// environments reads those of processes. A process may have its own in a file system that
// its user runs, and then who reads it waits for as long as that user likes: nobody waits here
// for long. A read that hangs is left alone, and nothing waits for its goroutine; there are few of them.
type environments struct {
	table process.Table

	mutex sync.Mutex       // guards the rest
	read  map[int]struct{} // of which a read is on its way
}

const (
	environmentPatience = 200 * time.Millisecond
	mostEnvironments    = 64
)

func newEnvironments(table process.Table) *environments {
	return &environments{table: table, read: map[int]struct{}{}}
}

// variable is what a process was given as a variable, empty if it was not, or does not say.
func (e *environments) variable(pid int, name string) string {
	e.mutex.Lock()
	_, hangs := e.read[pid]
	if hangs = hangs || len(e.read) >= mostEnvironments; !hangs {
		e.read[pid] = struct{}{}
	}
	e.mutex.Unlock()
	if hangs {
		return ""
	}
	value := make(chan string, 1)
	go func() {
		value <- e.table.Variable(pid, name)
		e.mutex.Lock()
		defer e.mutex.Unlock()
		delete(e.read, pid)
	}()
	timer := time.NewTimer(environmentPatience)
	defer timer.Stop()
	select {
	case v := <-value:
		return v
	case <-timer.C:
		return ""
	}
}
