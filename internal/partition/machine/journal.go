// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/journal"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// DefaultJournal is where an interrupted change is taken up from.
const DefaultJournal = "/var/lib/divvy/partition.journal"

// BookingsSuffix is what the file of bookings has behind the journal's name.
const BookingsSuffix = ".bookings"

// ErrBusy says that another process changes cards by this journal.
var ErrBusy = errors.New("another divvy partition apply is running, or a program that one started")

// Journal is what survives a crash between the steps of a change. Who holds it changes
// cards alone.
type Journal struct {
	Path string
	// Lock goes with the process, and with the programs that it is handed to.
	Lock *os.File
	// Lost is how many bytes at the end were no record.
	Lost int64

	kept    *journal.Journal
	records [][]byte // that it has

	booked   *journal.Journal // of bookings, beside the other one
	bookings map[string]Booking
	notes    int // records of bookings
	// unsettled says why bookings are neither made nor gone.
	unsettled map[string]error
}

var _ partition.Log = (*Journal)(nil)

// OpenJournal opens a journal, or makes one. ErrBusy: it is held.
func OpenJournal(path string) (j *Journal, err error) {
	j = &Journal{Path: path}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, err
	}
	if j.Lock, err = os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR|unix.O_NOFOLLOW, 0o600); err != nil {
		return nil, err
	}
	if unix.Flock(int(j.Lock.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return nil, errors.Join(ErrBusy, j.Lock.Close())
	}
	if j.kept, j.records, j.Lost, err = journal.Open(path); err != nil {
		return nil, errors.Join(err, j.Lock.Close())
	}
	booked, records, lost, err := journal.Open(path + BookingsSuffix)
	if err != nil {
		return nil, errors.Join(err, j.kept.Close(), j.Lock.Close())
	}
	j.booked, j.bookings, j.notes = booked, readBookings(records), len(records)
	j.Lost += lost
	return j, nil
}

// Append keeps a record on disk before a card changes.
func (j *Journal) Append(record []byte) error {
	j.records = append(j.records, record)
	if err := j.kept.Append(record); err != nil {
		return err
	}
	return j.kept.Sync()
}

// Close lets others change cards.
func (j *Journal) Close() error {
	return errors.Join(j.kept.Close(), j.booked.Close(), j.Lock.Close())
}

// Recover ends what an interrupted change began, as partition.Recover does, before the
// next one, and what there is of bookings that were not made or destroyed to their end.
// From then on instances that are booked count as in use.
func (m *Machine) Recover(ctx context.Context, j *Journal) (outcomes map[string]string, err error) {
	m.journal = j
	began := len(j.records) > 0 // else a booking that was to be made was not
	if outcomes, err = partition.Recover(ctx, m.Techniques, m, j, j.records); err != nil {
		return outcomes, err
	}
	m.settle(ctx, j, began)
	if slices.ContainsFunc(j.Bookings(), func(b Booking) bool { return b.Stage == StageMaking }) {
		return outcomes, nil // that it began is not to be forgotten
	}
	j.records = nil
	return outcomes, j.kept.Replace(nil)
}

// Apply carries out the plans of a band, as partition.Apply does.
func (m *Machine) Apply(ctx context.Context, j *Journal, band ...partition.CardPlan) ([]partition.Step, error) {
	return partition.Apply(ctx, m.Techniques, m, j, band...)
}
