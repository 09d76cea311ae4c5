// SPDX-License-Identifier: Apache-2.0

// Package history keeps what has been in two databases beside the journal: what shares booked
// and used of each GPU by hours, for bills (Usage), and the figures of snapshots over time, finely
// for a day and ever more roughly (Figures). A change is one transaction that has the quantities
// and the counters they came from, so that nothing counts twice. One goroutine writes each;
// others may read beside it. A program that opens one is linked with the driver "sqlite":
// modernc.org/sqlite.
//
//	u, err := history.OpenUsage("/var/lib/divvy/usage.db")
//	err = u.Add(moment)
//	rows, cards, gaps, err := u.Read(ctx, from, to)
//
//	f, err := history.OpenFigures("/var/lib/divvy/history.db", history.DefaultBounds())
//	err = f.Write(recorder.Take())
//	answer, err := f.Read(ctx, query)
package history

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
)

// Errors of opening a database.
var (
	ErrNewer   = errors.New("a newer version of Divvy wrote it")
	ErrForeign = errors.New("it is not Divvy's")
)

// format is what a file has to be.
type format struct {
	id      int // application_id
	version int // user_version
	schema  string
	begin   string // what comes before all else in a new file
	later   string // what a file of the version before lacks
	pragmas string // of each connection, as the driver takes them
}

// open opens a database, or makes it. One that is not of the format, or of a newer version of it, is
// left alone.
func open(path string, f format) (*sql.DB, error) {
	if err := checkOwn(path); err != nil {
		return nil, err
	}
	source := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_pragma=busy_timeout(5000)&_pragma=trusted_schema(OFF)&_txlock=immediate" + f.pragmas
	db, err := sql.Open("sqlite", source)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if err := f.prepare(db); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), db.Close())
	}
	return db, nil
}

// checkOwn makes the file, for its owner alone, if it is not there.
func checkOwn(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE, 0o600)
	if err != nil {
		return fmt.Errorf("open the database: %w", err)
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no file", path)
	}
	return errors.Join(err, file.Close())
}

func (f format) prepare(db *sql.DB) error {
	var id, version int
	if err := db.QueryRow("PRAGMA application_id").Scan(&id); err != nil {
		return err
	}
	if err := db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	var tables int
	if err := db.QueryRow("SELECT count(*) FROM sqlite_schema").Scan(&tables); err != nil {
		return err
	}
	switch {
	case id == f.id && version != f.version && version != f.version-1:
		return fmt.Errorf("version %d: %w", version, ErrNewer)
	case id != f.id && (id != 0 || tables > 0):
		return ErrForeign
	}
	// Not before it is known whose it is: that writes into the file.
	begin := f.begin
	if id == f.id {
		begin = ""
	}
	if _, err := db.Exec(begin + "PRAGMA journal_mode = WAL"); err != nil || id == f.id && version == f.version {
		return err
	}
	lacks := f.schema
	if id == f.id {
		lacks = f.later
	}
	return inTransaction(db, func(tx *sql.Tx) error {
		_, err := tx.Exec(lacks + fmt.Sprintf("PRAGMA application_id = %d; PRAGMA user_version = %d;", f.id, f.version))
		return err
	})
}

// inTransaction writes all of it, or nothing.
func inTransaction(db *sql.DB, write func(*sql.Tx) error) error {
	tx, err := db.Begin()
	if err != nil {
		return err
	}
	if err := write(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

// Primary result codes: https://sqlite.org/rescode.html
const (
	sqliteCorrupt      = 11
	sqliteNotADatabase = 26
)

// Damaged says whether an error means that a file is not what a database wrote, or not any more.
func Damaged(err error) bool {
	is, ok := errors.AsType[interface {
		error
		Code() int // SQLite's extended result code
	}](err)
	return ok && (is.Code()&0xff == sqliteCorrupt || is.Code()&0xff == sqliteNotADatabase)
}

// insertedAtOnce is how many rows one statement writes: most of what a statement takes is
// not the database's work on rows.
const insertedAtOnce = 16

// inserter writes rows in one transaction. Those of an end wait for flush.
type inserter struct {
	tx      *sql.Tx
	into    string // what is before VALUES
	after   string // what is behind them, as of rows that are there already
	columns int
	waiting []any
	many    *sql.Stmt // writes insertedAtOnce; nil: not needed yet
}

func (i *inserter) insert(values ...any) error {
	i.waiting = append(i.waiting, values...)
	if len(i.waiting) < insertedAtOnce*i.columns {
		return nil
	}
	if i.many == nil {
		many, err := i.tx.Prepare(i.statement(insertedAtOnce))
		if err != nil {
			return err
		}
		i.many = many // ends with its transaction
	}
	_, err := i.many.Exec(i.waiting...)
	i.waiting = i.waiting[:0]
	return err
}

// flush writes what waits.
func (i *inserter) flush() error {
	if len(i.waiting) == 0 {
		return nil
	}
	_, err := i.tx.Exec(i.statement(len(i.waiting)/i.columns), i.waiting...)
	i.waiting = i.waiting[:0]
	return err
}

func (i *inserter) statement(rows int) string {
	row := "(" + strings.Repeat("?, ", i.columns-1) + "?)"
	return i.into + " VALUES " + strings.Repeat(row+", ", rows-1) + row + " " + i.after
}
