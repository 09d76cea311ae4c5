// SPDX-License-Identifier: Apache-2.0

package history

import (
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/sample"
	"github.com/divvy-gpu/divvy/internal/usage"
)

const (
	usageID      = 0x44565559 // application_id of the file
	usageVersion = 2
	// awayMost is for how long an agent may be away until that is a gap, which nobody pays for.
	awayMost = time.Minute
	// closeAfter is how long after its end an hour does not change any more.
	closeAfter = 2 * time.Minute
	keepFor    = 400 * 24 * time.Hour
)

// Counters are of a share on a GPU. Those in Bill begin at 0 with each life of an agent, the
// others go on.
type Counters struct {
	Share, Tenant, Card string
	Owner               int
	Unnamed             bool
	Created             time.Time
	Ms, BookedKiBMs     int64
	BookedPercentMs     int64
	UsedKiBMs           int64
	CardTimeNs, WaitNs  int64
	// What it is promised now, for when no agent is there.
	PromisedKiB, PromisedPercent int64
}

// CardCounters are of a GPU.
type CardCounters struct {
	UUID, Model string
	MemoryKiB   int64
	EnergyUJ    int64 // less than 0: not known
}

// Moment is what was so at one moment, and what had gone by then since the one before.
type Moment struct {
	Life        string
	Time        time.Time
	MonotonicNs int64
	BeganNs     int64 // monotonic, too: when this life of the agent began
	FromNs      int64 // monotonic, too: before the first share was read
	Cards       []CardCounters
	Shares      []Counters
	Ended       []Counters
}

// Gap is a time for which no agent was there.
type Gap struct{ From, To time.Time }

// Usage is the database.
type Usage struct {
	db *sql.DB
	// bases are what was so at the moment before, and at the one that was to be written then: which of
	// them the file goes on from its mark says, whatever a write returned. Only who writes has them.
	bases []*base
}

// base is what the next moment goes on from.
type base struct {
	mark
	open     map[key]Counters
	calm     map[key]calm
	energies map[string]int64 // µJ, of GPUs
}

const usageSchema = `
CREATE TABLE hour (hour INTEGER, share TEXT, tenant TEXT, owner INTEGER, card TEXT, ms INTEGER, bookedKiBMs INTEGER, bookedPercentMs INTEGER,
	usedKiBMs INTEGER, cardTimeNs INTEGER, waitNs INTEGER, energyUJ INTEGER, PRIMARY KEY (hour, share, tenant, owner, card)) WITHOUT ROWID;
CREATE TABLE card (hour INTEGER, card TEXT, model TEXT, memoryKiB INTEGER, ms INTEGER, energyUJ INTEGER, PRIMARY KEY (hour, card)) WITHOUT ROWID;
-- of the counters, ms to usedKiBMs are of one life of an agent, which knows them: they are 0 here
CREATE TABLE open (share TEXT, created INTEGER, card TEXT, ms INTEGER, bookedKiBMs INTEGER, bookedPercentMs INTEGER, usedKiBMs INTEGER,
	cardTimeNs INTEGER, waitNs INTEGER, promisedKiB INTEGER, promisedPercent INTEGER, PRIMARY KEY (share, created, card)) WITHOUT ROWID;
CREATE TABLE energy (card TEXT PRIMARY KEY, energyUJ INTEGER) WITHOUT ROWID;
CREATE TABLE mark (one INTEGER PRIMARY KEY CHECK (one = 1), life TEXT, wallNs INTEGER, monotonicNs INTEGER, hour INTEGER, calmNs INTEGER);
CREATE TABLE gap (fromNs INTEGER, toNs INTEGER);
CREATE TABLE closed (hour INTEGER PRIMARY KEY, digest TEXT);
` + calmSchema

// OpenUsage opens the database, or makes it. One that is not ours or of a newer version is left
// alone.
func OpenUsage(path string) (*Usage, error) {
	db, err := open(path, format{id: usageID, version: usageVersion, schema: usageSchema, later: usageCalm, pragmas: "&_pragma=synchronous(FULL)"})
	if err != nil {
		return nil, err
	}
	if _, err := db.Exec(usageLater); err != nil {
		return nil, errors.Join(fmt.Errorf("open usage: %w", err), db.Close())
	}
	return &Usage{db: db}, nil
}

