// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/bench"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
	"github.com/divvy-gpu/divvy/internal/wire"
)

// witness is a client of another share; whatever is done to the daemons, its
// share stays exact.
type witness struct {
	holder  *bench.Holder
	address uint64
	pid     int // of the agent; 0: of any
}

const witnessQuota = 256 * mib

func (h *host) witness(t *testing.T) *witness {
	t.Helper()
	return h.witnessOf(t, h.share(t, "witness", witnessQuota))
}

// witnessOf is one of a share of witnessQuota, called witness.
func (h *host) witnessOf(t *testing.T, share api.Share) *witness {
	t.Helper()
	w := &witness{holder: h.holder(t, share)}
	do(t, w.holder, "start")
	w.address = alloc(t, w.holder, 100*mib)
	do(t, w.holder, "write %d %d", w.address, mib)
	version, err := h.client.Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	w.pid = version.PID
	return w
}

// content checks that the agent is the same process and that the witness's
// share is what it was.
func (w *witness) content(t *testing.T, h *host) {
	t.Helper()
	version, err := h.client.Version(t.Context())
	if err != nil {
		t.Fatalf("the agent does not answer: %v", err)
	}
	if w.pid != 0 && version.PID != w.pid {
		t.Fatalf("the agent died: process %d, was %d", version.PID, w.pid)
	}
	do(t, w.holder, "check %d %d", w.address, mib)
	free, total := room(t, w.holder)
	if total != witnessQuota || free != witnessQuota-contextBytes-100*mib {
		t.Errorf("the witness sees %d of %d free", free, total)
	}
	more := alloc(t, w.holder, free)
	refused(t, w.holder, outOfMemory, "alloc 512")
	do(t, w.holder, "free %d", more)
	// A newcomer gets in.
	late := h.holder(t, h.look(t, "witness"))
	do(t, late, "start")
	late.Kill()
	eventually(t, "the newcomer's context is back", func() error {
		if used := h.look(t, "witness").UsedBytes; used != contextBytes+100*mib {
			return fmt.Errorf("%d bytes used", used)
		}
		return nil
	})
}

func noise(random *rand.Rand, bytes int) []byte {
	all := make([]byte, bytes)
	for i := range all {
		all[i] = byte(random.Uint32())
	}
	return all
}

// rubbishOnShare sends noise to a share's socket, in every other round after a WELCOME; in three of
// four with the right magic and version of a HELLO. Then its connection ends.
func rubbishOnShare(t *testing.T, socket string, random *rand.Rand, round int) {
	t.Helper()
	welcome := round%2 == 0
	var fd int
	if welcome {
		fd = greet(t, socket)
	} else {
		fd = connected(t, socket)
	}
	defer unix.Close(fd)
	for range 1 + round%3 {
		packet := noise(random, []int{1, 7, 96, 100, 232, 233, 4096}[round%7])
		if round%4 != 3 && len(packet) >= 8 {
			copy(packet, encoded(wire.Message{Type: wire.Hello})[:8])
		}
		if _, err := unix.Write(fd, packet); err != nil {
			break // it has closed the connection, as it should
		}
	}
	hungUp(t, fd)
}

// rubbishOnSimulator sends noise to the simulator's; in every other round as a program whose HELLO
// was answered, in packets of which the frame is right, and each is answered too.
func rubbishOnSimulator(t *testing.T, socket string, random *rand.Rand, round int) {
	t.Helper()
	fd := connected(t, socket)
	defer unix.Close(fd)
	if round%2 != 0 {
		if _, err := unix.Write(fd, noise(random, []int{1, 7, 96, 100, 232, 233, 4096}[round%7])); err != nil {
			t.Fatal(err)
		}
		hungUp(t, fd)
		return
	}
	for n := range uint32(1 + round%3) {
		h := simwire.Header{Type: simwire.Hello, Sequence: n, Kind: simwire.RoleCompute}
		var payload []byte
		if n > 0 {
			// Of those that are answered at once: what a request means, the simulator's own tests look at.
			known := []simwire.Type{simwire.Memory, simwire.Charge, simwire.Release, simwire.IPCOpen, simwire.ObjectImport, simwire.FaultInject, simwire.Reset, 255}
			h.Type = known[random.IntN(len(known))]
			h.Card, h.Kind, h.Count = random.Uint32(), random.Uint32(), random.Uint32()
			h.Bytes, h.Offset, h.Object, h.Process, h.Token = random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64()
			payload = noise(random, random.IntN(simwire.PayloadBytes+1))
		}
		packet, err := simwire.Encode(h, payload)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := unix.Write(fd, packet); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, simwire.PacketBytes)
		length, err := readPacket(fd, answer)
		if err != nil {
			t.Fatal(err)
		}
		a, _, err := simwire.Decode(answer[:length])
		if err != nil || a.Type != h.Type || a.Sequence != n || (a.Status == simwire.OK) != (n == 0) {
			t.Fatalf("%+v is answered %+v: %v", h, a, err)
		}
	}
}

