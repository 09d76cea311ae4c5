// SPDX-License-Identifier: Apache-2.0

package simgpu

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/simgpu/condition"
	"github.com/divvy-gpu/divvy/internal/simgpu/silicon"
	"github.com/divvy-gpu/divvy/internal/simgpu/simwire"
)

// raw is a connection without any client code.
func raw(t *testing.T, socket string) *net.UnixConn {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func send(t *testing.T, conn *net.UnixConn, h simwire.Header, payload []byte) {
	t.Helper()
	packet, err := simwire.Encode(h, payload)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Write(packet); err != nil {
		t.Fatal(err)
	}
}

// ask sends a request and returns the answer, whose descriptor is closed.
func ask(t *testing.T, conn *net.UnixConn, h simwire.Header, payload []byte) simwire.Header {
	t.Helper()
	send(t, conn, h, payload)
	packet := make([]byte, simwire.PacketBytes)
	n, err := conn.Read(packet)
	if err != nil {
		t.Fatal(err)
	}
	answer, _, err := simwire.Decode(packet[:n])
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestGarbage: nonsense ends the connection it came on, with an event, and
// nothing else.
func TestGarbage(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "T4"})
	bystander := startCompute(t, socket)
	bystander.want("charge 0 0 4096", "0")
	good, err := simwire.Encode(simwire.Header{Type: simwire.Hello, Kind: simwire.RoleObserve}, nil)
	if err != nil {
		t.Fatal(err)
	}
	broken := func(at int, value byte) []byte {
		b := append([]byte(nil), good...)
		b[at] = value
		return b
	}
	for name, packet := range map[string][]byte{
		"short": good[:20], "magic": broken(0, 0), "version": broken(6, 9), "length": broken(28, 1),
		"long": append(append([]byte(nil), good...), 1), "huge": make([]byte, 2*simwire.PacketBytes),
	} {
		conn := raw(t, socket)
		if _, err := conn.Write(packet); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
			t.Errorf("%s: the connection goes on: %v", name, err)
		}
	}
	conn := raw(t, socket) // two descriptors where one is allowed
	if _, _, err := conn.WriteMsgUnix(good, unix.UnixRights(1, 2), nil); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 10)); !errors.Is(err, io.EOF) && !errors.Is(err, unix.ECONNRESET) {
		t.Errorf("two descriptors: the connection goes on: %v", err)
	}
	eventually(t, "each is an event", func() bool {
		events, err := truth.Events(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range events {
			if e.Kind != silicon.EventGarbage || e.PID != os.Getpid() {
				t.Fatalf("event %+v", e)
			}
		}
		return len(events) == 7
	})
	bystander.want("release 0 0 4096", "0")
}

