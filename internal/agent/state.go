// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/journal"
)

// record is one line of the journal: what is now so. Exactly one field is set.
type record struct {
	Share      *core.SavedShare   `json:"share,omitempty"`
	Client     *core.SavedClient  `json:"client,omitempty"`
	Figures    *core.SavedFigures `json:"figures,omitempty"`
	Named      *namedRecord       `json:"named,omitempty"`
	NamedGone  uint64             `json:"namedGone,omitempty"`
	ShareGone  string             `json:"shareGone,omitempty"`
	ClientGone core.ClientID      `json:"clientGone,omitempty"`
	Card       *core.SavedCard    `json:"card,omitempty"`
}

// namedRecord is memory of a share that has names. Whoever makes many names makes no
// record of the share longer.
type namedRecord struct {
	Share string
	core.SavedNamed
}

// What a known client has been granted changes often and has a short form: this
// letter, the client and the bytes of each slot, little endian.
const (
	grantedLetter = 'g'
	grantedHead   = 1 + 8
	grantedBytes  = 8 // of each slot
)

// So has what a client said of itself: this letter, the client and of each slot the words
// of core.SavedWork in their order.
const (
	workLetter = 'w'
	workHead   = 1 + 8
	workBytes  = 4 * 8 // of each slot
)

// records is the journal, as far as it is written.
type records interface {
	Append(records ...[]byte) error
	Replace(records [][]byte) error
	Syncer() func() error
	Size() int64
	Kept() string
	Close() error
}

// state is what the journal says is so, and keeps it saying that.
type state struct {
	journal records
	live    int64                  // size after it was last written anew
	known   map[core.ClientID]bool // clients that the journal has
	lost    error                  // why it lacks something that is so; nil: it lacks nothing
}

const (
	compactBytes  = 4 << 20
	compactFactor = 4
)

// readState opens the journal and plays it.
func readState(path string) (s *state, was saved, lostBytes int64, err error) {
	j, records, lostBytes, err := journal.Open(path)
	if err != nil {
		return nil, saved{}, 0, err
	}
	return &state{journal: j, live: j.Size(), known: map[core.ClientID]bool{}}, replay(records), lostBytes, nil
}

// saved is what a journal says was so.
type saved struct {
	shares  []core.SavedShare
	clients []core.SavedClient
	cards   []core.SavedCard
}

// replay plays records in their order. A record that cannot be read is left
// out: it has a valid checksum, so a newer agent wrote it.
func replay(records [][]byte) saved {
	var shares []core.SavedShare
	var clients []core.SavedClient
	cards := map[string]core.SavedCard{}
	shareAt := map[string]int{}
	clientAt := map[core.ClientID]int{}
	named := map[uint64]namedRecord{}
	for _, raw := range records {
		if id, granted, ok := decodeGranted(raw); ok {
			if i, known := clientAt[id]; known {
				clients[i].SetAmounts(granted)
			}
			continue
		}
		if id, work, ok := decodeWork(raw); ok {
			if i, known := clientAt[id]; known {
				clients[i].Work = work
			}
			continue
		}
		var r record
		if json.Unmarshal(raw, &r) != nil {
			continue
		}
		switch {
		case r.Card != nil:
			cards[r.Card.UUID] = *r.Card
		case r.Figures != nil:
			if i, ok := shareAt[r.Figures.Share]; ok {
				shares[i].SetFigures(*r.Figures)
			}
		case r.Named != nil:
			named[r.Named.Number] = *r.Named
		case r.NamedGone != 0:
			delete(named, r.NamedGone)
		case r.Share != nil:
			for _, one := range r.Share.Named { // as agents wrote it that had no records of it
				named[one.Number] = namedRecord{r.Share.Name, one}
			}
			r.Share.Named = nil
			if i, ok := shareAt[r.Share.Name]; ok {
				shares[i] = *r.Share
			} else {
				shareAt[r.Share.Name] = len(shares)
				shares = append(shares, *r.Share)
			}
		case r.Client != nil:
			if i, ok := clientAt[r.Client.ID]; ok {
				clients[i] = *r.Client
			} else {
				clientAt[r.Client.ID] = len(clients)
				clients = append(clients, *r.Client)
			}
		case r.ShareGone != "":
			if i, ok := shareAt[r.ShareGone]; ok {
				shares[i].Name = ""
				delete(shareAt, r.ShareGone)
				maps.DeleteFunc(named, func(_ uint64, n namedRecord) bool { return n.Share == r.ShareGone })
			}
		case r.ClientGone != 0:
			if i, ok := clientAt[r.ClientGone]; ok {
				clients[i].ID = 0
				delete(clientAt, r.ClientGone)
			}
		}
	}
	for _, number := range slices.Sorted(maps.Keys(named)) {
		if i, ok := shareAt[named[number].Share]; ok {
			shares[i].Named = append(shares[i].Named, named[number].SavedNamed)
		}
	}
	was := saved{shares: slices.DeleteFunc(shares, func(s core.SavedShare) bool { return s.Name == "" }),
		clients: slices.DeleteFunc(clients, func(c core.SavedClient) bool { return c.ID == 0 })}
	for _, uuid := range slices.Sorted(maps.Keys(cards)) {
		was.cards = append(was.cards, cards[uuid])
	}
	return was
}

