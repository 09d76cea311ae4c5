// SPDX-License-Identifier: Apache-2.0

package server

import (
	"cmp"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/remote/protocol"
)

// answer answers what somebody asks of the server: who owns it is told of all runs, others of
// their own.
func (s *Server) answer(c *connection, payload []byte) error {
	if _, err := protocol.DecodeAsk(payload); err != nil {
		return err
	}
	all := c.UID == 0 || c.UID == os.Geteuid()
	status := protocol.StatusDocument{Schema: protocol.SchemaStatus, Version: s.parts.Version, Runs: []protocol.RunStatus{}, Tenants: []protocol.TenantTotal{}}
	s.do(func(st *state) {
		status.Since, status.Draining, status.Refusals = st.since, st.draining, st.refusals
		status.Connections, status.Waiting = len(st.connections), st.allWaiting
		seen := map[string]bool{}
		for _, r := range st.runs {
			if !all && r.Tenant != c.Tenant || r.ready == nil {
				continue
			}
			if !seen[r.Tenant] {
				seen[r.Tenant] = true
				status.Tenants = append(status.Tenants, st.totals(r.Tenant))
			}
			status.Runs = append(status.Runs, r.status())
		}
	})
	slices.SortFunc(status.Runs, func(a, b protocol.RunStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Share, b.Share))
	})
	slices.SortFunc(status.Tenants, func(a, b protocol.TenantTotal) int { return cmp.Compare(a.Name, b.Name) })
	raw, err := protocol.EncodeDocument(status)
	for err != nil && len(status.Runs) > 0 { // too many for one document: the newest are left out
		status.Runs = status.Runs[:len(status.Runs)/2]
		status.Truncated = true
		raw, err = protocol.EncodeDocument(status)
	}
	if err != nil {
		return err
	}
	return protocol.Write(c.conn, protocol.Admin, raw)
}

// status is what is told of a run.
func (r *run) status() protocol.RunStatus {
	is := protocol.RunStatus{
		Share: r.ready.share.Name, Joined: r.asked.Join != "", Tenant: r.Tenant, User: r.User, Client: r.asked.Client, From: r.From,
		Command: commandOf(r.asked), CardUUID: r.ready.share.CardUUID, Since: r.since, Sessions: []protocol.SessionStatus{},
		Calls: r.calls, RoundTrips: r.waits,
	}
	for n := range r.sessions {
		counted := n.tally.read()
		one := protocol.SessionStatus{ID: n.id, Program: n.program, PID: n.pid, WorkerPID: n.worker, Since: n.since, Calls: counted.Calls, RoundTrips: counted.Waits}
		is.Calls, is.RoundTrips = is.Calls+counted.Calls, is.RoundTrips+counted.Waits
		if n.pipe != nil {
			one.Relayed, one.InBytes, one.OutBytes = true, n.pipe.Sent.Load(), n.pipe.Received.Load()
		}
		is.Sessions = append(is.Sessions, one)
	}
	slices.SortFunc(is.Sessions, func(a, b protocol.SessionStatus) int { return cmp.Compare(a.ID, b.ID) })
	return is
}
