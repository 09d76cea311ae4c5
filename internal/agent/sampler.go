// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/health"
	"github.com/divvy-gpu/divvy/internal/sample"
	"github.com/divvy-gpu/divvy/internal/share"
)

const (
	sampleEvery  = 10 * time.Second
	sampleLooked = time.Second           // while somebody looks, or has lately
	sampleStale  = 50 * time.Millisecond // at least from one to the next, where shares come and go
	sampleIdle   = time.Minute           // without shares
	lookedFor    = 10 * time.Second
	// instrumentPatience is how long a sample waits for drivers. What one says later is in
	// the next.
	instrumentPatience = 200 * time.Millisecond
	// lookPatience is how long who looks waits for a sample before the last one has to do.
	lookPatience = 2 * time.Second
	// sharesAtOnce bounds of how many shares one turn of the loop reads the figures.
	sharesAtOnce = 8
)

// sampler has the last snapshot. A goroutine beside the loop makes them.
type sampler struct {
	*driverWatch
	life    string
	agent   func(*api.SnapshotAgent) // says how the agent is
	wake    chan struct{}            // holds one when somebody looks
	changes atomic.Uint64            // of shares and GPUs

	mutex  sync.Mutex // guards everything below
	last   *api.Snapshot
	has    uint64        // of the changes, the last
	more   chan struct{} // closed and replaced when there is another
	looked time.Time
}

func newSampler(d *daemon) *sampler {
	return &sampler{driverWatch: d.driverWatch, life: d.life, agent: d.shown, wake: make(chan struct{}, 1), more: make(chan struct{})}
}

// instruments are what the driver of a card said last, and when it was asked.
type instruments struct {
	at   time.Time
	read gpu.Telemetry
}

// readings has the last answers, and asks each driver once at a time.
type readings struct {
	mutex sync.Mutex // guards everything below
	of    map[string]instruments
	asked map[string]bool
}

// ask asks all drivers, and returns when all have answered, or after a while.
func (r *readings) ask(ctx context.Context, d *driverWatch) {
	var all sync.WaitGroup
	for _, c := range d.cards {
		r.mutex.Lock()
		busy := r.asked[c.UUID]
		r.asked[c.UUID] = true
		r.mutex.Unlock()
		if busy {
			continue
		}
		all.Add(1)
		d.task(func() {
			defer all.Done()
			at := time.Now()
			read, err := d.driver.telemetry(ctx, c.UUID, answerFor)
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.asked[c.UUID] = false
			if err == nil {
				r.of[c.UUID] = instruments{at, read}
			}
		})
	}
	answered := make(chan struct{})
	go func() { // ends with the last of them
		all.Wait()
		close(answered)
	}()
	timer := time.NewTimer(instrumentPatience)
	defer timer.Stop()
	select {
	case <-answered:
	case <-timer.C:
	}
}

func (r *readings) last(card string) (instruments, bool) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	i, ok := r.of[card]
	return i, ok
}

// run makes snapshots until ctx ends.
func (s *sampler) run(ctx context.Context) {
	var series sample.Series
	r := &readings{of: map[string]instruments{}, asked: map[string]bool{}}
	timer := time.NewTimer(0)
	defer timer.Stop()
	begun, has := time.Time{}, uint64(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-s.wake:
		}
		least := sampleLooked
		if s.changes.Load() != has {
			least = sampleStale
		}
		if soon := time.Until(begun.Add(least)); soon > 0 {
			timer.Reset(soon)
			continue
		}
		begun, has = time.Now(), s.changes.Load()
		r.ask(ctx, s.driverWatch)
		read, err := s.read(ctx, r)
		if err != nil {
			return // the agent ends
		}
		s.put(series.Next(read), has)
		timer.Reset(time.Until(begun.Add(s.every())))
	}
}

func (s *sampler) every() time.Duration {
	switch {
	case s.lookedLately():
		return sampleLooked
	case s.shared.Load():
		return sampleEvery
	}
	return sampleIdle
}

func (s *sampler) lookedLately() bool {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return time.Since(s.looked) < lookedFor
}

func (s *sampler) put(snapshot api.Snapshot, has uint64) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.last, s.has = &snapshot, has
	close(s.more)
	s.more = make(chan struct{})
}

// latest is the last one, for who does not look; nil: there is none.
func (s *sampler) latest() *api.Snapshot {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last
}

// follow is the last one for who does not look, and when there is another; nil: there is none.
func (s *sampler) follow() (last *api.Snapshot, more <-chan struct{}) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return s.last, s.more
}