func TestRoles(t *testing.T) {
	socket, _ := serve(t, Config{Cards: "T4"})
	conn := raw(t, socket)
	for _, c := range []struct {
		header simwire.Header
		want   simwire.Status
	}{
		{simwire.Header{Type: simwire.Memory}, simwire.Denied},
		{simwire.Header{Type: simwire.Hello, Kind: 9}, simwire.Invalid},
		{simwire.Header{Type: simwire.Hello, Kind: simwire.RoleObserve, Bytes: 11080}, simwire.Mismatch},
		{simwire.Header{Type: simwire.Hello, Kind: simwire.RoleObserve}, simwire.OK},
		{simwire.Header{Type: simwire.Memory}, simwire.OK},
		{simwire.Header{Type: simwire.Memory, Card: 1}, simwire.NotFound},
		{simwire.Header{Type: simwire.Card, Card: simwire.AllCards}, simwire.NotFound},
		{simwire.Header{Type: simwire.Processes, Card: 0x7fffffff}, simwire.NotFound},
		{simwire.Header{Type: simwire.Processes, Kind: 1}, simwire.Denied},
		{simwire.Header{Type: simwire.Holders, Card: 0x7fffffff}, simwire.NotFound},
		{simwire.Header{Type: simwire.Charge, Bytes: 512}, simwire.Denied},
		{simwire.Header{Type: simwire.IPCOpen}, simwire.Denied},
		{simwire.Header{Type: simwire.Reset}, simwire.Denied},
		{simwire.Header{Type: simwire.Events}, simwire.Denied},
		{simwire.Header{Type: 47}, simwire.Unknown},
		{simwire.Header{Type: simwire.Health}, simwire.OK},
		{simwire.Header{Type: simwire.Health, Card: 1}, simwire.NotFound},
		{simwire.Header{Type: simwire.Health, Card: simwire.AllCards}, simwire.NotFound},
		{simwire.Header{Type: simwire.Notice}, simwire.OK},
		{simwire.Header{Type: simwire.Incidents}, simwire.OK},
		{simwire.Header{Type: simwire.Faulted}, simwire.Denied},
		{simwire.Header{Type: simwire.FaultInject, Kind: 6}, simwire.Denied},
		{simwire.Header{Type: simwire.FaultReport, Bytes: 31}, simwire.Denied},
		{simwire.Header{Type: simwire.FaultClear}, simwire.Denied},
		{simwire.Header{Type: simwire.FaultList}, simwire.Denied},
		{simwire.Header{Type: simwire.Times, Card: 1}, simwire.NotFound},
		{simwire.Header{Type: simwire.Times, Kind: 1}, simwire.Denied},
		{simwire.Header{Type: simwire.Times}, simwire.OK},
		{simwire.Header{Type: simwire.Runs}, simwire.Denied},
		{simwire.Header{Type: simwire.Ring}, simwire.Denied},
		{simwire.Header{Type: simwire.Hello, Kind: simwire.RoleCompute, Process: 5, Token: 6}, simwire.NotFound},
		{simwire.Header{Type: simwire.Hello, Kind: simwire.RoleCompute}, simwire.OK},
		{simwire.Header{Type: simwire.Arena}, simwire.Invalid},
		{simwire.Header{Type: simwire.Arena, Bytes: 1 << 62}, simwire.Invalid},
		{simwire.Header{Type: simwire.Arena, Card: simwire.AllCards, Bytes: 4096}, simwire.NotFound},
		{simwire.Header{Type: simwire.ObjectImport}, simwire.Invalid},
		{simwire.Header{Type: simwire.Wait, Object: 1}, simwire.Invalid},
		{simwire.Header{Type: simwire.Ring}, simwire.OK},
		{simwire.Header{Type: simwire.Wait, Object: 1}, simwire.Invalid},
		{simwire.Header{Type: simwire.GateDone, Object: 1}, simwire.Invalid},
		{simwire.Header{Type: simwire.EventLook}, simwire.NotFound},
		{simwire.Header{Type: simwire.EventRecord, Object: 1}, simwire.NotFound},
		{simwire.Header{Type: simwire.ObjectExport, Object: 9}, simwire.NotFound},
		{simwire.Header{Type: simwire.ObjectDrop, Object: 9}, simwire.NotFound},
		{simwire.Header{Type: simwire.IPCOpen}, simwire.NotFound},
		{simwire.Header{Type: simwire.Charge, Bytes: 512}, simwire.OK},
		{simwire.Header{Type: simwire.Bye}, simwire.OK},
		{simwire.Header{Type: simwire.Charge, Bytes: 512}, simwire.Denied},
	} {
		if got := ask(t, conn, c.header, nil); got.Status != c.want {
			t.Errorf("%+v: %v, want %v", c.header, got.Status, c.want)
		}
	}
}

// A client that asks and never reads delays nobody, and is cut off when its
// buffer is full.
func TestStuckClient(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "32xL4"})
	conn := raw(t, socket)
	if status := ask(t, conn, simwire.Header{Type: simwire.Hello, Kind: simwire.RoleObserve}, nil).Status; status != simwire.OK {
		t.Fatal(status)
	}
	packet, _ := simwire.Encode(simwire.Header{Type: simwire.Card}, nil)
	stuck := make(chan error, 1)
	go func() {
		for {
			if _, err := conn.Write(packet); err != nil {
				stuck <- err
				return
			}
		}
	}()
	p := startCompute(t, socket)
	for range 100 {
		p.want("charge 0 0 512", "0")
	}
	if err := <-stuck; errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("it may go on for ever")
	}
	eventually(t, "an event says so", func() bool {
		events, err := truth.Events(t.Context(), 0)
		return err == nil && len(events) == 1 && events[0].Kind == silicon.EventGarbage
	})
}

