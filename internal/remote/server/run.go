// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/internal/library"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/share"
)

// run is one run: a share, and the processes that use it.
type run struct {
	Identity
	asked    protocol.RunDocument
	spec     api.ShareSpec // of the share that was made for it, within the tenant's limits
	limits   Tenant
	since    time.Time
	uid      int    // of its workers; -1: what the server is
	taken    bool   // from the server's range
	ready    *ready // nil: not yet
	sessions map[*session]bool
	ending   bool
	over     chan struct{} // closed when it is to end
	empty    chan struct{} // closed when it is to end and has no session any more

	calls, waits uint64 // of sessions that have ended
}

// ready is what the processes of a run need; it does not change.
type ready struct {
	share   api.Share
	version api.Version
	agent   string // socket
	front   string
	uid     int
	hold    *client.Hold
	driver  *library.Driver
	release string // of the driver
}

// Labels of shares that are made for runs.
const (
	labelTenant = "divvy.remote/tenant"
	labelUser   = "divvy.remote/user"
	labelClient = "divvy.remote/client"
)

// run serves a run, which ends when its connection does.
func (s *Server) run(ctx context.Context, c *connection, payload []byte) error {
	asked, err := protocol.DecodeRun(payload)
	if err != nil {
		return err
	}
	limits, err := s.limits(c.Identity)
	if err != nil {
		return err
	}
	var token protocol.Token
	_, _ = rand.Read(token[:]) // it never fails
	r := &run{
		Identity: c.Identity, asked: asked, limits: limits, since: time.Now(), uid: -1, sessions: map[*session]bool{},
		over: make(chan struct{}), empty: make(chan struct{}),
	}
	key := sha256.Sum256(token[:])
	s.do(func(st *state) { err = st.begin(s.cfg, key, r) })
	if err != nil {
		return err
	}
	defer s.end(key, r)
	with, err := s.prepare(ctx, r)
	if err != nil {
		return err
	}
	defer s.letGo(ctx, r, with)
	defer s.stopSessions(r)
	s.do(func(*state) { r.ready = with })
	answer, err := protocol.EncodeDocument(with.document(token))
	if err != nil {
		return err
	}
	s.audit("share", "share", with.share.Name, "joined", asked.Join != "", "tenant", r.Tenant, "user", r.User, "from", r.From,
		"client", asked.Client.Host, "clientUser", asked.Client.User, "memoryBytes", with.share.MemoryBytes, "coresPercent", with.share.CoresPercent,
		"card", with.share.CardUUID, "command", commandOf(asked))
	if protocol.Write(c.conn, protocol.Running, answer) != nil {
		return nil // who asked is gone
	}
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		s.attend(c)
	}()
	select {
	case <-gone:
	case <-ctx.Done():
	case <-with.hold.Done():
		err = &protocol.Refusal{ExitCode: exitNotThere, Result: protocol.DeviceUnavailable, Message: fmt.Sprintf("share %s is gone from the server", with.share.Name)}
	}
	_ = c.conn.SetReadDeadline(time.Unix(1, 0))
	<-gone
	return err
}

// attend reads what comes on a run's connection, which is nothing but that it is alive.
func (s *Server) attend(c *connection) {
	for {
		f, _, err := protocol.Read(c.conn, protocol.MaxControl)
		if err != nil || f.Op != protocol.Ping || f.Flags&protocol.Answer == 0 && protocol.WritePing(c.conn, protocol.Answer) != nil {
			return
		}
	}
}

// begin counts a run in, within its tenant's limits.
func (st *state) begin(cfg Config, key [sha256.Size]byte, r *run) error {
	if st.draining {
		return &protocol.Refusal{ExitCode: exitUnreachable, Result: protocol.SystemNotReady, Message: "the server is about to end", Hint: "ask again when it is back"}
	}
	has := st.totals(r.Tenant)
	if r.limits.Runs > 0 && has.Runs >= r.limits.Runs {
		return notAllowed("%d runs: tenant %s may have no more at once", has.Runs, r.Tenant)
	}
	if r.asked.Join == "" {
		r.spec = specOf(r.asked, r.Identity)
		if err := r.limits.fit(&r.spec, has); err != nil {
			return err
		}
	}
	if cfg.UIDs.Count > 0 {
		r.uid, r.taken = r.UID, false
		for n := 0; r.uid < 0 && n < cfg.UIDs.Count; n++ {
			if uid := cfg.UIDs.First + n; !st.uids[uid] {
				r.uid, r.taken = uid, true
			}
		}
		if r.uid < 0 {
			return notAllowed("%d runs: the server has no more users for their workers", cfg.UIDs.Count)
		}
		if r.taken {
			st.uids[r.uid] = true
		}
	}
	if r.uid > 0 && r.asked.Join == "" {
		joins := r.uid
		r.spec.JoinUID = &joins
	}
	st.runs[key] = r
	return nil
}

// specOf is the share that a run asks for.
func specOf(d protocol.RunDocument, who Identity) api.ShareSpec {
	labels := share.Labels{}
	for key, value := range d.Labels {
		labels[key] = value
	}
	labels[labelTenant], labels[labelUser], labels[labelClient] = who.Tenant, who.User, protocol.Word(d.Client.User+"@"+d.Client.Host)
	return api.ShareSpec{
		Name: d.Name, GPU: d.GPU, GPUs: 1, MemoryBytes: d.MemoryBytes, CoresPercent: d.CoresPercent, Policy: d.Policy, Weight: d.Weight,
		Priority: d.Priority, Enforce: d.Enforce, Tenant: who.Tenant, Labels: labels, Ephemeral: true,
	}
}