// refresh has another one made, and waits for it for a while: what a driver measures is then of now.
func (s *sampler) refresh(ctx context.Context) {
	s.mutex.Lock()
	more := s.more
	s.mutex.Unlock()
	select {
	case s.wake <- struct{}{}:
	default: // it is about to
	}
	_ = await(ctx, more) // the last one has to do
}

// await waits a while until there is more.
func await(ctx context.Context, more <-chan struct{}) error {
	timer := time.NewTimer(lookPatience)
	defer timer.Stop()
	select {
	case <-more:
	case <-timer.C:
	case <-ctx.Done():
		return errStopped
	}
	return nil
}

// look says that somebody looks, and returns what there is, when there is more, and whether it
// is fresh.
func (s *sampler) look() (last *api.Snapshot, more <-chan struct{}, fresh bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	lately := time.Since(s.looked) < lookedFor
	s.looked = time.Now()
	fresh = s.last != nil && time.Since(s.last.Time) < sampleLooked && s.has == s.changes.Load()
	if !fresh || !lately {
		select {
		case s.wake <- struct{}{}:
		default: // it is about to
		}
	}
	return s.last, s.more, fresh
}

// snapshot returns one that is no older than a second and has all that was changed before, or the last one
// where no other comes in time.
func (s *sampler) snapshot(ctx context.Context) (*api.Snapshot, error) {
	asked, changes := time.Now(), s.changes.Load()
	last, more, fresh := s.look()
	for has := false; !fresh && !has && time.Since(asked) < lookPatience; {
		if err := await(ctx, more); err != nil {
			return nil, err
		}
		s.mutex.Lock()
		last, more, has = s.last, s.more, s.has >= changes
		s.mutex.Unlock()
	}
	if last == nil {
		return nil, errNoSnapshot
	}
	return last, nil
}

var errNoSnapshot = &api.Error{Code: api.CodeUnavailable, Message: "the agent has measured nothing yet", Hint: "ask again"}

// read reads core and arbiters in portions, so that no turn of the loop takes long. A
// share's figures are read in one turn.
func (s *sampler) read(ctx context.Context, r *readings) (api.Snapshot, error) {
	read := api.Snapshot{Life: s.life, Simulated: simulated(s.cards), Cards: []api.SnapshotCard{}, Shares: []api.SnapshotShare{}, Gone: []api.SnapshotGone{},
		Agent: api.SnapshotAgent{Version: s.cfg.ProductVersion, PID: os.Getpid(), QuantumNs: uint64(s.cfg.arbiter().Quantum)}}
	payer := payers("/etc/passwd")
	var names []string
	if err := s.do(ctx, func(l *loop) { names = l.core.ShareNames() }); err != nil {
		return read, err
	}
	read.Shares = make([]api.SnapshotShare, 0, len(names))
	if err := inTurns(ctx, s.door, names, sharesAtOnce, func(l *loop, some []string) {
		for _, name := range some {
			if v, err := l.core.Share(name); err == nil {
				of := l.snapshotShare(v)
				of.Tenant = payer(v.Tenant, v.Owner)
				read.Shares = append(read.Shares, of)
			}
		}
	}); err != nil {
		return read, err
	}
	err := s.do(ctx, func(l *loop) {
		read.Time, read.MonotonicNs = l.now, uint64(monotonic())
		l.snapshotCards(&read, r)
		for key, gone := range l.core.Gone() {
			read.Gone = append(read.Gone, api.SnapshotGone{CardUUID: key.CardUUID, Tenant: payer(key.Tenant, key.Owner), Unnamed: key.Unnamed, CardTimeNs: gone.CardTimeNs, WaitNs: gone.WaitNs,
				Launches: gone.Launches, Denials: denials(gone.DenialsBy), Overruns: gone.Overruns})
		}
		read.Agent.JournalFailed = !l.saveAgainAt.IsZero()
		read.Agent.Turns = l.turnTimes.shown()
		read.Agent.EventsFailed = l.kept == nil || !l.kept.lost.IsZero()
	})
	if err != nil {
		return read, err
	}
	s.agent(&read.Agent)
	for i := range read.Cards {
		c := &read.Cards[i]
		for n := range c.Unaccounted {
			s.nameUnaccounted(&c.Unaccounted[n])
		}
	}
	return read, nil
}

