// SPDX-License-Identifier: Apache-2.0

package server

import (
	"fmt"
	"os"
	"slices"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/remote/protocol"
	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
)

// tenantOf is the tenant of a user of this machine.
func (s *Server) tenantOf(who Identity) (string, error) {
	for _, t := range s.cfg.Tenants {
		if slices.Contains(t.UIDs, who.UID) {
			return t.Name, nil
		}
	}
	if len(s.cfg.Tenants) == 0 {
		return who.User, nil
	}
	return "", notAllowed("user %d of the server's machine belongs to no tenant of it", who.UID)
}

// limits is what a tenant may have. Without a word about tenants there are no limits.
func (s *Server) limits(who Identity) (Tenant, error) {
	for _, t := range s.cfg.Tenants {
		if t.Name == who.Tenant {
			return t, nil
		}
	}
	if len(s.cfg.Tenants) > 0 {
		return Tenant{}, notAllowed("tenant %s is none of this server's", who.Tenant)
	}
	t := Tenant{Name: who.Tenant}
	if who.UID == 0 || who.UID == os.Geteuid() { // may ask the agent for it as well
		most := share.Priority.Most
		t.Priority = &most
	}
	return t, nil
}

func notAllowed(format string, args ...any) *protocol.Refusal {
	return &protocol.Refusal{ExitCode: exitNotAllowed, Result: protocol.DeviceUnavailable, Message: fmt.Sprintf(format, args...)}
}

// totals is what a tenant's runs have together.
func (st *state) totals(tenant string) protocol.TenantTotal {
	total := protocol.TenantTotal{Name: tenant}
	for _, r := range st.runs {
		if r.Tenant != tenant {
			continue
		}
		total.Runs++
		total.Sessions += len(r.sessions)
		total.MemoryBytes += r.spec.MemoryBytes
		total.CoresPercent += r.spec.CoresPercent
	}
	return total
}

// fit bounds a share that is asked for by what the tenant has left. Where nothing is said of
// what the tenant has a part of, it is what is left.
func (t Tenant) fit(spec *api.ShareSpec, has protocol.TenantTotal) error {
	most := 0
	if t.Priority != nil {
		most = *t.Priority
	}
	if spec.Priority > most {
		r := notAllowed("priority %d: tenant %s may have %d at most", spec.Priority, t.Name, most)
		r.Hint = fmt.Sprintf("--priority %d", most)
		return r
	}
	if t.MemoryBytes > 0 {
		left := t.MemoryBytes - min(has.MemoryBytes, t.MemoryBytes)
		if spec.MemoryBytes == 0 {
			spec.MemoryBytes = left
		}
		if spec.MemoryBytes > left || left == 0 {
			r := notAllowed("%s of memory: tenant %s has %s of its %s left", size.Format(spec.MemoryBytes), t.Name, size.Format(left), size.Format(t.MemoryBytes))
			r.Result = protocol.OutOfMemory
			r.Hint = "--mem " + size.Format(left)
			if left == 0 {
				r.Hint = "divvy remote status shows its runs"
			}
			return r
		}
	}
	if t.CoresPercent > 0 {
		if spec.Policy != "" && spec.Policy != share.Fixed {
			r := notAllowed("policy %s: tenant %s has a fixed part of the GPUs' time", spec.Policy, t.Name)
			r.Hint = "--policy fixed"
			return r
		}
		left := t.CoresPercent - min(has.CoresPercent, t.CoresPercent)
		if spec.CoresPercent == 0 {
			spec.CoresPercent = min(left, share.Cores.Most)
		}
		if spec.CoresPercent > left || left == 0 {
			r := notAllowed("%d %% of a GPU's time: tenant %s has %d of its %d left", spec.CoresPercent, t.Name, left, t.CoresPercent)
			r.Hint = fmt.Sprintf("--cores %d", left)
			if left == 0 {
				r.Hint = "divvy remote status shows its runs"
			}
			return r
		}
	}
	spec.Among = t.Cards
	return nil
}
