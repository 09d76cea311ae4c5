// SPDX-License-Identifier: Apache-2.0

package core

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/scenario"
	terms "github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

func TestScenarios(t *testing.T) {
	scenario.Play(t, func(t *testing.T, out *strings.Builder) func(words []string) {
		w := &world{t: t, out: out, fakePages: newFakePages(), now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		return func(words []string) {
			w.do(words)
			w.drain()
			if w.core == nil {
				return
			}
			if err := w.core.check(); err != nil {
				w.printf("BROKEN: %v", err)
			}
		}
	})
}

// world is one machine in a scenario.
type world struct {
	t *testing.T
	*fakePages
	now    time.Time
	asked  time.Time // the driver, which has not answered; zero: it has not been
	cards  []Card
	out    *strings.Builder
	share  map[string]string // of each process
	places int               // for clients; 0: the few that most scenarios have
}

func (w *world) printf(format string, args ...any) { fmt.Fprintf(w.out, format+"\n", args...) }

func (w *world) fail(err error) {
	var f *Failure
	switch {
	case err == nil:
	case errors.As(err, &f) && f.Hint != "":
		w.printf("refused: %s [%s]", f.Message, f.Hint)
	default:
		w.printf("refused: %v", err)
	}
}

func (w *world) bytes(text string) uint64 {
	n, err := size.Parse(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		w.t.Fatal(err)
	}
	return n
}

// on is the slot that a command names with its last words, or the first.
func (w *world) on(f []string) int {
	if len(f) > 4 && f[3] == "on" {
		return w.number(f[4])
	}
	return 0
}

func (w *world) process(pid string) (ClientID, Process) {
	n, err := strconv.Atoi(pid)
	if err != nil {
		w.t.Fatalf("process %q: %v", pid, err)
	}
	return ClientID(n), Process{PID: n, UID: 1000, Start: uint64(n) * 7, Command: "program --secret", Name: "program"}
}

func (w *world) start() {
	config := Config{MaxShares: 20, MaxClients: 10, MaxShareClients: 4, RestartGrace: 2 * time.Second,
		EphemeralGrace: 5 * time.Second, ShrinkDeadline: time.Second, AgentUID: 0}
	if w.places > 0 {
		config.MaxClients, config.MaxShareClients = w.places, w.places
	}
	w.core = New(config, w.cards, w.fakePages)
}

func (w *world) do(f []string) {
	if w.share == nil {
		w.share = map[string]string{}
	}
	if f[0] == "card" {
		k := Card{UUID: f[1], Name: f[2], PCIAddress: f[3], UsableBytes: w.bytes(f[4]), ContextBytes: 64 << 20, Island: len(w.cards)}
		if len(f) > 6 { // island NUMBER
			k.Island = w.number(f[6])
		}
		w.cards = append(w.cards, k)
		w.start()
		return
	}
	arg := func(i int) string {
		if i >= len(f) {
			w.t.Fatalf("%v: too short", f)
		}
		return f[i]
	}
	switch f[0] {
	case "create", "ensure":
		spec, uid := Spec{Name: strings.Trim(arg(1), `"`)}, 1000
		for i := 2; i < len(f); i++ {
			switch f[i] {
			case "mem":
				i++
				spec.MemoryBytes = w.bytes(f[i])
			case "cores":
				i++
				spec.CoresPercent, _ = strconv.Atoi(f[i])
			case "policy":
				i++
				spec.Policy = terms.Policy(f[i])
			case "gpu":
				i++
				spec.GPU = f[i]
			case "gpus":
				i++
				spec.GPUs = w.number(f[i])
			case "among":
				i++
				spec.Among = strings.Split(f[i], ",")
			case "enforce":
				i++
				spec.Enforce = terms.Enforcement(f[i])
			case "label":
				i++
				spec.Labels, _ = terms.ParseLabels(strings.Split(f[i], ","))
			case "exclusive":
				spec.Exclusive = true
			case "ephemeral":
				spec.Ephemeral = true
			case "open":
				spec.Open = true
			case "for":
				i++
				joins := w.number(f[i])
				spec.JoinUID = &joins
			case "by":
				i++
				uid = w.number(f[i])
			default:
				w.t.Fatalf("%v: %q", f, f[i])
			}
		}
		if f[0] == "create" {
			_, err := w.core.CreateShare(w.now, spec, uid)
			w.fail(err)
			return
		}
		view, made, err := w.core.EnsureShare(w.now, spec, uid)
		var failure *Failure
		switch {
		case errors.As(err, &failure):
			w.fail(err)
			w.printf("  kind %s, differs %v, missing %d%% and %d", failure.Kind, failure.Differs, failure.Missing.CoresPercent, failure.Missing.MemoryBytes)
		case made:
			w.printf("made %s", view.Name)
		default:
			w.printf("there is %s %v", view.Name, view.Labels)
		}
	case "change":
		var change Change
		n := w.bytes(arg(3))
		cores := 0
		switch arg(2) {
		case "mem":
			change.MemoryBytes = &n
		case "cores":
			cores, _ = strconv.Atoi(arg(3))
			change.CoresPercent = &cores
		}
		uid := 1000
		if len(f) > 5 {
			uid, _ = strconv.Atoi(f[5])
		}
		_, err := w.core.ChangeShare(w.now, arg(1), change, uid)
		w.fail(err)
	case "delete":
		w.fail(w.core.DeleteShare(w.now, arg(1), len(f) > 2, 1000))
	case "hold":
		uid := 1000
		if len(f) > 3 {
			uid = w.number(f[3])
		}
		w.fail(w.core.Hold(arg(1), uid))
	case "unhold":
		w.core.Release(w.now, arg(1))
	case "places": // places N: a new core with so many for clients, in a share and in all
		w.places = w.number(arg(1))
		w.start()
	case "attach":
		id, process := w.process(arg(2))
		w.share[arg(2)] = arg(1)
		if len(f) > 4 {
			process.UID = w.number(f[4])
		}
		w.fail(w.attach(w.now, id, arg(1), process))
	case "return":
		id, process := w.process(arg(1))
		w.fail(w.comeBack(w.now, id, w.share[arg(1)], process))
	case "claim": // claim SHARE PID TOKEN BYTES: a process with a token of its own making
		_, process := w.process(arg(2))
		id, _ := w.process(arg(3))
		w.pages[id] = &fakePage{}
		w.fail(w.core.Reattach(w.now, id, arg(1), process, []uint64{w.bytes(arg(4))}))
	case "steal": // steal PID TOKEN: another process with a foreign token
		_, process := w.process(arg(1))
		id, _ := w.process(arg(2))
		w.fail(w.core.CheckToken(w.now, id, w.share[arg(2)], process))
	case "alloc": // alloc PID BYTES [on SLOT]
		id, _ := w.process(arg(1))
		answer, way := w.allocOn(w.now, id, w.on(f), w.bytes(arg(2)))
		w.answer(answer, way)
	case "try": // alloc of a process that makes room and asks again when it is denied
		id, _ := w.process(arg(1))
		w.answer(w.core.Charge(w.now, id, Charge{Bytes: w.bytes(arg(2))}), "asked")
	case "free":
		id, _ := w.process(arg(1))
		w.freeOn(id, w.on(f), w.bytes(arg(2)))
	case "close":
		id, _ := w.process(arg(1))
		w.core.Detach(w.now, id)
	case "exit":
		id, _ := w.process(arg(1))
		w.core.Died(w.now, id)
	case "smash":
		id, _ := w.process(arg(1))
		w.pages[id].smashed = true
	case "report":
		id, _ := w.process(arg(1))
		reports := map[string]Report{"unclassified": ReportUnclassified, "driver-oom": ReportDriverOOM}
		w.core.Report(w.now, id, 0, reports[arg(2)], w.bytes(arg(3)), arg(4))
	case "held":
		id, _ := w.process(arg(1))
		var holders []int
		for _, h := range f[2:] {
			n, _ := strconv.Atoi(h)
			holders = append(holders, n)
		}
		w.core.Held(w.now, id, holders)
	case "ask": // the driver; the next "driver" is its answer
		w.asked = w.now
	case "driver": // driver CARD PID=BYTES[@UID[/SHARE]]...: what the driver shows now, or when it was asked
		account := Account{At: w.now, Owners: map[int]Owner{}}
		if !w.asked.IsZero() {
			account.At, w.asked = w.asked, time.Time{}
		}
		for _, p := range f[2:] {
			pid, bytes, _ := strings.Cut(p, "=")
			bytes, owner, owned := strings.Cut(bytes, "@")
			h := Holding{}
			h.PID, _ = strconv.Atoi(pid)
			account.Owners[h.PID] = Owner{UID: -1}
			if uid, share, _ := strings.Cut(owner, "/"); uid == "?" {
				delete(account.Owners, h.PID)
			} else if owned {
				account.Owners[h.PID] = Owner{UID: w.number(uid), Name: "bare", Share: share}
			}
			if bytes != "?" {
				h.Known, h.Bytes = true, w.bytes(bytes)
			}
			account.UsedBytes += h.Bytes
			account.Processes = append(account.Processes, h)
		}
		w.core.Reconcile(w.now, arg(1), account)
	case "after":
		d, err := time.ParseDuration(arg(1))
		if err != nil {
			w.t.Fatal(err)
		}
		end := w.now.Add(d)
		for {
			next := w.core.NextWake()
			if next.IsZero() || next.After(end) {
				break
			}
			if next.After(w.now) {
				w.now = next
			}
			w.core.Tick(w.now)
			w.drain()
		}
		w.now = end
	case "restart": // restart [forgetful], restart without CARD
		shares, clients := w.core.Saved()
		cards := w.core.SavedCards()
		if len(f) > 1 && f[1] == "forgetful" {
			clients = nil
		}
		all := w.cards
		if len(f) > 2 && f[1] == "without" {
			w.cards = slices.DeleteFunc(slices.Clone(all), func(k Card) bool { return k.UUID == f[2] })
		}
		w.start()
		w.cards = all
		w.core.RecoverCards(cards)
		w.core.Recover(w.now, shares, clients)
	case "shares":
		for _, s := range w.core.Shares() {
			w.printf("%-8s %s %s, %s of %s used, peak %s, %d clients, %d denials", s.Name, s.CardUUID, s.State,
				size.Short(s.UsedBytes), size.Short(s.LimitBytes), size.Short(s.PeakBytes), s.Clients, s.Denials)
			for i, t := range s.Slots {
				if len(s.Slots) > 1 {
					w.printf("  %d: %s, %s of %s used, peak %s, %d denials", i, t.CardUUID, size.Short(t.UsedBytes), size.Short(t.LimitBytes), size.Short(t.PeakBytes), t.Denials)
				}
			}
		}
	case "clients":
		for _, cl := range w.core.Clients() {
			driver := ""
			if cl.DriverBytes != nil {
				driver = ", driver says " + size.Short(*cl.DriverBytes)
			}
			w.printf("%d in %s %s, %s used of %s granted%s", cl.PID, cl.Share, cl.State, size.Short(cl.UsedBytes), size.Short(cl.GrantedBytes), driver)
			for i, b := range cl.Balances {
				if len(cl.Balances) > 1 {
					w.printf("  %d: %s used of %s granted", i, size.Short(b.UsedBytes), size.Short(b.GrantedBytes))
				}
			}
		}
	case "cards":
		for _, k := range w.core.Cards() {
			w.printf("%s %s: %s booked, %s free to book, %d%% cores booked, %s unledgered, drift %d", k.UUID, size.Short(k.UsableBytes),
				size.Short(k.BookedBytes), size.Short(k.FreeToBookBytes), k.CoresBooked, size.Short(k.UnledgeredBytes), k.DriftBytes)
		}
	case "health": // health CARD CONDITION WHY...
		w.core.SetCondition(w.now, arg(1), Condition(arg(2)), strings.Join(f[3:], " "))
	case "fault": // fault CARD WHAT...
		w.core.Fault(w.now, arg(1), Fault{Class: "watch", What: strings.Join(f[2:], " ")})
	case "xid": // xid CARD NUMBER CLASS [hand | LIFT]
		fault := Fault{Class: arg(3), What: "XID " + arg(2), Advice: "do this"}
		fault.XID, _ = strconv.ParseUint(arg(2), 10, 64)
		if len(f) > 4 {
			fault.Cordon = true
			fault.LiftAfter, _ = time.ParseDuration(f[4]) // hand: none
		}
		w.core.Fault(w.now, arg(1), fault)
	case "cordon": // cordon CARD UID REASON...
		uid, _ := strconv.Atoi(arg(2))
		_, err := w.core.CordonCard(w.now, arg(1), strings.Join(f[3:], " "), uid)
		w.fail(err)
	case "uncordon": // uncordon CARD UID
		uid, _ := strconv.Atoi(arg(2))
		_, err := w.core.UncordonCard(w.now, arg(1), uid)
		w.fail(err)
	case "lift":
		w.core.LiftCordons(w.now)
	case "faults":
		for _, k := range w.core.Cards() {
			line := fmt.Sprintf("%s faults %v xids %v", k.UUID, k.Faults, k.XIDs)
			if k.Cordon != nil {
				line += fmt.Sprintf(" cordoned (%s)", k.Cordon.Reason)
			}
			w.printf("%s", line)
		}
	case "idle":
		w.printf("idle: %v", w.core.Idle())
	default:
		w.t.Fatalf("%v: no such command", f)
	}
}

func (w *world) answer(a Answer, way string) {
	switch {
	case a.Waiting:
		w.printf("%d waits", a.Client)
	case a.Granted:
		w.printf("%d ok (%s)", a.Client, way)
	default:
		w.printf("%d denied: %s, %s free", a.Client, a.Reason, size.Short(a.FreeBytes))
	}
}

func (w *world) drain() {
	if w.core == nil {
		return
	}
	orders := w.core.Drain()
	for _, a := range orders.Answers {
		w.answer(a, "asked")
	}
	for _, e := range orders.Events {
		about := ""
		if e.Share != "" {
			about += " " + e.Share
		}
		if e.PID != 0 {
			about += fmt.Sprintf(" %d", e.PID)
		}
		w.printf("  * %s%s: %s", e.Kind, about, e.Message)
	}
	for _, t := range orders.Released {
		if t.Number > 0 || w.core.slot(t.Share, 1) != nil {
			w.printf("  released: GPU %d of %s", t.Number, t.Share)
		}
	}
	for _, name := range orders.GoneShares {
		w.printf("  gone: share %s", name)
	}
}
