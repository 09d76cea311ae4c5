// SPDX-License-Identifier: Apache-2.0

package agent

import "sync"

// database is what a keeper has.
type database interface {
	comparable
	Close() error
}

// keeper has a database, which one goroutine beside the loop writes, for those who read it.
type keeper[DB database] struct {
	mutex  sync.Mutex // guards everything below, and what embeds this says; never held while something is written
	db     DB         // zero: it is not open
	failed bool
}

func (k *keeper[DB]) database() DB {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	return k.db
}

// wroteLocked notes what became of a write, and says whether it has begun or ceased to fail.
func (k *keeper[DB]) wroteLocked(db DB, err error) (changed bool) {
	failed := err != nil
	changed, k.db, k.failed = failed != k.failed, db, failed
	return changed
}

// close closes the database, if it was opened.
func (k *keeper[DB]) close() error {
	var none DB
	if db := k.database(); db != none {
		return db.Close()
	}
	return nil
}
