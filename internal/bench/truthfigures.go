// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/simgpu"
)

// Figures that are compared.
const (
	memoryUsed    = "memoryUsedBytes"
	memoryPeak    = "memoryPeakBytes"
	memoryContext = "memoryContextBytes"
	memoryLimit   = "memoryLimitBytes"
	clientCount   = "clients"
	denialCount   = "denials"
	cardSeconds   = "cardSeconds"
	launchCount   = "launches"

	cardUsed         = "cardMemoryUsedBytes"
	cardUnledgered   = "cardUnledgeredBytes"
	cardShareSeconds = "cardShareSeconds"
	cardXIDs         = "cardXids"
	cardCorrected    = "cardCorrectedErrors"
)

// figure is one of a share, or of a card by its number.
type figure struct{ name, of string }

// view is what one place shows, in bytes, seconds or numbers.
type view map[figure]float64

func cardName(number int) string { return "GPU " + strconv.Itoa(number) }

// snapshotView words a snapshot.
func (t *truth) snapshotView(s api.Snapshot) view {
	v := view{}
	for _, share := range s.Shares {
		for _, slot := range share.Cards {
			denied := uint64(0)
			for _, n := range slot.Denials {
				denied += n
			}
			v[figure{memoryUsed, share.Name}] = float64(slot.UsedBytes)
			v[figure{memoryPeak, share.Name}] = float64(slot.PeakBytes)
			v[figure{memoryContext, share.Name}] = float64(slot.ContextBytes)
			v[figure{memoryLimit, share.Name}] = float64(slot.LimitBytes)
			v[figure{clientCount, share.Name}] = float64(share.Clients)
			v[figure{denialCount, share.Name}] = float64(denied)
			if slot.CardTimeNs != nil && slot.Launches != nil {
				v[figure{cardSeconds, share.Name}] = float64(*slot.CardTimeNs) / 1e9
				v[figure{launchCount, share.Name}] = float64(*slot.Launches)
			}
		}
	}
	for _, c := range s.Cards {
		of := cardName(slices.Index(t.cards, c.UUID))
		v[figure{cardUsed, of}] = float64(c.UsedBytes)
		v[figure{cardUnledgered, of}] = float64(c.UnledgeredBytes)
		v[figure{cardShareSeconds, of}] = float64(c.ShareTimeNs) / 1e9
		v[figure{cardXIDs, of}] = 0
		for _, x := range c.XIDs {
			v[figure{cardXIDs, of}] += float64(x.Count)
		}
		if i := c.Instruments; i != nil && i.CorrectedErrors != nil {
			v[figure{cardCorrected, of}] = float64(*i.CorrectedErrors)
		}
	}
	return v
}

// metricNames are figures by their metrics.
var metricNames = map[string]string{
	"divvy_share_memory_used_bytes": memoryUsed, "divvy_share_memory_peak_bytes": memoryPeak, "divvy_share_memory_context_bytes": memoryContext,
	"divvy_share_memory_limit_bytes": memoryLimit, "divvy_share_clients": clientCount, "divvy_share_denials_total": denialCount,
	"divvy_share_card_seconds_total": cardSeconds, "divvy_share_launches_total": launchCount,
	"divvy_card_memory_used_bytes": cardUsed, "divvy_card_memory_unledgered_bytes": cardUnledgered, "divvy_card_share_seconds_total": cardShareSeconds,
	"divvy_card_xid_errors_total": cardXIDs, "divvy_card_ecc_errors_total": cardCorrected,
}

// metricsView words metrics, and returns of when they are.
func (t *truth) metricsView(text string) (v view, at float64, err error) {
	v = view{}
	for _, c := range t.cards {
		v[figure{cardXIDs, cardName(slices.Index(t.cards, c))}] = 0 // no series: none was seen
	}
	for line := range strings.Lines(text) {
		name, labels, value, err := parseSeries(strings.TrimSpace(line))
		if err != nil {
			return nil, 0, err
		}
		if name == "divvy_snapshot_timestamp_seconds" {
			at = value
		}
		known, ok := metricNames[name]
		if !ok || known == cardCorrected && labels["kind"] != "corrected" {
			continue
		}
		of, shared := labels["share"]
		if !shared {
			of = cardName(slices.Index(t.cards, labels["UUID"]))
		}
		v[figure{known, of}] += value // of several series: denials and XIDs
	}
	return v, at, nil
}