// usageLater is what files of the first agents lack.
const usageLater = "CREATE TABLE IF NOT EXISTS told (hour INTEGER)"

// Closed is an hour that does not change any more, and SHA-256 over its rows.
type Closed struct {
	Hour   time.Time
	Digest string
}

// Untold returns hours that are closed and not Told, the oldest first, so many at most.
func (u *Usage) Untold(most int) (hours []Closed, err error) {
	rows, err := u.db.Query("SELECT hour, digest FROM closed WHERE hour > (SELECT coalesce(max(hour), -1) FROM told) ORDER BY hour LIMIT ?", most)
	if err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var hour int64
		var c Closed
		if err := rows.Scan(&hour, &c.Digest); err != nil {
			return nil, fmt.Errorf("read usage: %w", err)
		}
		c.Hour = time.Unix(hour, 0).UTC()
		hours = append(hours, c)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read usage: %w", err)
	}
	return hours, nil
}

// Told notes that all hours up to one were told.
func (u *Usage) Told(hour time.Time) error {
	if err := inTransaction(u.db, func(tx *sql.Tx) error {
		_, err := tx.Exec("DELETE FROM told")
		if err == nil {
			_, err = tx.Exec("INSERT INTO told VALUES (?)", hour.Unix())
		}
		return err
	}); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// Close closes it.
func (u *Usage) Close() error { return u.db.Close() }

// mark is what the last moment was.
type mark struct {
	life              string
	wallNs, monotonic int64
	hour              int64
}

// key names a share's counters.
type key struct {
	share   string
	created int64
	card    string
}

func (c Counters) key() key { return key{c.Share, c.Created.UnixNano(), c.Card} }

// Add adds what came since the moment before. When it fails nothing has changed, and the next one
// has it all; what had ended by then has to be given again.
func (u *Usage) Add(m Moment) error {
	if err := inTransaction(u.db, func(tx *sql.Tx) error { return u.add(tx, m) }); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// base is what the moment after goes on from.
func (m Moment) base() *base {
	b := &base{mark: mark{monotonic: m.MonotonicNs}, open: make(map[key]Counters, len(m.Shares)), calm: make(map[key]calm, len(m.Shares)), energies: map[string]int64{}}
	for _, c := range m.Shares {
		b.open[c.key()] = c
	}
	for _, c := range m.Cards {
		if c.EnergyUJ >= 0 {
			b.energies[c.UUID] = c.EnergyUJ
		}
	}
	return b
}

// before is what a moment goes on from: what the file's mark names, by what this life of the agent
// knows of it, else by the file. Nil: the file has none.
func (u *Usage) before(tx *sql.Tx, m Moment) (*base, error) {
	b := &base{}
	err := tx.QueryRow("SELECT life, wallNs, monotonicNs, hour FROM mark").Scan(&b.life, &b.wallNs, &b.monotonic, &b.hour)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	u.bases = slices.DeleteFunc(u.bases, func(one *base) bool { return b.life != m.Life || one.monotonic != b.monotonic })
	if len(u.bases) > 0 {
		b.open, b.calm, b.energies = u.bases[0].open, u.bases[0].calm, u.bases[0].energies
		return b, nil
	}
	if err := settleCalm(tx); err != nil {
		return nil, err
	}
	if b.open, err = readOpen(tx); err != nil {
		return nil, err
	}
	if b.energies, err = readEnergies(tx); err != nil || b.life != m.Life {
		return b, err
	}
	// It was opened anew in the same life: what its counters were then nobody knows. What came
	// since is lost, rather than that anything counts twice.
	for _, c := range slices.Concat(m.Shares, m.Ended) {
		if had, is := b.open[c.key()]; is {
			had.Ms, had.BookedKiBMs, had.BookedPercentMs, had.UsedKiBMs = c.Ms, c.BookedKiBMs, c.BookedPercentMs, c.UsedKiBMs
			b.open[c.key()] = had
		}
	}
	return b, nil
}

func (u *Usage) add(tx *sql.Tx, m Moment) error {
	was, err := u.before(tx, m)
	if err != nil {
		return err
	}
	next := m.base()
	u.bases = append(u.bases, next)
	if was == nil { // what was before nobody pays for
		return errors.Join(writeOpen(tx, &base{}, next), writeMark(tx, m, parts(m.Time, 0, 0)))
	}
	passed := time.Duration(max(m.MonotonicNs-was.monotonic, 0))
	const ns = int64(time.Millisecond)
	passedMs := m.MonotonicNs/ns - was.monotonic/ns // whole ones, of which none is lost between two moments
	if m.MonotonicNs < was.monotonic {              // the machine was started anew
		passed = time.Duration(max(m.Time.UnixNano()-was.wallNs, 0))
		passed = min(passed, keepFor)
		passedMs = passed.Milliseconds()
	}
	anew := m.Life != was.life
	away := time.Duration(0) // for which there was no agent: this one may have been long unable to write
	if anew {
		away = max(passed-time.Duration(max(m.MonotonicNs-m.BeganNs, 0)), 0)
	}
	gap := away > awayMost
	s := newHourWriter(tx, parts(m.Time, passed, was.hour))
	calms := calmWriter{hours: s, was: was, next: next, at: m.MonotonicNs, rows: inserter{tx: tx, into: "INSERT OR REPLACE INTO calm", columns: 10}, may: !anew && len(s.parts) == 1 && s.parts[0].hour == was.hour}
	if gap {
		if _, err := tx.Exec("INSERT INTO gap VALUES (?, ?)", m.Time.Add(-passed).UnixNano(), m.Time.Add(away-passed).UnixNano()); err != nil {
			return err
		}
	}
	deltas := map[string][]delta{} // by card
	for _, c := range append(m.Shares[:len(m.Shares):len(m.Shares)], m.Ended...) {
		had, known := was.open[c.key()]
		promisedFor := time.Duration(0) // with nobody there to count it
		if known && !gap {
			promisedFor = away
		}
		deltas[c.Card] = append(deltas[c.Card], c.since(had, known && !anew, promisedFor, passed))
	}
	// Of a GPU that is not there, whose share has others too, no hour could be rated.
	for _, c := range m.Cards {
		energy := int64(0)
		if before, known := was.energies[c.UUID]; known && c.EnergyUJ >= before {
			energy = c.EnergyUJ - before
		}
		share(deltas[c.UUID], energy, passed)
		ms := passedMs
		if gap {
			ms = max(ms-away.Milliseconds(), 0)
		}
		if err := s.addCard(c, ms, energy); err != nil {
			return err
		}
		for _, d := range deltas[c.UUID] {
			if waits, err := calms.keep(d); waits || err != nil {
				if err != nil {
					return err
				}
				continue
			}
			if d.q == (usage.Quantities{}) {
				continue
			}
			if err := s.addShare(d); err != nil {
				return err
			}
		}
	}
	if err := errors.Join(calms.rest(), s.rows.flush(), writeOpen(tx, was, next)); err != nil {
		return err
	}
	if err := writeMark(tx, m, s.parts); err != nil {
		return err
	}
	return closeHours(tx, m.Time, lastHour(s.parts))
}

// writeMark notes that all is written up to a moment.
func writeMark(tx *sql.Tx, m Moment, parts []hourPart) error {
	_, err := tx.Exec("INSERT OR REPLACE INTO mark (one, life, wallNs, monotonicNs, hour, calmNs) VALUES (1, ?, ?, ?, ?, ?)", m.Life, m.Time.UnixNano(), m.MonotonicNs, lastHour(parts), m.FromNs)
	return err
}

func lastHour(parts []hourPart) int64 { return parts[len(parts)-1].hour }

// delta is what a share did since the moment before.
type delta struct {
	of Counters
	q  usage.Quantities
}

// since is what came since had: with counters of the same life their difference; with those of
// another one, what goes on over lives by its difference, and of the rest, which began anew, all,
// and what was promised while no agent was there.
func (c Counters) since(had Counters, same bool, away, passed time.Duration) delta {
	d := delta{of: c}
	more := func(now, before int64) int64 { return max(now-before, 0) }
	d.q.CardTimeNs, d.q.WaitNs = more(c.CardTimeNs, had.CardTimeNs), more(c.WaitNs, had.WaitNs)
	if !same {
		if between := min(passed.Milliseconds()-c.Ms, away.Milliseconds()); between > 0 {
			d.q.Ms = between
			d.q.BookedKiBMs = had.PromisedKiB * between
			d.q.BookedPercentMs = had.PromisedPercent * between
		}
	}
	d.q.Ms += more(c.Ms, had.Ms)
	d.q.BookedKiBMs += more(c.BookedKiBMs, had.BookedKiBMs)
	d.q.BookedPercentMs += more(c.BookedPercentMs, had.BookedPercentMs)
	d.q.UsedKiBMs += more(c.UsedKiBMs, had.UsedKiBMs)
	return d
}

// share attributes a GPU's energy: by each one's part of the time, or of what all had together
// where that is more. The rest is idle's.
func share(all []delta, energy int64, passed time.Duration) {
	whole := passed.Nanoseconds()
	sum := int64(0)
	for _, d := range all {
		sum += d.q.CardTimeNs
	}
	if whole = max(whole, sum); whole <= 0 {
		return
	}
	for i := range all {
		all[i].q.EnergyUJ = usage.Part(energy, all[i].q.CardTimeNs, whole)
	}
}

// hourPart is how much of a time is in an hour.
type hourPart struct {
	hour     int64 // unix
	from, to int64 // of whole, ns
	whole    int64
}

// parts divides the time until a moment by hours. The clock only names hours: none before the last one is
// named again, whatever it says.
func parts(until time.Time, passed time.Duration, last int64) []hourPart {
	hourOf := func(ns int64) int64 {
		return max(ns/int64(time.Hour)*int64(time.Hour/time.Second), last)
	}
	end := until.UnixNano()
	begin := end - int64(passed)
	whole := max(int64(passed), 1)
	var all []hourPart
	for at := begin; ; {
		next := (at/int64(time.Hour) + 1) * int64(time.Hour)
		part := hourPart{hour: hourOf(at), from: at - begin, to: min(next, end) - begin, whole: whole}
		if n := len(all); n > 0 && all[n-1].hour == part.hour {
			all[n-1].to = part.to
		} else {
			all = append(all, part)
		}
		if at = next; at >= end {
			break
		}
	}
	all[len(all)-1].to = whole
	return all
}

// hourWriter writes quantities into hours.
type hourWriter struct {
	tx    *sql.Tx
	parts []hourPart
	rows  inserter // of shares
}

// hourInsert and hourAdds add to the rows of an hour.
const (
	hourInsert = "INSERT INTO hour"
	hourAdds   = `ON CONFLICT DO UPDATE SET ms = ms + excluded.ms,
		bookedKiBMs = bookedKiBMs + excluded.bookedKiBMs, bookedPercentMs = bookedPercentMs + excluded.bookedPercentMs, usedKiBMs = usedKiBMs + excluded.usedKiBMs,
		cardTimeNs = cardTimeNs + excluded.cardTimeNs, waitNs = waitNs + excluded.waitNs, energyUJ = energyUJ + excluded.energyUJ`
)

func newHourWriter(tx *sql.Tx, parts []hourPart) *hourWriter {
	return &hourWriter{tx, parts, inserter{tx: tx, into: hourInsert, columns: 12, after: hourAdds}}
}

// of is the part of an amount that belongs to one of the hours: all of them add up to it.
func (p hourPart) of(amount int64) int64 {
	return usage.Part(amount, p.to, p.whole) - usage.Part(amount, p.from, p.whole)
}

// shown is the name under which hours have it.
func (c Counters) shown() string {
	if c.Unnamed {
		return sample.Unnamed
	}
	return c.Share
}

func (s *hourWriter) addShare(d delta) error {
	for _, p := range s.parts {
		q := d.q
		if err := s.add(p.hour, d.of, usage.Quantities{Ms: p.of(q.Ms), BookedKiBMs: p.of(q.BookedKiBMs), BookedPercentMs: p.of(q.BookedPercentMs), UsedKiBMs: p.of(q.UsedKiBMs),
			CardTimeNs: p.of(q.CardTimeNs), WaitNs: p.of(q.WaitNs), EnergyUJ: p.of(q.EnergyUJ)}); err != nil {
			return err
		}
	}
	return nil
}

func (s *hourWriter) add(hour int64, of Counters, q usage.Quantities) error {
	return s.rows.insert(hour, of.shown(), of.Tenant, of.Owner, of.Card, q.Ms, q.BookedKiBMs, q.BookedPercentMs, q.UsedKiBMs, q.CardTimeNs, q.WaitNs, q.EnergyUJ)
}

func (s *hourWriter) addCard(c CardCounters, ms, energy int64) error {
	for _, p := range s.parts {
		if _, err := s.tx.Exec(`INSERT INTO card VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET ms = ms + excluded.ms, energyUJ = energyUJ + excluded.energyUJ`,
			p.hour, c.UUID, c.Model, c.MemoryKiB, p.of(ms), p.of(energy)); err != nil {
			return err
		}
	}
	return nil
}

// readOpen reads what a life before had of counters that go on, and what it promised.
func readOpen(tx *sql.Tx) (map[key]Counters, error) {
	rows, err := tx.Query("SELECT share, created, card, cardTimeNs, waitNs, promisedKiB, promisedPercent FROM open")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[key]Counters{}
	for rows.Next() {
		var k key
		var c Counters
		if err := rows.Scan(&k.share, &k.created, &k.card, &c.CardTimeNs, &c.WaitNs, &c.PromisedKiB, &c.PromisedPercent); err != nil {
			return nil, err
		}
		all[k] = c
	}
	return all, rows.Err()
}

// kept is what the file has of counters.
func (c Counters) kept() [4]int64 {
	return [...]int64{c.CardTimeNs, c.WaitNs, c.PromisedKiB, c.PromisedPercent}
}

// writeOpen keeps of what is there what the next life goes on from, where the file has it otherwise.
// A counter that fell, for an agent was killed before it had saved all, stays where it was: what is
// counted is counted.
func writeOpen(tx *sql.Tx, was, next *base) error {
	rows := inserter{tx: tx, into: "INSERT OR REPLACE INTO open", columns: 11}
	for k, c := range next.open {
		had, is := was.open[k]
		c.CardTimeNs, c.WaitNs = max(c.CardTimeNs, had.CardTimeNs), max(c.WaitNs, had.WaitNs)
		next.open[k] = c
		if is && had.kept() == c.kept() {
			continue
		}
		if err := rows.insert(k.share, k.created, k.card, 0, 0, 0, 0, c.CardTimeNs, c.WaitNs, c.PromisedKiB, c.PromisedPercent); err != nil {
			return err
		}
	}
	if err := rows.flush(); err != nil {
		return err
	}
	for k := range was.open {
		if _, is := next.open[k]; is {
			continue
		}
		if _, err := tx.Exec("DELETE FROM open WHERE share = ? AND created = ? AND card = ?", k.share, k.created, k.card); err != nil {
			return err
		}
	}
	for card, energy := range next.energies {
		if before, is := was.energies[card]; is && before == energy {
			continue
		}
		if _, err := tx.Exec("INSERT OR REPLACE INTO energy VALUES (?, ?)", card, energy); err != nil {
			return err
		}
	}
	for card, energy := range was.energies {
		if _, is := next.energies[card]; !is { // it is not known now; later it goes on from here
			next.energies[card] = energy
		}
	}
	return nil
}

func readEnergies(tx *sql.Tx) (map[string]int64, error) {
	rows, err := tx.Query("SELECT card, energyUJ FROM energy")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	all := map[string]int64{}
	for rows.Next() {
		var card string
		var energy int64
		if err := rows.Scan(&card, &energy); err != nil {
			return nil, err
		}
		all[card] = energy
	}
	return all, rows.Err()
}

// closeHours writes the digests of hours that do not change any more, and forgets those of long
// ago.
func closeHours(tx *sql.Tx, now time.Time, current int64) error {
	before := min(now.Add(-closeAfter).Unix()/3600*3600, current)
	rows, err := tx.Query("SELECT DISTINCT hour FROM card WHERE hour < ? AND hour NOT IN (SELECT hour FROM closed)", before)
	if err != nil {
		return err
	}
	var hours []int64
	for rows.Next() {
		var hour int64
		if err := rows.Scan(&hour); err != nil {
			return errors.Join(err, rows.Close())
		}
		hours = append(hours, hour)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, hour := range hours {
		digest, err := digest(tx, hour)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT INTO closed VALUES (?, ?)", hour, digest); err != nil {
			return err
		}
	}
	if len(hours) == 0 {
		return nil
	}
	old := now.Add(-keepFor).Unix()
	for _, table := range []string{"hour", "card", "closed"} {
		if _, err := tx.Exec("DELETE FROM "+table+" WHERE hour < ?", old); err != nil {
			return err
		}
	}
	_, err = tx.Exec("DELETE FROM gap WHERE toNs < ?", old*int64(time.Second))
	return err
}
