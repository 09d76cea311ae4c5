// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"slices"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/gpu"
	"github.com/divvy-gpu/divvy/internal/partition"
)

// AddShares notes on cards which shares of an agent are on them. A card that its agent knows to be divided holds none, whatever was
// declared of it once.
func AddShares(cards []partition.Card, known []api.Card, shares []api.Share) {
	for _, k := range known {
		i := slices.IndexFunc(cards, func(o partition.Card) bool { return o.UUID == k.UUID })
		if i < 0 || k.Health == string(gpu.Unshareable) {
			continue
		}
		for _, s := range shares {
			if s.CardUUID == k.UUID {
				cards[i].Shares = append(cards[i].Shares, s.Name)
			}
		}
	}
}