// TestManyAtOnce: 300 processes' worth of connections at the same moment.
func TestManyAtOnce(t *testing.T) {
	socket, truth := serve(t, Config{Cards: "H100-80GB"})
	const clients = 300
	began := time.Now()
	var wg sync.WaitGroup
	conns := make([]*net.UnixConn, clients)
	for i := range clients {
		wg.Go(func() {
			conns[i] = raw(t, socket)
			ask(t, conns[i], simwire.Header{Type: simwire.Hello, Kind: simwire.RoleCompute}, nil)
			ask(t, conns[i], simwire.Header{Type: simwire.Charge, Kind: 4, Bytes: silicon.MiB}, nil)
		})
	}
	wg.Wait()
	t.Logf("%d clients in %v", clients, time.Since(began))
	if list, err := truth.Processes(t.Context()); err != nil || len(list) != clients {
		t.Errorf("%d processes, %v", len(list), err)
	}
	if u := used(t, truth); u != clients*silicon.MiB {
		t.Errorf("%d bytes used", u)
	}
	for _, c := range conns {
		_ = c.Close()
	}
	freed(t, truth)
}

func TestListenPlaces(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "sim.sock")
	stale, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	stale.SetUnlinkOnClose(false)
	if err := stale.Close(); err != nil {
		t.Fatal(err)
	}
	t.Run("stale is replaced, live is refused", func(t *testing.T) {
		serve(t, Config{Socket: path, SocketMode: 0o600})
		if info, err := os.Lstat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
		if _, err := Listen(Config{Socket: path}); !errors.Is(err, ErrInUse) {
			t.Errorf("a second simulator: %v", err)
		}
	})
	other := filepath.Join(dir, "notes")
	if err := os.WriteFile(other, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(Config{Socket: other}); err == nil || !strings.Contains(err.Error(), "left alone") {
		t.Errorf("a file of another kind: %v", err)
	}
	if text, err := os.ReadFile(other); err != nil || string(text) != "x" {
		t.Errorf("it is touched: %q, %v", text, err)
	}
	if _, err := Listen(Config{Socket: filepath.Join(dir, "none", "sim.sock")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no folder: %v", err)
	}
	server, err := Listen(Config{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Close(); err != nil {
		t.Error(err)
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 1 {
		t.Errorf("left behind: %v", entries)
	}
	if _, err := Dial(t.Context(), path); !errors.Is(err, ErrNotListening) {
		t.Errorf("dial nobody: %v", err)
	}
}

// Two that start at once: one listens, the other is told.
func TestListenRace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sim.sock")
	for range 50 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		var winners []*Server
		for range 2 {
			wg.Go(func() {
				server, err := Listen(Config{Socket: path, Cards: "T4"})
				if err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				if err == nil {
					mu.Lock()
					winners = append(winners, server)
					mu.Unlock()
				}
			})
		}
		wg.Wait()
		if len(winners) != 1 {
			t.Fatalf("%d listen", len(winners))
		}
		if err := winners[0].Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestIdleExit(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sim.sock")
	served := make(chan error, 1)
	begin := func() (*Truth, error) {
		server, err := Listen(Config{Socket: path, IdleExit: 50 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		go func() { served <- server.Serve(context.Background()) }()
		return Dial(t.Context(), path)
	}
	truth, err := begin()
	for err != nil { // a host that pauses may let it leave before anyone has come
		if left := <-served; left != nil {
			t.Fatalf("left with %v before anyone came (%v)", left, err)
		}
		truth, err = begin()
	}
	select {
	case err := <-served:
		t.Fatalf("left while somebody is connected: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	if err := truth.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-served:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Fatal("does not leave")
	}
}

func TestValidate(t *testing.T) {
	for _, c := range []struct {
		config Config
		says   string
	}{
		{Config{}, "no socket path"},
		{Config{Socket: strings.Repeat("x", 108)}, "at most 107"},
		{Config{Socket: "s", Driver: "12.3"}, `driver generation "12.3": known are [11.8 12.2 13.0 13.1]`},
		{Config{Socket: "s", Cards: "2xVoodoo2"}, `no model "Voodoo2"`},
		{Config{Socket: "s", IdleExit: -1}, "negative"},
		{Config{Socket: "s", Limits: silicon.Limits{Processes: 1}}, "at least 1"},
	} {
		if err := c.config.Validate(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.says)
		}
	}
	if err := (Config{Socket: "s"}).Validate(); err != nil {
		t.Error(err)
	}
}

func TestParseAvailable(t *testing.T) {
	got, err := parseAvailable(strings.NewReader("MemTotal: 9 kB\nMemAvailable:   1024 kB\n"))
	if err != nil || got != 1<<20 {
		t.Errorf("%d, %v", got, err)
	}
	for _, text := range []string{"", "MemAvailable: x kB\n", "MemAvailable: 99999999999999999 kB\n"} {
		if _, err := parseAvailable(strings.NewReader(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// The numbers that silicon shares with the header.
func TestSharedNumbers(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "clib", "include", "divvy_sim.h"))
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]int{
		"MAX_CARDS": silicon.MaxCards, "KIND_LINEAR": int(silicon.Linear), "KIND_ARRAY": int(silicon.Array), "KIND_POOL": int(silicon.Pool),
		"KIND_MANAGED": int(silicon.Managed), "KIND_CONTEXT": int(silicon.Context), "KIND_MODULE": int(silicon.Module),
		"KIND_GRAPH": int(silicon.Graph), "KIND_OBJECT": int(silicon.Object), "KINDS": int(silicon.Kinds),
		"OBJECT_MEMORY": int(silicon.ObjectMemory), "OBJECT_POOL": int(silicon.ObjectPool), "IPC_MEMORY": int(silicon.HandleMemory),
		"IPC_EVENT": int(silicon.HandleEvent), "IPC_POINTER": int(silicon.HandlePointer), "EVENT_HOST": int(silicon.EventHost),
		"EVENT_GARBAGE": int(silicon.EventGarbage), "EVENT_LIMIT": int(silicon.EventLimit),
		"EVENT_DETACHED": int(silicon.EventDetached), "EVENT_NO_ROOM": int(silicon.EventNoRoom), "EVENT_FAULT": int(silicon.EventFault),
		"FAULT_XID": int(condition.XID), "FAULT_ECC_SINGLE": int(condition.ECCSingle), "FAULT_ECC_DOUBLE": int(condition.ECCDouble),
		"FAULT_THERMAL": int(condition.Thermal), "FAULT_POWER": int(condition.Power), "FAULT_CARD_LOST": int(condition.CardLost),
	} {
		if !strings.Contains(string(text), fmt.Sprintf("#define DIVVY_SIM_%s %du", name, value)) {
			t.Errorf("%s is not %d in the header", name, value)
		}
	}
}

// FuzzRequests: whatever comes, each request has its answer, and the books
// balance.
func FuzzRequests(f *testing.F) {
	add := func(headers ...simwire.Header) {
		var input []byte
		for _, h := range headers {
			packet, _ := simwire.Encode(h, nil)
			input = append(input, packet[4:simwire.HeaderSize]...)
		}
		f.Add(input)
	}
	hello := simwire.Header{Type: simwire.Hello, Kind: simwire.RoleCompute}
	add(hello, simwire.Header{Type: simwire.Charge, Bytes: 512}, simwire.Header{Type: simwire.Release, Bytes: 512})
	add(hello, simwire.Header{Type: simwire.ObjectCreate, Kind: 1, Bytes: 4096}, simwire.Header{Type: simwire.ObjectDrop, Object: 1})
	add(hello, simwire.Header{Type: simwire.Arena, Bytes: 4096}, simwire.Header{Type: simwire.IPCExport, Kind: 1, Bytes: 512})
	add(hello, simwire.Header{Type: simwire.ObjectCreate, Kind: 2}, simwire.Header{Type: simwire.ObjectExport, Object: 1}, simwire.Header{Type: simwire.Bye})
	add(simwire.Header{Type: simwire.Hello, Kind: simwire.RoleControl}, simwire.Header{Type: simwire.Processes, Card: simwire.AllCards},
		simwire.Header{Type: simwire.Holders, Card: simwire.AllCards})
	control := simwire.Header{Type: simwire.Hello, Kind: simwire.RoleControl}
	add(control, simwire.Header{Type: simwire.FaultInject, Kind: 1, Bytes: 31}, simwire.Header{Type: simwire.FaultList},
		simwire.Header{Type: simwire.Incidents}, simwire.Header{Type: simwire.Health})
	add(control, simwire.Header{Type: simwire.FaultInject, Kind: 6}, simwire.Header{Type: simwire.FaultInject, Kind: 3, Card: 1, Count: 9},
		simwire.Header{Type: simwire.FaultClear, Card: simwire.AllCards}, simwire.Header{Type: simwire.Incidents, Cursor: simwire.Last})
	add(hello, simwire.Header{Type: simwire.Faulted}, simwire.Header{Type: simwire.Notice})
	add(hello, simwire.Header{Type: simwire.FaultReport, Bytes: 31, Kind: 700}, simwire.Header{Type: simwire.Incidents})
	f.Fuzz(func(t *testing.T, input []byte) {
		cards, err := silicon.ParseSpec("T4,L4", 0)
		if err != nil {
			t.Fatal(err)
		}
		config := Config{HostBudgetBytes: 1 << 30}.withDefaults()
		k, err := newKernel(config, Drivers()[1], cards)
		if err != nil {
			t.Fatal(err)
		}
		defer k.close()
		null, err := os.Open(os.DevNull) // stands for a pidfd
		if err != nil {
			t.Fatal(err)
		}
		s := &session{pid: 1, pidfd: null}
		defer func() { k.ended(ending{session: s}) }()
		k.sessions += 2
		victim := &session{pid: 2}
		if victim.pidfd, err = os.Open(os.DevNull); err != nil {
			t.Fatal(err)
		}
		defer func() { k.ended(ending{session: victim}) }()
		for _, h := range []simwire.Header{{Type: simwire.Hello, Kind: simwire.RoleCompute}, {Type: simwire.Charge, Kind: 4, Bytes: silicon.MiB}, {Type: simwire.Ring}} {
			if out := k.handle(request{session: victim, header: h}); out.header.Status != simwire.OK {
				t.Fatalf("%+v: %v", h, out.header.Status)
			} else if out.file != nil {
				_ = out.file.Close()
			}
		}
		const step = simwire.HeaderSize - 4 // all but the magic
		for n := 0; len(input) >= step && n < 100; n, input = n+1, input[step:] {
			var h simwire.Header
			if _, err := binary.Decode(append([]byte("Dsim"), input[:step]...), binary.LittleEndian, &h); err != nil {
				t.Fatal(err)
			}
			out := k.handle(request{session: s, header: h, payload: input[:min(len(input), int(h.PayloadBytes%128))]})
			if out.file != nil {
				_ = out.file.Close()
			}
			if out.header.Type != h.Type || out.header.Sequence != h.Sequence || len(out.payload) > simwire.PayloadBytes {
				t.Fatalf("%+v is answered %+v", h, out.header)
			}
			for card := range k.machine.Cards() {
				c, used, _, err := k.machine.Card(card)
				if err != nil || used > c.UsableBytes() {
					t.Fatalf("GPU %d: %d of %d bytes used, %v", card, used, c.UsableBytes(), err)
				}
				var held uint64
				list, _ := k.machine.Processes(card, 0, 1000)
				for _, u := range list {
					held += u.Bytes
				}
				if held > used {
					t.Fatalf("GPU %d: processes hold %d of %d used bytes", card, held, used)
				}
			}
		}
	})
}