// save writes what changed, and writes the journal anew when most of it is old.
// Once a record could not be written, the later ones would build on what is not
// there: the journal stays as it was until it could be written anew.
func (s *state) save(c *core.Core, orders core.Orders) error {
	shares, clients := orders.SaveShares, orders.SaveClients
	count := len(shares) + len(clients) + len(orders.SaveWork) + len(orders.SaveNamed) + len(orders.SaveFigures) + len(orders.SaveCards)
	if s.lost != nil || count == 0 {
		return s.lost
	}
	records := make([][]byte, 0, count)
	for _, name := range shares {
		r := record{ShareGone: name}
		if saved, ok := c.SavedShare(name); ok {
			r = record{Share: &saved}
		}
		records = append(records, encodeRecord(r))
	}
	for _, id := range clients {
		saved, ok := c.SavedClient(id)
		switch {
		case !ok:
			delete(s.known, id)
			records = append(records, encodeRecord(record{ClientGone: id}))
		case s.known[id]:
			records = append(records, encodeGranted(id, saved.Amounts()))
		default:
			s.known[id] = true
			records = append(records, encodeRecord(record{Client: &saved}))
		}
	}
	for _, id := range orders.SaveWork {
		if work, ok := c.SavedWork(id); ok && s.known[id] {
			records = append(records, encodeWork(id, work))
		}
	}
	for _, number := range orders.SaveNamed {
		r := record{NamedGone: number}
		if share, saved, ok := c.SavedNamed(number); ok {
			r = record{Named: &namedRecord{share, saved}}
		}
		records = append(records, encodeRecord(r))
	}
	for _, name := range orders.SaveFigures {
		if saved, ok := c.SavedFigures(name); ok {
			records = append(records, encodeRecord(record{Figures: &saved}))
		}
	}
	for _, uuid := range orders.SaveCards {
		if saved, ok := c.SavedCard(uuid); ok {
			records = append(records, encodeRecord(record{Card: &saved}))
		}
	}
	if s.journal.Append(records...) != nil {
		return s.compact(c) // the disk may have room for less
	}
	if s.journal.Size() < max(compactBytes, compactFactor*s.live) {
		return nil
	}
	if s.compact(c) != nil {
		// It is long, and nothing is missing: try again when it is longer.
		s.lost, s.live = nil, s.journal.Size()
	}
	return nil
}

func (s *state) compact(c *core.Core) error {
	shares, clients := c.Saved()
	records := make([][]byte, 0, len(shares)+len(clients))
	for i := range shares {
		named := shares[i].Named
		shares[i].Named = nil
		records = append(records, encodeRecord(record{Share: &shares[i]}))
		for _, one := range named {
			records = append(records, encodeRecord(record{Named: &namedRecord{shares[i].Name, one}}))
		}
	}
	for i := range clients {
		records = append(records, encodeRecord(record{Client: &clients[i]}))
	}
	for _, card := range c.SavedCards() {
		records = append(records, encodeRecord(record{Card: &card}))
	}
	if err := s.journal.Replace(records); err != nil {
		s.lost = fmt.Errorf("write the journal anew: %w", err)
		return s.lost
	}
	s.lost = nil
	clear(s.known)
	for i := range clients {
		s.known[clients[i].ID] = true
	}
	s.live = s.journal.Size()
	return nil
}

func encodeGranted(id core.ClientID, granted []uint64) []byte {
	raw := binary.LittleEndian.AppendUint64([]byte{grantedLetter}, uint64(id))
	for _, bytes := range granted {
		raw = binary.LittleEndian.AppendUint64(raw, bytes)
	}
	return raw
}

func decodeGranted(raw []byte) (id core.ClientID, granted []uint64, ok bool) {
	slots := (len(raw) - grantedHead) / grantedBytes
	if slots < 1 || slots > core.MaxSlots || len(raw) != grantedHead+slots*grantedBytes || raw[0] != grantedLetter {
		return 0, nil, false
	}
	for i := range slots {
		granted = append(granted, binary.LittleEndian.Uint64(raw[grantedHead+i*grantedBytes:]))
	}
	return core.ClientID(binary.LittleEndian.Uint64(raw[1:])), granted, true
}

func encodeWork(id core.ClientID, work []core.SavedWork) []byte {
	raw := binary.LittleEndian.AppendUint64([]byte{workLetter}, uint64(id))
	for _, w := range work {
		for _, word := range [...]uint64{w.Peak, w.BusyNs, w.WaitNs, w.Launches} {
			raw = binary.LittleEndian.AppendUint64(raw, word)
		}
	}
	return raw
}

func decodeWork(raw []byte) (id core.ClientID, work []core.SavedWork, ok bool) {
	slots := (len(raw) - workHead) / workBytes
	if slots < 1 || slots > core.MaxSlots || len(raw) != workHead+slots*workBytes || raw[0] != workLetter {
		return 0, nil, false
	}
	for i := range slots {
		words := raw[workHead+i*workBytes:]
		word := func(n int) uint64 { return binary.LittleEndian.Uint64(words[n*8:]) }
		work = append(work, core.SavedWork{Peak: word(0), BusyNs: word(1), WaitNs: word(2), Launches: word(3)})
	}
	return core.ClientID(binary.LittleEndian.Uint64(raw[1:])), work, true
}

func encodeRecord(r record) []byte {
	raw, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings, numbers and times in the calendar always encode
	}
	return raw
}
