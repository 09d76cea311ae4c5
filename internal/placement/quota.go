// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"

	"github.com/divvy-gpu/divvy/internal/mig"
)

// Quotas holds what each tenant may use at a time, in thousandths of a card. A
// tenant without an entry is not limited.
type Quotas struct {
	limit map[string]int64
	used  map[string]int64
}

// NewQuotas returns the book for the given limits.
func NewQuotas(limitMilli map[string]int64) *Quotas {
	return &Quotas{limit: limitMilli, used: map[string]int64{}}
}

// Take books the requests together, or none of them when one tenant's limit
// would be passed; the error names the tenant and what is left.
func (q *Quotas) Take(requests ...Request) error {
	for i, r := range requests {
		limit, limited := q.limit[r.Tenant]
		if limited && q.used[r.Tenant]+Demand(r) > limit {
			left := limit - q.used[r.Tenant]
			for _, taken := range requests[:i] {
				q.used[taken.Tenant] -= Demand(taken)
			}
			return fmt.Errorf("tenant %s: %w: %d thousandths of a GPU asked, %d of %d left", r.Tenant, ErrNoRoom, Demand(r), left, limit)
		}
		q.used[r.Tenant] += Demand(r)
	}
	return nil
}

// GiveBack returns what Take booked.
func (q *Quotas) GiveBack(requests ...Request) {
	for _, r := range requests {
		q.used[r.Tenant] -= Demand(r)
	}
}

// Used returns what the tenant has booked.
func (q *Quotas) Used(tenant string) int64 { return q.used[tenant] }

// Demand is what a request takes of cards, in thousandths of one; a partition
// counts a seventh of a card per compute slice.
func Demand(r Request) int64 {
	if r.Profile != "" {
		return int64(mig.SlicesOf(r.Profile)) * WholeCard / 7
	}
	return int64(r.GPUs) * r.GPUMilli
}