// connected is a connection to a socket, and no answer on it is awaited for ever.
func connected(t *testing.T, socket string) (fd int) {
	t.Helper()
	fd, err := connectPacket(socket)
	if err == nil {
		err = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: int64(waitAtMost / time.Second)})
	}
	if err != nil {
		t.Fatal(err)
	}
	return fd
}

// readPacket reads from a connection. With a time limit on it a signal interrupts that, and Go sends itself some.
func readPacket(fd int, into []byte) (n int, err error) {
	for {
		if n, err = unix.Read(fd, into); !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// hungUp waits until the other end has closed a connection.
func hungUp(t *testing.T, fd int) {
	t.Helper()
	for {
		n, err := readPacket(fd, make([]byte, simwire.PacketBytes))
		if err != nil && !errors.Is(err, unix.ECONNRESET) {
			t.Fatalf("the connection goes on: %v", err)
		}
		if n <= 0 {
			return
		}
	}
}

// Nonsense on any socket ends that connection and nothing else.
func TestGarbageOnSockets(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	victim := h.share(t, "victim", 256*mib)
	random := rand.New(rand.NewPCG(1, 2))
	for round := range 200 {
		rubbishOnShare(t, victim.Socket, random, round)
		rubbishOnSimulator(t, h.SimulatorSocket, random, round)
	}
	for range 100 {
		c, err := net.Dial("unix", h.AgentSocket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(noise(random, 1+int(random.Uint32N(8192))))
		c.Close()
	}
	for _, request := range []string{
		"GET /v1/shares/" + string(make([]byte, 60000)) + " HTTP/1.1\r\n\r\n",
		"POST /v1/shares HTTP/1.1\r\nHost: d\r\nContent-Length: 99999999999\r\n\r\n{",
		"POST /v1/shares HTTP/1.1\r\nHost: d\r\nContent-Length: 5\r\n\r\n[[[[[",
		"BREW /v1/shares HTTP/1.1\r\nHost: d\r\n\r\n",
		"GET /v1/../../etc/passwd HTTP/1.1\r\nHost: d\r\n\r\n",
	} {
		c, err := net.Dial("unix", h.AgentSocket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write([]byte(request))
		c.Close()
	}
	w.content(t, h)
}

// encoded is a message of a client that speaks the agent's version.
func encoded(m wire.Message) []byte {
	m.Magic, m.Version = wire.MessageMagic, wire.Version
	var packet [wire.MessageSize]byte
	m.Encode(&packet)
	return packet[:]
}

// greet attaches to a share and leaves the answer's pages alone.
func greet(t *testing.T, socket string) (fd int) {
	t.Helper()
	fd, m := hello(t, socket, wire.Message{})
	if m.Type != wire.Welcome {
		t.Fatalf("HELLO is answered %+v", m)
	}
	return fd
}

// hello says HELLO with the words of m, and returns the answer.
func hello(t *testing.T, socket string, m wire.Message) (fd int, answer wire.Message) {
	t.Helper()
	fd = connected(t, socket)
	m.Type, m.Sequence = wire.Hello, 1
	if _, err := unix.Write(fd, encoded(m)); err != nil {
		t.Fatal(err)
	}
	var packet [wire.MessageSize]byte
	if n, err := readPacket(fd, packet[:]); err != nil || n != len(packet) {
		t.Fatalf("the answer to HELLO has %d bytes: %v", n, err)
	}
	answer, err := wire.Decode(packet[:])
	if err != nil {
		t.Fatal(err)
	}
	return fd, answer
}

// Processes that say that they come back get no more than there is: a claim that a
// charge would get is taken, others are not.
func TestMadeUpTokens(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	liar := h.share(t, "liar", 256*mib)
	taken := 0
	for n := range uint64(40) {
		claim := wire.Message{Token: 1000 + n}
		claim.Bytes[0] = 1 << 60
		if n%8 == 0 {
			claim.Bytes[0] = 64 * mib
		}
		fd, answer := hello(t, liar.Socket, claim)
		defer unix.Close(fd)
		if answer.Type == wire.Welcome {
			taken++
		}
	}
	if taken != 4 {
		t.Errorf("%d claims were taken; four times 64 MiB have room", taken)
	}
	devices, err := h.client.Devices(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if booked := devices.Cards[0].BookedBytes; booked != witnessQuota+256*mib {
		t.Errorf("%d bytes are promised, of two shares of 256 MiB", booked)
	}
	if v := h.look(t, liar.Name); v.UsedBytes != 256*mib || v.State != "active" {
		t.Errorf("the liars' share uses %d bytes and is %s", v.UsedBytes, v.State)
	}
	w.content(t, h)
}

// A client that asks and asks and never reads an answer is left behind.
func TestClientThatNeverReads(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	deaf := h.share(t, "deaf", 256*mib)
	for range 8 {
		fd := greet(t, deaf.Socket)
		defer unix.Close(fd)
		if err := unix.SetNonblock(fd, true); err != nil {
			t.Fatal(err)
		}
		for i := range uint32(20000) {
			charge := wire.Message{Type: wire.Charge, Sequence: i + 2, Amount: 512}
			if _, err := unix.Write(fd, encoded(charge)); err != nil {
				break // the socket is full, or closed
			}
		}
	}
	w.content(t, h)
	if used := h.look(t, deaf.Name).UsedBytes; used > 256*mib {
		t.Errorf("the deaf share uses %d bytes, quota %d", used, 256*mib)
	}
}

// Requests that lie about sizes and places.
func TestLyingClient(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	liar := h.share(t, "liar", 256*mib)
	for _, lie := range []wire.Message{
		{Type: wire.Charge, Amount: 1 << 63},
		{Type: wire.Charge, Amount: ^uint64(0)},
		{Type: wire.Charge, Slot: 7, Amount: 512},
		{Type: wire.Charge, Slot: 1 << 31, Amount: 512},
		{Type: wire.Charge, Kind: 999, Amount: 512},
		{Type: wire.Sync, Slot: 99},
		{Type: wire.Measure, Slot: 99},
		{Type: wire.Event, Slot: 99, Kind: wire.EventDriverOOM, Amount: ^uint64(0)},
		{Type: wire.Hello, Token: 12345},
		{Type: wire.Processes, Slot: 99, Amount: 1 << 40},
		{Type: wire.LeaseWant, Slot: 1 << 31},
		{Type: wire.LeaseBack, Slot: 99, Amount: ^uint64(0)},
		{Type: wire.Welcome},
		{Type: 200},
	} {
		fd := greet(t, liar.Socket)
		lie.Sequence = 2
		if _, err := unix.Write(fd, encoded(lie)); err != nil {
			t.Fatal(err)
		}
		unix.Close(fd)
	}
	// One that claims, on coming back, to use more than there is.
	claim := wire.Message{Token: 987654321}
	for slot := range claim.Bytes {
		claim.Bytes[slot] = ^uint64(0) >> uint(slot)
	}
	fd, answer := hello(t, liar.Socket, claim)
	if answer.Type != wire.Refused {
		t.Errorf("the claim of all that a word holds is answered %+v", answer)
	}
	unix.Close(fd)
	w.content(t, h)
	holder := h.holder(t, liar)
	eventually(t, "the liars' share is free again", func() error {
		if used := h.look(t, liar.Name).UsedBytes; used != 0 {
			return fmt.Errorf("%d bytes used", used)
		}
		return nil
	})
	do(t, holder, "start")
	alloc(t, holder, 192*mib)
	refused(t, holder, outOfMemory, "alloc 512")
}

// A thousand connections that say nothing keep nobody out.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	idle := h.share(t, "idle", 256*mib)
	for _, socket := range []string{idle.Socket, h.AgentSocket} {
		for range 500 {
			if socket == h.AgentSocket {
				c, err := net.DialTimeout("unix", socket, 5*time.Second)
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				continue
			}
			fd, err := connectPacket(socket)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(fd)
		}
	}
	w.content(t, h)
	holder := h.holder(t, idle)
	do(t, holder, "start")
}

// A client may do with its own page what it wants: the agent lives, the other
// shares stay exact, and nobody gets more than there is.
func TestDamagedPage(t *testing.T) {
	t.Parallel()
	h := newHost(t, hostOptions{})
	w := h.witness(t)
	for i, damage := range []string{"scribble 1", "scribble 2", "scribble 3", "punch", "scribble 4\npunch"} {
		t.Run(damage, func(t *testing.T) {
			share := h.share(t, fmt.Sprintf("damaged-%d", i), 256*mib)
			vandal := h.holder(t, share)
			do(t, vandal, "start")
			alloc(t, vandal, 10*mib)
			if damage == "scribble 4\npunch" {
				do(t, vandal, "scribble 4")
				// The magic is gone by now: nothing is left to be found.
				do(t, vandal, "punch")
			} else if pages := do(t, vandal, "%s", damage); pages[0] == "0" {
				t.Fatal("it found no page of its own")
			}
			// What its own calls come to is its own affair; they end.
			_, _ = vandal.Do("alloc %d", mib)
			_, _ = vandal.Do("alloc %d", 512*mib)
			_, _ = vandal.Do("info")
			w.content(t, h)
			if used := h.look(t, share.Name).UsedBytes; used > 256*mib {
				t.Errorf("the damaged share is said to use %d bytes, quota %d", used, 256*mib)
			}
			vandal.Kill()
			eventually(t, "the vandal's memory is back", func() error {
				if used := h.look(t, share.Name).UsedBytes; used != 0 {
					return fmt.Errorf("%d bytes used", used)
				}
				return nil
			})
			next := h.holder(t, share)
			do(t, next, "start")
			alloc(t, next, 192*mib)
			refused(t, next, outOfMemory, "alloc 512")
		})
	}
	w.content(t, h)
}