// parseSeries takes a line of metrics apart. Comments have no name.
func parseSeries(line string) (name string, labels map[string]string, value float64, err error) {
	if line == "" || line[0] == '#' {
		return "", nil, 0, nil
	}
	bad := fmt.Errorf("%q is no line of metrics", line)
	name, rest := line, ""
	labels = map[string]string{}
	if at := strings.IndexAny(line, "{ "); at >= 0 {
		name, rest = line[:at], line[at:]
	}
	if strings.HasPrefix(rest, "{") {
		for rest = rest[1:]; !strings.HasPrefix(rest, "}"); rest = strings.TrimPrefix(rest, ",") {
			key, quoted, ok := strings.Cut(rest, "=")
			text, err := strconv.QuotedPrefix(quoted)
			if !ok || err != nil {
				return "", nil, 0, bad
			}
			if labels[key], err = strconv.Unquote(text); err != nil {
				return "", nil, 0, bad
			}
			rest = quoted[len(text):]
		}
		rest = rest[1:]
	}
	fields := strings.Fields(rest)
	if name == "" || len(fields) == 0 {
		return "", nil, 0, bad
	}
	if value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return "", nil, 0, bad
	}
	return name, labels, value, nil
}

// listView words the list of shares, and returns of when each one's card time is.
func listView(list api.Shares) (v view, at map[string]time.Duration) {
	v, at = view{}, map[string]time.Duration{}
	for _, s := range list.Shares {
		at[s.Name] = time.Duration(s.CardTimeAtNs)
		v[figure{memoryUsed, s.Name}] = float64(s.UsedBytes)
		v[figure{memoryPeak, s.Name}] = float64(s.PeakBytes)
		v[figure{memoryContext, s.Name}] = float64(s.ContextBytes)
		v[figure{memoryLimit, s.Name}] = float64(s.LimitBytes)
		v[figure{clientCount, s.Name}] = float64(s.Clients)
		v[figure{denialCount, s.Name}] = float64(s.Denials)
		v[figure{cardSeconds, s.Name}] = float64(s.CardTimeNs) / 1e9
		v[figure{launchCount, s.Name}] = float64(s.Launches)
	}
	return v, at
}

// oneSnapshot reads snapshot and metrics that are of one moment after the call.
func (t *truth) oneSnapshot(ctx context.Context) (s api.Snapshot, shown, metrics view, err error) {
	since, err := now()
	if err != nil {
		return s, nil, nil, err
	}
	for range truthMeets {
		if s, err = t.client().Snapshot(ctx); err != nil {
			return s, nil, nil, err
		}
		body, _, err := t.client().Metrics(ctx, "text/plain")
		if err != nil {
			return s, nil, nil, err
		}
		text, err := io.ReadAll(body)
		if err = errors.Join(err, body.Close()); err != nil {
			return s, nil, nil, fmt.Errorf("read metrics: %w", err)
		}
		v, at, err := t.metricsView(string(text))
		if err != nil {
			return s, nil, nil, err
		}
		if at == float64(s.Time.UnixNano())/1e9 && s.MonotonicNs > uint64(since) {
			return s, t.snapshotView(s), v, nil
		}
		if err := pause(ctx, truthMeet); err != nil {
			return s, nil, nil, err
		}
	}
	return s, nil, nil, fmt.Errorf("snapshot and metrics were never of one moment in %d tries", truthMeets)
}

// living is what live programs of a share have, by the simulator's account.
type living struct {
	clients     int
	bytes, peak uint64
	contexts    uint64
}

func (t *truth) live(ctx context.Context) (map[string]living, error) {
	alive, err := t.truth.Processes(ctx)
	if err != nil {
		return nil, err
	}
	dead, err := t.truth.Dead(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]living{}
	for _, p := range append(alive, dead...) {
		for _, l := range t.loads {
			if p.Card != l.card || !slices.Contains(l.pids, p.PID) {
				continue
			}
			of := all[l.name]
			if !p.Dead {
				of.clients++
				of.bytes += p.Bytes
				of.contexts += uint64(p.Contexts)
			}
			of.peak = max(of.peak, p.PeakBytes)
			all[l.name] = of
		}
	}
	return all, nil
}

