// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"net/http"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
	"github.com/divvy-gpu/divvy/internal/share"
)

func (h handlers) getClients(w http.ResponseWriter, r *http.Request, peer asker) error {
	wanted, err := wantedLabels(r)
	if err != nil {
		return err
	}
	h.driverWatch.reconcile(r.Context())
	h.driverWatch.lookAtAll(r.Context())
	clients := api.Clients{Schema: api.SchemaClients, Simulated: simulated(h.cards), Clients: []api.Client{}}
	if clients.Unresponsive, err = h.eachShare(r, func(l *loop, name string) {
		labels := l.core.Labels(name)
		if !labels.Match(wanted) {
			return
		}
		for _, c := range l.core.ClientsOf(name) {
			client := api.Client{
				PID: c.PID, UID: c.UID, Command: h.commandFor(peer, c), Share: c.Share, Labels: labels, CardUUID: c.CardUUID, State: string(c.State),
				UsedBytes: c.UsedBytes, ContextBytes: c.ContextBytes, DriverBytes: c.DriverBytes, Allocations: c.Allocations,
				Denials: c.Denials, Launches: c.Launches, Since: c.Since, Enforcement: l.levelOf(c),
			}
			for _, b := range several(c.Balances) {
				client.Cards = append(client.Cards, api.ClientCard{CardUUID: b.CardUUID, UsedBytes: b.UsedBytes, ContextBytes: b.ContextBytes,
					DriverBytes: b.DriverBytes, Allocations: b.Allocations, Launches: b.Launches})
			}
			clients.Clients = append(clients.Clients, client)
		}
	}); err != nil {
		return err
	}
	write(w, http.StatusOK, clients)
	return nil
}

// levelOf is how strongly a process is held: no more than its share is now.
func (l *loop) levelOf(c core.ClientView) share.Enforcement {
	level := l.enforcements[c.Share].Level
	if m := l.members[c.ID]; m != nil && m.level != "" && !m.level.Meets(level) {
		level = m.level
	}
	return level
}