// shown says how the agent's own parts are.
func (d *daemon) shown(of *api.SnapshotAgent) {
	failed, committed := d.usage.state()
	of.UsageFailed = failed
	if !committed.IsZero() {
		of.UsageWritten = &committed
	}
	if d.cfg.Audit != AuditOff {
		head, failed := d.audit.state()
		if of.AuditFailed = failed != nil; head.Sequence > 0 {
			of.AuditSequence = &head.Sequence
		}
	}
	if !d.cfg.History.Off() {
		failed, bytes := d.history.state()
		if of.HistoryFailed = failed; bytes > 0 {
			of.HistoryBytes = &bytes
		}
	}
	of.Events, of.Requests = d.events.counts(), d.requests.all()
}

func denials(by map[core.Reason]uint64) map[string]uint64 {
	all := make(map[string]uint64, len(by))
	for reason, n := range by {
		all[string(reason)] = n
	}
	return all
}

// snapshotShare is the loop's part of one share, without who pays for it.
func (l *loop) snapshotShare(v core.ShareView) api.SnapshotShare {
	level, why := l.shown(v.Name)
	s := api.SnapshotShare{
		Name: v.Name, Unnamed: v.Unnamed && v.Ephemeral, OwnerUID: v.Owner, Labels: v.Labels, Promised: v.MemoryBytes > 0, Policy: v.Policy,
		CoresPercent: v.CoresPercent, Weight: v.Weight, Priority: v.Priority, State: v.State, Enforcement: level, EnforcementWhy: why, Created: v.Created, Clients: v.Clients,
		Cards: []api.SnapshotSlot{}, Processes: []api.SnapshotProcess{},
	}
	for number, of := range v.Slots {
		slot := api.SnapshotSlot{CardUUID: of.CardUUID, LimitBytes: of.LimitBytes, UsedBytes: of.UsedBytes, PeakBytes: of.PeakBytes, ContextBytes: of.ContextBytes,
			Denials: denials(of.DenialsBy), Overruns: l.overruns(v.Name, of)}
		if level != share.Booked { // nothing of ours is in its programs
			used := l.cardTime(core.Slot{Share: v.Name, Number: number}, of)
			slot.CardTimeNs, slot.WaitNs, slot.Launches = &used, &of.WaitNs, &of.Launches
		}
		if k := l.leasedCard(of.CardUUID); k != nil {
			slot.Gated = k.arbiter.Gated(v.Name)
			if since, waits := k.arbiter.Waiting(v.Name); waits {
				slot.WaitingNs = new(uint64(max(l.clock()-since, 0)))
			}
		}
		s.Cards = append(s.Cards, slot)
	}
	for _, c := range l.core.ClientsOf(v.Name) {
		p := api.SnapshotProcess{PID: c.PID, UID: c.UID, Command: c.Name, State: string(c.State), Since: c.Since, Denials: c.Denials, Enforcement: l.levelOf(c)}
		for number, b := range c.Balances {
			of := api.ProcessSlot{UsedBytes: b.UsedBytes, PeakBytes: b.PeakBytes, ContextBytes: b.ContextBytes, DriverBytes: b.DriverBytes,
				CardTimeNs: b.CardTimeNs, WaitNs: b.WaitNs, Launches: b.Launches}
			if b.KernelNs > 0 {
				of.KernelNs = &b.KernelNs
				if longest := &s.Cards[number].KernelNs; *longest == nil || **longest < b.KernelNs {
					*longest = of.KernelNs
				}
			}
			if !b.StuckSince.IsZero() {
				of.StuckNs = new(uint64(max(l.now.Sub(b.StuckSince), 0)))
			}
			p.Cards = append(p.Cards, of)
		}
		s.Processes = append(s.Processes, p)
	}
	return s
}

// snapshotCards is the loop's part of the cards.
func (l *loop) snapshotCards(read *api.Snapshot, r *readings) {
	silent := l.unresponsive()
	for i, c := range l.core.Cards() {
		told := l.cards[i] // the core has them in the same order
		card := api.SnapshotCard{
			UUID: c.UUID, Name: c.Name, PCIAddress: c.PCIAddress, DriverVersion: told.DriverVersion, Vendor: "nvidia", Simulated: told.Simulated, Managed: true,
			Answers: !slices.Contains(silent, c.UUID) && c.Condition != core.ConditionLost, Health: string(c.Condition), HealthDetail: c.Detail,
			MemoryBytes: c.UsableBytes, UsedBytes: c.DriverUsedBytes, BookedBytes: c.BookedBytes, FreeToBookBytes: c.FreeToBookBytes,
			UnledgeredBytes: c.UnledgeredBytes, DriftBytes: c.DriftBytes, CoresBooked: c.CoresBooked, Shares: c.Shares, Time: l.timeOf(c.UUID),
			XIDs: []api.XIDCount{}, Unaccounted: []api.CardUnaccounted{}, Faults: map[string]uint64{}, Cordon: apiCordon(c.Cordon),
		}
		if c.LastXID > 0 || len(c.XIDs) == 0 {
			card.LastXID = &c.LastXID
		}
		for _, xid := range slices.Sorted(maps.Keys(c.XIDs)) {
			card.XIDs = append(card.XIDs, api.XIDCount{XID: xid, Count: c.XIDs[xid]})
		}
		for _, class := range health.Classes() {
			card.Faults[string(class)] = c.Faults[string(class)]
		}
		if i, ok := r.last(c.UUID); ok {
			card.SampledAt, card.Instruments = &i.at, apiInstruments(i.read)
		}
		for _, s := range l.core.FoundUnaccounted(c.UUID) {
			card.Unaccounted = append(card.Unaccounted, api.CardUnaccounted{PID: s.PID, Bytes: s.Bytes})
		}
		read.Cards = append(read.Cards, card)
	}
	for _, s := range read.Shares {
		read.Agent.Clients += s.Clients
	}
}