// launchedBy is how many launches of each share have ended, and were queued besides.
func (t *truth) launchedBy(ctx context.Context) (ended, queued map[string]float64, err error) {
	states, err := t.truth.CardTime(ctx)
	if err != nil {
		return nil, nil, err
	}
	ended, queued = map[string]float64{}, map[string]float64{}
	for _, state := range states {
		for _, l := range t.loads {
			if slices.Contains(l.pids, state.PID) && state.Card == l.card {
				ended[l.name] += float64(state.Kernels) + l.captured()
				if !state.Dead {
					queued[l.name] += float64(state.Queued)
				}
			}
		}
	}
	return ended, queued, nil
}

// captured is how many launches burn has recorded in a graph that it does not launch.
func (l *truthLoad) captured() float64 {
	return float64(min(graphNodes, max(graphMost/l.kernel, 1)))
}

// busyAt is what each share of a card had had of it at a moment that has passed.
func (t *truth) busyAt(ctx context.Context, card int, at time.Duration) (map[string]time.Duration, error) {
	states, err := t.truth.CardTime(ctx)
	if err != nil {
		return nil, err
	}
	until := at
	owner, had := map[uint64]string{}, map[string]time.Duration{}
	for _, state := range states {
		for _, l := range t.loads {
			if slices.Contains(l.pids, state.PID) && state.Card == card && l.card == card {
				owner[uint64(state.Process)] = l.name
				had[l.name] += time.Duration(state.BusyNS)
			}
		}
		until = max(until, time.Duration(state.AtNS))
	}
	runs, _, err := t.truth.Runs(ctx, card, int64(at))
	if err != nil {
		return nil, fmt.Errorf("ask who had the GPU: %w", err)
	}
	of := map[string][]simgpu.Run{}
	for _, r := range runs {
		if name, ok := owner[uint64(r.Process)]; ok {
			of[name] = append(of[name], r)
		}
	}
	for name := range had {
		had[name] -= between(of[name], at, until)
	}
	return had, nil
}

// expected is what a figure is in truth, and how far what is said may be from it.
type expected struct {
	value       float64
	exact       bool
	slack       float64 // where it is not exact: so much, or a hundredth
	under, over float64 // besides
}

// judge compares what was said.
func judge(name, of string, e expected, said *float64) TruthRow {
	row := TruthRow{Figure: name, Of: of, Said: said, True: e.value, Least: e.value - e.under, Most: e.value + e.over}
	if !e.exact {
		slack := max(truthPart*math.Abs(e.value), e.slack)
		row.Least, row.Most = row.Least-slack, row.Most+slack
	}
	row.Least = max(row.Least, 0)
	row.Missed = said == nil || *said < row.Least || *said > row.Most
	if said != nil && (e.value != 0 || *said == 0) {
		off := 0.0
		if e.value != 0 {
			off = 100 * (*said - e.value) / e.value
		}
		row.ErrorPercent = &off
	}
	return row
}

// glance is what is shown, and what is true, of a time in which no program came or went.
type glance struct {
	before, beforeQueued, after, afterQueued map[string]float64 // launches
	snapshot                                 api.Snapshot
	shown, metrics                           view
	list                                     api.Shares
	live                                     map[string]living
	cards                                    []simgpu.CardState
}

// glance takes another look when a program has ended meanwhile: on a busy host the time for
// looking may have come late.
func (t *truth) glance(ctx context.Context) (g glance, err error) {
	for range truthMeets {
		lived, err := t.live(ctx)
		if err != nil {
			return g, err
		}
		if g, err = t.glanceOnce(ctx); err != nil || maps.Equal(lived, g.live) {
			return g, err
		}
		if err := errors.Join(t.settled(ctx), pause(ctx, truthZero)); err != nil {
			return g, err
		}
	}
	return g, fmt.Errorf("programs came or went in each of %d looks", truthMeets)
}

func (t *truth) glanceOnce(ctx context.Context) (g glance, err error) {
	if g.before, g.beforeQueued, err = t.launchedBy(ctx); err != nil {
		return g, err
	}
	if g.snapshot, g.shown, g.metrics, err = t.oneSnapshot(ctx); err != nil {
		return g, err
	}
	if g.list, err = t.client().Shares(ctx); err != nil {
		return g, err
	}
	if g.after, g.afterQueued, err = t.launchedBy(ctx); err != nil {
		return g, err
	}
	if g.cards, err = t.truth.Cards(ctx); err != nil {
		return g, err
	}
	g.live, err = t.live(ctx)
	return g, err
}