// prepare gets the run its share, and what its workers and the client's library need.
func (s *Server) prepare(ctx context.Context, r *run) (*ready, error) {
	with := &ready{uid: r.uid}
	err := s.parts.Agent(ctx, func(agent *client.Client) (err error) {
		with.agent = agent.Socket()
		if with.version, err = agent.Version(ctx); err != nil {
			return err
		}
		if r.asked.Join != "" {
			with.share, err = joinable(ctx, agent, r)
		} else {
			with.share, err = agent.CreateShare(ctx, r.spec)
		}
		if err == nil {
			with.hold, err = agent.Hold(ctx, with.share.Name)
		}
		return err
	})
	if err == nil {
		with.release = s.releaseOf(ctx, with)
	}
	if err != nil {
		return nil, err
	}
	if r.uid >= 0 && with.share.JoinUID != nil {
		with.uid = *with.share.JoinUID
	}
	if err = r.mayUse(with.share); err == nil {
		with.driver, err = s.drivers.in(with.version.DriverDirectory)
	}
	if err == nil {
		with.front, err = s.parts.Front(with.version.DriverDirectory)
	}
	if err != nil {
		s.letGo(ctx, r, with)
		return nil, err
	}
	return with, nil
}

// releaseOf is what the driver of a run's GPU calls itself; empty: it is not known.
func (s *Server) releaseOf(ctx context.Context, with *ready) string {
	devices, err := client.New(with.agent).Devices(ctx)
	if err != nil {
		s.parts.Logger.Info("which release the driver is", "error", err)
		return ""
	}
	for _, card := range devices.Cards {
		if card.UUID == with.share.CardUUID {
			return protocol.Word(card.DriverVersion)
		}
	}
	return ""
}

// mayUse says whether a run may use the GPU of its share.
func (r *run) mayUse(is api.Share) error {
	uuids := is.CardUUIDs()
	if len(uuids) != 1 {
		return notAllowed("share %s has %d GPUs: a run elsewhere uses one", is.Name, len(uuids))
	}
	if len(r.limits.Cards) > 0 && !slices.Contains(r.limits.Cards, uuids[0]) {
		return notAllowed("share %s is on %s, which tenant %s may not use", is.Name, uuids[0], r.Tenant)
	}
	return nil
}

// joinable is the declared share that a run asks for, if it is its tenant's or user's. Of
// others nobody is told that they exist.
func joinable(ctx context.Context, agent *client.Client, r *run) (api.Share, error) {
	found, err := agent.Share(ctx, r.asked.Join)
	if err != nil {
		return api.Share{}, err
	}
	own := r.UID >= 0 && (found.Open || found.OwnerUID == r.UID || found.JoinUID != nil && *found.JoinUID == r.UID || r.UID == 0)
	if found.Tenant != r.Tenant && !own {
		return api.Share{}, &protocol.Refusal{ExitCode: exitNotThere, Result: protocol.DeviceUnavailable, Message: fmt.Sprintf("no share %q of tenant %s", r.asked.Join, r.Tenant)}
	}
	if !found.Enforcement.Meets(r.asked.Enforce) {
		return api.Share{}, notAllowed("share %s is held at level %s, and %s is demanded", found.Name, found.Enforcement, r.asked.Enforce)
	}
	return found, nil
}

// letGo lets the share go; one that was made for the run goes with it.
func (s *Server) letGo(ctx context.Context, r *run, with *ready) {
	if r.asked.Join == "" {
		// Not only with its hold: when the run has ended, its memory is free.
		err := client.New(with.agent).DeleteShare(context.WithoutCancel(ctx), with.share.Name, true)
		var failure *api.Error
		if err != nil && !(errors.As(err, &failure) && failure.Code == api.CodeNotFound) {
			s.parts.Logger.Warn("delete a share", "share", with.share.Name, "error", err)
		}
	}
	with.hold.Close()
}

// stopSessions ends all workers of a run and waits for them.
func (s *Server) stopSessions(r *run) {
	s.do(func(*state) { r.stop() })
	<-r.empty
}

// stop has a run end.
func (r *run) stop() {
	if r.ending {
		return
	}
	r.ending = true
	close(r.over)
	if len(r.sessions) == 0 {
		close(r.empty)
	}
}

// end forgets a run.
func (s *Server) end(key [sha256.Size]byte, r *run) {
	s.do(func(st *state) {
		delete(st.runs, key)
		if r.taken {
			delete(st.uids, r.uid)
		}
		st.settle()
	})
}

// document is what the client is told of its run.
func (r *ready) document(token protocol.Token) protocol.RunningDocument {
	d := protocol.RunningDocument{
		Schema: protocol.SchemaRunning, Token: token.String(), Share: r.share.Name,
		Device: protocol.DeviceDocument{
			UUID: r.share.CardUUID, Name: protocol.Word(r.share.CardName), MemoryBytes: r.share.LimitBytes,
			Simulated: r.version.Simulated, Enforcement: string(r.share.Enforcement),
		},
		Driver: protocol.DriverDocument{Release: r.release, BuildID: r.driver.BuildID(), CUDA: r.driver.CUDA, NVML: r.driver.NVML},
	}
	if r.share.Enforcement == share.Booked {
		d.Notes = append(d.Notes, protocol.Word("nothing enforces this share (level booked): "+r.share.EnforcementWhy))
	}
	return d
}

// commandOf is a command for people: its program's name.
func commandOf(d protocol.RunDocument) string {
	if len(d.Command) == 0 {
		return ""
	}
	return path.Base(d.Command[0])
}
