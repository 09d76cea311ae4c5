// SPDX-License-Identifier: Apache-2.0

package core

// Unaccounted lists who holds memory of a card by the driver's account and is on no
// ledger; nobody while the driver does not name processes of shares, for then those it
// names may be ours by other numbers.
func (c *Core) Unaccounted(cardUUID string, account Account) []Holding {
	k := c.cardOf(cardUUID)
	if k == nil || k.blind || !k.unseen.IsZero() {
		return nil
	}
	var found []Holding
	for pid, h := range account.holdings() {
		if len(c.byPID[pid]) == 0 {
			found = append(found, h)
		}
	}
	return found
}

// OnLedger says whether a process is.
func (c *Core) OnLedger(pid int) bool { return len(c.byPID[pid]) > 0 }