// look compares all that is shown with all that is true at one moment.
func (t *truth) look(ctx context.Context, when string) error {
	g, err := t.glance(ctx)
	if err != nil {
		return err
	}
	shown, metrics := g.shown, g.metrics
	listed, listedAt := listView(g.list)
	for _, key := range slices.SortedFunc(maps.Keys(shown), compareFigures) {
		if other, ok := metrics[key]; !ok || other != shown[key] {
			t.report.Differ = append(t.report.Differ, fmt.Sprintf("%s: %s of %s: snapshot %v, metrics %v", when, key.name, key.of, shown[key], other))
		}
	}
	views := []struct {
		name string
		of   view
		at   func(share string) time.Duration
	}{
		{"snapshot", shown, func(string) time.Duration { return time.Duration(g.snapshot.MonotonicNs) }},
		{"metrics", metrics, func(string) time.Duration { return time.Duration(g.snapshot.MonotonicNs) }},
		{"share list", listed, func(share string) time.Duration { return listedAt[share] }},
	}
	t.said = map[figure]expected{}
	for _, v := range views {
		row := func(name, of string, e expected) {
			var said *float64
			if value, ok := v.of[figure{name, of}]; ok {
				said = &value
			}
			if v.name == "snapshot" {
				t.said[figure{name, of}] = e
			}
			r := judge(name, of, e, said)
			r.When, r.Shown = when, v.name
			t.report.Rows = append(t.report.Rows, r)
		}
		perCard := map[int]time.Duration{}
		for _, l := range t.loads {
			of := g.live[l.name]
			row(memoryUsed, l.name, expected{value: float64(of.bytes), exact: true})
			row(memoryPeak, l.name, expected{value: float64(of.peak), exact: true})
			row(memoryContext, l.name, expected{value: float64(of.contexts * t.context), exact: true})
			row(memoryLimit, l.name, expected{value: 1 << 30, exact: true})
			row(clientCount, l.name, expected{value: float64(of.clients), exact: true})
			row(denialCount, l.name, expected{value: float64(l.denied), exact: true})
			had, err := t.busyAt(ctx, l.card, v.at(l.name))
			if err != nil {
				return err
			}
			seconds := expected{value: had[l.name].Seconds(), slack: max(l.kernel, truthUnseen).Seconds()}
			if l.launches {
				seconds.over += t.away.Seconds() // what others ran meanwhile is not told apart
			}
			if l.card == 0 && l.launches && !t.start.IsZero() {
				// late while it runs, and estimated of the last moment of each program
				part := had[l.name].Seconds() / time.Since(t.start).Seconds()
				late := time.Duration(min(of.clients, 1)+l.deaths)*truthLate + t.away
				seconds.under += part * late.Seconds()
				seconds.over += part * (time.Duration(l.deaths) * truthLate).Seconds()
			}
			launched := g.before[l.name] + g.beforeQueued[l.name]
			count := expected{value: launched, slack: 1, over: l.ahead + g.after[l.name] + g.afterQueued[l.name] - launched}
			if l.kernel > 0 {
				count.slack = max(1, float64(truthUnseen/l.kernel))
			}
			if l.unsaved {
				seconds.under += truthUnsaved.Seconds()
				count.under += truthUnsaved.Seconds() / l.kernel.Seconds()
			}
			row(cardSeconds, l.name, seconds)
			row(launchCount, l.name, count)
			perCard[l.card] += had[l.name]
		}
		if v.name == "share list" {
			continue
		}
		for number, c := range g.cards[:TruthCards] {
			of := cardName(number)
			row(cardUsed, of, expected{value: float64(c.UsedBytes), exact: true})
			unaccounted, xids := uint64(0), 0.0
			seconds := expected{value: perCard[number].Seconds(), slack: truthUnseen.Seconds()}
			if number == 0 {
				seconds.under += (truthLate + t.away).Seconds() // late, and estimated of the last moments
				seconds.over += truthLate.Seconds()
			}
			seconds.over += t.away.Seconds()
			if number == t.load(loadMemory).card && t.bench.unaccounted != nil {
				unaccounted, xids = truthUnaccounted+t.context, t.xids
			}
			if l := t.load(loadAway); l.card == number && l.unsaved {
				seconds.under += truthUnsaved.Seconds()
			}
			for _, l := range t.loads {
				if l.card == number {
					seconds.slack += l.kernel.Seconds()
				}
			}
			row(cardUnledgered, of, expected{value: float64(unaccounted), exact: true})
			row(cardXIDs, of, expected{value: xids, exact: true})
			row(cardCorrected, of, expected{value: xids, exact: true}) // one for each
			row(cardShareSeconds, of, seconds)
		}
	}
	return nil
}