func known[T any](f gpu.Fact[T]) *T {
	if !f.Known {
		return nil
	}
	return &f.Value
}

func apiInstruments(t gpu.Telemetry) *api.Instruments {
	i := &api.Instruments{
		BusyPercent: known(t.BusyPercent), MemoryBusyPercent: known(t.MemoryBusyPercent), EncoderPercent: known(t.EncoderPercent), DecoderPercent: known(t.DecoderPercent),
		PCIeReplays: known(t.PCIeReplays), PowerWatts: known(t.PowerWatts), PowerLimitWatts: known(t.PowerLimitWatts), EnergyJoules: known(t.EnergyJoules),
		TemperatureC: known(t.TemperatureC), MemoryTemperatureC: known(t.MemoryTemperatureC), SMClockMHz: known(t.SMClockMHz),
		MemoryClockMHz: known(t.MemoryClockMHz), CorrectedErrors: known(t.CorrectedErrors), UncorrectedErrors: known(t.UncorrectedErrors),
		Devices: []api.Device{},
	}
	if t.Slowed.Known {
		slowed := api.Slowed(t.Slowed.Value)
		i.Slowed = &slowed
	}
	if t.Rows.Known {
		rows := api.Rows(t.Rows.Value)
		i.Rows = &rows
	}
	for _, d := range t.Devices {
		i.Devices = append(i.Devices, api.Device{ID: d.ID, Profile: d.Profile, Instance: d.Instance, MemoryBytes: d.TotalBytes, UsedBytes: d.UsedBytes})
	}
	return i
}

// nameUnaccounted says who a process on no ledger is, as far as the kernel tells.
func (d *driverWatch) nameUnaccounted(s *api.CardUnaccounted) {
	s.Command = d.table.Name(s.PID)
	if uid, err := d.table.Owner(s.PID); err == nil {
		s.UID = &uid
	}
	s.Container = d.table.Group(s.PID)
}

// Bounds of a machine's own list of users.
const (
	maxUsers      = 1 << 16
	maxUsersBytes = 16 << 20
)

// payers says who pays for a share: its tenant, else its owner, by number where a machine's own
// list of users does not have him: a directory service may hang.
func payers(path string) func(tenant string, owner int) string {
	names := map[string]string{}
	for _, fields := range fieldsOfLines(path, maxUsersBytes, maxUsers) {
		if len(fields) == 4 && names[fields[2]] == "" {
			names[fields[2]] = fields[0]
		}
	}
	return func(tenant string, owner int) string {
		uid := strconv.Itoa(owner)
		return cmp.Or(tenant, names[uid], uid)
	}
}

func (h handlers) getSnapshot(w http.ResponseWriter, r *http.Request, _ asker) error {
	first, err := h.samples.snapshot(r.Context())
	if err != nil {
		if errors.Is(err, errStopped) {
			return errLeaving
		}
		return err
	}
	if r.URL.Query().Get("follow") == "" {
		write(w, http.StatusOK, first)
		return nil
	}
	stream := http.NewResponseController(w)
	if !patient(stream) {
		return nil
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	encoder := json.NewEncoder(w)
	for snapshot := first; ; {
		if stream.SetWriteDeadline(time.Now().Add(streamDeadline)) != nil || encoder.Encode(snapshot) != nil || stream.Flush() != nil {
			return nil
		}
		for sent := snapshot; snapshot == sent; {
			last, more, _ := h.samples.look()
			if snapshot = last; snapshot != sent {
				break
			}
			select {
			case <-more:
			case <-r.Context().Done():
				return nil
			case <-h.ending:
				return nil
			}
		}
	}
}
