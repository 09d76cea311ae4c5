// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"fmt"
	"net/http"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/core"
)

func apiCordon(o *core.Cordon) *api.Cordon {
	if o == nil {
		return nil
	}
	cordon := &api.Cordon{Since: o.Since, Reason: o.Reason, Automatic: o.Automatic, LiftSeconds: o.LiftAfter.Seconds(), Class: o.Class}
	if !o.Automatic {
		cordon.UID = &o.By
	}
	return cordon
}

// putCordon keeps new shares off a GPU.
func (h handlers) putCordon(w http.ResponseWriter, r *http.Request, peer asker) error {
	var asked api.CordonRequest
	if err := h.read(w, r, &asked); err != nil {
		return err
	}
	return h.cordon(w, r, peer, func(l *loop, card string) (string, error) {
		return l.core.CordonCard(l.now, card, asked.Reason, peer.UID)
	})
}

func (h handlers) deleteCordon(w http.ResponseWriter, r *http.Request, peer asker) error {
	return h.cordon(w, r, peer, func(l *loop, card string) (string, error) { return l.core.UncordonCard(l.now, card, peer.UID) })
}

func (h handlers) cordon(w http.ResponseWriter, r *http.Request, peer asker, change func(l *loop, card string) (string, error)) error {
	if !h.trusted(peer) {
		return &api.Error{Code: api.CodeNotAllowed, Message: fmt.Sprintf("only root, uid %d and operators cordon GPUs of this agent", h.uid)}
	}
	answer := api.Cordoned{Schema: api.SchemaCordon}
	if err := h.ask(r, func(l *loop) error {
		uuid, err := change(l, r.PathValue("card"))
		if err != nil {
			return err
		}
		l.carryOut()
		if err := l.saveAll(); err != nil {
			return &api.Error{Code: api.CodeUnavailable, Message: fmt.Sprintf("what is asked of GPU %s would not outlive the agent: %v", uuid, err),
				Hint: "make room on the disk that has " + l.cfg.JournalDirectory}
		}
		answer.CardUUID = uuid
		auditOf(r).about(uuid)
		for _, c := range l.core.Cards() {
			if c.UUID == uuid {
				answer.Cordon = apiCordon(c.Cordon)
			}
		}
		return nil
	}); err != nil {
		return err
	}
	h.synced(r)
	write(w, http.StatusOK, answer)
	return nil
}