// lookAtUsage compares what usage says that shares used, when it has been written with all of it.
func (t *truth) lookAtUsage(ctx context.Context) error {
	since := time.Now()
	ctx, cancel := context.WithTimeout(ctx, truthWritten)
	defer cancel()
	for {
		s, err := t.client().Snapshot(ctx)
		if err != nil {
			return err
		}
		if at := s.Agent.UsageWritten; at != nil && at.After(since) {
			break
		}
		if err := pause(ctx, truthMeet); err != nil {
			return fmt.Errorf("wait until usage is written: %w", err)
		}
	}
	hours, err := t.client().Usage(ctx, t.start.Add(-time.Hour), time.Now().Add(time.Hour))
	if err != nil {
		return err
	}
	used := map[string]float64{}
	for _, h := range hours.Rows {
		used[h.Share] += float64(h.CardTimeNs) / 1e9
	}
	for _, l := range t.loads {
		var said *float64
		if seconds, ok := used[l.name]; ok {
			said = &seconds
		}
		row := judge(cardSeconds, l.name, t.said[figure{cardSeconds, l.name}], said)
		row.When, row.Shown = "all is written", "usage"
		t.report.Rows = append(t.report.Rows, row)
	}
	return nil
}

// keptFigures are figures by their names in the history, and what makes one of theirs one of ours.
var keptFigures = map[string]struct {
	of    string
	scale float64
}{
	"card-time": {cardSeconds, 1e-9}, "launches": {launchCount, 1}, "denials": {denialCount, 1}, "memory-limit": {memoryLimit, 1},
}

// lookAtHistory compares what the history has of each share, when it is written until then.
func (t *truth) lookAtHistory(ctx context.Context, until time.Time) error {
	for _, name := range slices.Sorted(maps.Keys(keptFigures)) {
		figures := keptFigures[name]
		for _, l := range t.loads {
			said, err := t.kept(ctx, name, l.name, until)
			if err != nil {
				return fmt.Errorf("history of %s of %s: %w", name, l.name, err)
			}
			if said != nil {
				*said *= figures.scale
			}
			row := judge(figures.of, l.name, t.said[figure{figures.of, l.name}], said)
			row.When, row.Shown = "all is written", "history"
			t.report.Rows = append(t.report.Rows, row)
		}
	}
	return nil
}

// kept is what a counter of a share has come to, or what a gauge was at last, when the history has it
// until a time; nil: it has none.
func (t *truth) kept(ctx context.Context, name, share string, until time.Time) (said *float64, err error) {
	asked := url.Values{"figure": {name}, "share": {share}, "step": {"10"},
		"from": {t.start.Add(-time.Hour).UTC().Format(time.RFC3339)}, "to": {until.Add(time.Hour).UTC().Format(time.RFC3339)}}
	ctx, cancel := context.WithTimeout(ctx, truthWritten)
	defer cancel()
	for {
		h, err := t.client().History(ctx, asked)
		if err != nil {
			return nil, err
		}
		if len(h.Series) == 1 && len(h.Series[0].Points) > 0 {
			points := h.Series[0].Points
			if last := points[len(points)-1]; !last.Time.Add(time.Duration(h.StepSeconds) * time.Second).Before(until) {
				return sumOf(points), nil
			}
		}
		if err := pause(ctx, truthMeet); err != nil {
			return nil, fmt.Errorf("wait until the history is written: %w", err)
		}
	}
}

func sumOf(points []api.HistoryPoint) *float64 {
	var sum float64
	for _, p := range points {
		switch {
		case p.Sum != nil:
			sum += float64(*p.Sum)
		case p.Mean != nil:
			sum = *p.Mean
		}
	}
	return &sum
}

func compareFigures(a, b figure) int { return strings.Compare(a.of+a.name, b.of+b.name) }
