// SPDX-License-Identifier: Apache-2.0

package placement

import "fmt"

// Quotas holds what each tenant may use at a time, in thousandths of a card. A
// tenant without an entry is not limited.
type Quotas struct {
	products Products
	limit    map[string]int64
	used     map[string]int64
}

// NewQuotas returns the book for the given limits on cards of these products.
func NewQuotas(products Products, limitMilli map[string]int64) *Quotas {
	return &Quotas{products: products, limit: limitMilli, used: map[string]int64{}}
}

// Take books the requests together, or none of them when one tenant's limit
// would be passed; the error names the tenant and what is left.
func (q *Quotas) Take(requests ...Request) error {
	for i, r := range requests {
		limit, limited := q.limit[r.Tenant]
		if limited && q.used[r.Tenant]+q.products.Demand(r) > limit {
			left := limit - q.used[r.Tenant]
			for _, taken := range requests[:i] {
				q.used[taken.Tenant] -= q.products.Demand(taken)
			}
			return fmt.Errorf("tenant %s: %w: %d thousandths of a GPU asked, %d of %d left", r.Tenant, ErrNoRoom, q.products.Demand(r), left, limit)
		}
		q.used[r.Tenant] += q.products.Demand(r)
	}
	return nil
}

// GiveBack returns what Take booked.
func (q *Quotas) GiveBack(requests ...Request) {
	for _, r := range requests {
		q.used[r.Tenant] -= q.products.Demand(r)
	}
}

// Used returns what the tenant has booked.
func (q *Quotas) Used(tenant string) int64 { return q.used[tenant] }
