// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"

	"github.com/divvy-gpu/divvy/internal/usage"
)

// calmSchema has a row for each share that does nothing: since a moment each of its quantities has grown by
// so much a millisecond, and not its GPU time. It goes on until the mark says that all of them do
// (calmNs), which is one row to write for all. No row of an hour has it yet.
const calmSchema = `
CREATE TABLE calm (share TEXT, created INTEGER, card TEXT, name TEXT, tenant TEXT, owner INTEGER, sinceNs INTEGER, bookedKiB INTEGER, bookedPercent INTEGER, usedKiB INTEGER,
	PRIMARY KEY (share, created, card)) WITHOUT ROWID;
`

// usageCalm makes a file of version 1 one of version 2.
const usageCalm = calmSchema + "ALTER TABLE mark ADD COLUMN calmNs INTEGER;"

// calmHours is what such shares had, as rows of the hour that the mark names.
const calmHours = `SELECT hour, name AS share, tenant, owner, card, ms, bookedKiB * ms AS bookedKiBMs, bookedPercent * ms AS bookedPercentMs, usedKiB * ms AS usedKiBMs,
	0 AS cardTimeNs, 0 AS waitNs, 0 AS energyUJ FROM (SELECT *, (calmNs - sinceNs) / 1000000 AS ms FROM calm, mark) WHERE ms > 0`

// settleCalm puts into their hour what the file alone knows of shares that did nothing: it is never more than
// the truth, for the mark's time is before any of them was read.
func settleCalm(tx *sql.Tx) error {
	if _, err := tx.Exec(hourInsert + " " + calmHours + " " + hourAdds); err != nil {
		return err
	}
	_, err := tx.Exec("DELETE FROM calm")
	return err
}

// rates are by how much quantities grow in a millisecond.
type rates struct{ bookedKiB, bookedPercent, usedKiB int64 }

// calm is a share that does nothing.
type calm struct {
	rates
	sinceNs int64            // monotonic; 0: the file does not have it, for it was so once alone
	owed    usage.Quantities // since then, which no row of an hour has
	of      Counters
}

// ratesOf says at which rates quantities grew of a share that did nothing; false: it did something, or
// was not always the same.
func ratesOf(q usage.Quantities) (rates, bool) {
	if q.Ms <= 0 || q.CardTimeNs != 0 || q.WaitNs != 0 || q.EnergyUJ != 0 {
		return rates{}, false
	}
	r := rates{q.BookedKiBMs / q.Ms, q.BookedPercentMs / q.Ms, q.UsedKiBMs / q.Ms}
	return r, r.bookedKiB*q.Ms == q.BookedKiBMs && r.bookedPercent*q.Ms == q.BookedPercentMs && r.usedKiB*q.Ms == q.UsedKiBMs
}

// calmWriter lets shares that do nothing wait, and writes what they are owed when they do something, or when their hour
// is over.
type calmWriter struct {
	hours     *hourWriter
	was, next *base
	at        int64 // monotonic ns
	may       bool  // the moment is of the life and the hour of the one before
	rows      inserter
}

// keep says whether what a share did is to wait.
func (w *calmWriter) keep(d delta) (waits bool, err error) {
	r, steady := ratesOf(d.q)
	if !w.may || !steady || w.next.open[d.of.key()].Share == "" { // or it has gone
		return false, nil
	}
	c := calm{rates: r, of: d.of}
	was, is := w.was.calm[d.of.key()]
	switch {
	case !is || was.rates != r || was.of.Tenant != d.of.Tenant || was.of.Owner != d.of.Owner || was.of.Unnamed != d.of.Unnamed: // it may be for once
	case was.sinceNs == 0:
		c.sinceNs = w.at
		if err := w.write(c); err != nil {
			return false, err
		}
	default:
		c.sinceNs, c.owed, waits = was.sinceNs, was.owed, true
		c.owed.Add(d.q)
	}
	w.next.calm[d.of.key()] = c
	return waits, nil
}

func (w *calmWriter) write(c calm) error {
	return w.rows.insert(c.of.Share, c.of.Created.UnixNano(), c.of.Card, c.of.shown(), c.of.Tenant, c.of.Owner, c.sinceNs, c.bookedKiB, c.bookedPercent, c.usedKiB)
}

// rest writes what those are owed that do not wait any more.
func (w *calmWriter) rest() error {
	for k, c := range w.was.calm {
		if c.sinceNs == 0 || w.next.calm[k].sinceNs == c.sinceNs {
			continue
		}
		if c.owed != (usage.Quantities{}) {
			if err := w.hours.add(w.was.hour, c.of, c.owed); err != nil {
				return err
			}
		}
		if _, err := w.hours.tx.Exec("DELETE FROM calm WHERE share = ? AND created = ? AND card = ?", k.share, k.created, k.card); err != nil {
			return err
		}
	}
	return w.rows.flush()
}
