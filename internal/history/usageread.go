// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/divvy-gpu/divvy/internal/usage"
)

// maxRows bounds what is read at once.
const maxRows = 200_000

// querier is a database or a transaction.
type querier interface {
	Query(query string, args ...any) (*sql.Rows, error)
}

// digest is SHA-256 over the rows of an hour.
func digest(q querier, hour int64) (string, error) {
	hash := sha256.New()
	for _, query := range []string{
		"SELECT share, tenant, owner || '|' || card || '|' || ms || '|' || bookedKiBMs || '|' || bookedPercentMs || '|' || usedKiBMs || '|' || cardTimeNs || '|' || waitNs || '|' || energyUJ FROM hour WHERE hour = ? ORDER BY share, tenant, owner, card",
		"SELECT card, model, memoryKiB || '|' || ms || '|' || energyUJ FROM card WHERE hour = ? ORDER BY card",
	} {
		rows, err := q.Query(query, hour)
		if err != nil {
			return "", err
		}
		for rows.Next() {
			var one, two, rest string
			if err := rows.Scan(&one, &two, &rest); err != nil {
				return "", errors.Join(err, rows.Close())
			}
			fmt.Fprintf(hash, "%q %q %s\n", one, two, rest)
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// ErrChanged says that an hour is not as it was when it was closed.
var ErrChanged = errors.New("it is not as it was closed")

// ErrMany says that more is asked for than is read at once.
var ErrMany = errors.New("too many rows at once")

// Read returns the hours that begin from from on and before to, and gaps within.
func (u *Usage) Read(ctx context.Context, from, to time.Time) (shares []usage.Row, cards []usage.Card, gaps []Gap, err error) {
	tx, err := u.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read usage: %w", err)
	}
	defer tx.Rollback() // it has written nothing
	if err := verify(tx, from, to); err != nil {
		return nil, nil, nil, err
	}
	rows, err := tx.Query(`SELECT hour, share, tenant, owner, card, sum(ms), sum(bookedKiBMs), sum(bookedPercentMs), sum(usedKiBMs), sum(cardTimeNs), sum(waitNs), sum(energyUJ)
		FROM (SELECT * FROM hour UNION ALL `+calmHours+`) WHERE hour >= ? AND hour < ? GROUP BY hour, card, share, tenant, owner ORDER BY hour, card, share, tenant, owner`, from.Unix(), to.Unix())
	if err != nil {
		return nil, nil, nil, fmt.Errorf("read usage: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var r usage.Row
		var hour int64
		if err := rows.Scan(&hour, &r.Share, &r.Tenant, &r.Owner, &r.Card, &r.Ms, &r.BookedKiBMs, &r.BookedPercentMs, &r.UsedKiBMs, &r.CardTimeNs, &r.WaitNs, &r.EnergyUJ); err != nil {
			return nil, nil, nil, fmt.Errorf("read usage: %w", err)
		}
		if len(shares) == maxRows {
			return nil, nil, nil, ErrMany
		}
		r.Hour = time.Unix(hour, 0).UTC()
		shares = append(shares, r)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, nil, fmt.Errorf("read usage: %w", err)
	}
	if cards, err = readCards(tx, from, to); err != nil {
		return nil, nil, nil, fmt.Errorf("read usage: %w", err)
	}
	if gaps, err = readGaps(tx, from, to); err != nil {
		return nil, nil, nil, fmt.Errorf("read usage: %w", err)
	}
	return shares, cards, gaps, nil
}

func readCards(tx *sql.Tx, from, to time.Time) (all []usage.Card, err error) {
	rows, err := tx.Query("SELECT hour, card, model, memoryKiB, ms, energyUJ FROM card WHERE hour >= ? AND hour < ? ORDER BY hour, card", from.Unix(), to.Unix())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var c usage.Card
		var hour int64
		if err := rows.Scan(&hour, &c.UUID, &c.Model, &c.MemoryKiB, &c.Ms, &c.EnergyUJ); err != nil {
			return nil, err
		}
		c.Hour = time.Unix(hour, 0).UTC()
		all = append(all, c)
	}
	return all, rows.Err()
}

func readGaps(tx *sql.Tx, from, to time.Time) (all []Gap, err error) {
	rows, err := tx.Query("SELECT fromNs, toNs FROM gap WHERE toNs > ? AND fromNs < ? ORDER BY fromNs", from.UnixNano(), to.UnixNano())
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var begin, end int64
		if err := rows.Scan(&begin, &end); err != nil {
			return nil, err
		}
		all = append(all, Gap{time.Unix(0, begin).UTC(), time.Unix(0, end).UTC()})
	}
	return all, rows.Err()
}

// verify compares closed hours with their digests.
func verify(tx *sql.Tx, from, to time.Time) error {
	rows, err := tx.Query("SELECT hour, digest FROM closed WHERE hour >= ? AND hour < ?", from.Unix(), to.Unix())
	if err != nil {
		return fmt.Errorf("read usage: %w", err)
	}
	closed := map[int64]string{}
	for rows.Next() {
		var hour int64
		var digest string
		if err := rows.Scan(&hour, &digest); err != nil {
			return errors.Join(fmt.Errorf("read usage: %w", err), rows.Close())
		}
		closed[hour] = digest
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return fmt.Errorf("read usage: %w", err)
	}
	for hour, was := range closed {
		is, err := digest(tx, hour)
		if err != nil {
			return fmt.Errorf("read usage: %w", err)
		}
		if is != was {
			return fmt.Errorf("the hour of %s: %w", time.Unix(hour, 0).UTC().Format(time.RFC3339), ErrChanged)
		}
	}
	return nil
}
