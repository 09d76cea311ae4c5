// SPDX-License-Identifier: Apache-2.0

package silicon

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

const (
	// MaxCards is the most cards of one simulator.
	MaxCards = 32
	// MaxSpecBytes bounds the text of a SPEC.
	MaxSpecBytes = 1024
	// DefaultSpec is the card of a simulator that is not told otherwise.
	DefaultSpec = "H100-80GB"
)

// Card is one simulated card: a model with an identity.
type Card struct {
	Model
	Index     int
	UUID      [16]byte
	Serial    string
	PCIDomain uint32
	PCIBus    uint32
}

// UsableBytes is what processes can hold of the card in all.
func (c Card) UsableBytes() uint64 { return (c.TotalMiB - c.ReservedMiB) * MiB }

// UUIDString writes the UUID as drivers do.
func (c Card) UUIDString() string {
	u := c.UUID
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", u[0:4], u[4:6], u[6:8], u[8:10], u[10:16])
}

// ParseSpec reads a SPEC: models with a count, like "H100-80GB",
// "2xA100-40GB" or "H100-80GB,L4". Upper and lower case are the same. The
// cards of equal specs and seeds have equal identities.
func ParseSpec(text string, seed uint64) ([]Card, error) {
	if len(text) > MaxSpecBytes {
		return nil, fmt.Errorf("GPUs %.32q...: longer than %d bytes", text, MaxSpecBytes)
	}
	models := Models()
	var cards []Card
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		count, key, err := splitCount(part)
		if err != nil {
			return nil, fmt.Errorf("GPUs %q: %w", text, err)
		}
		model, ok := findModel(models, key)
		if !ok {
			return nil, fmt.Errorf("GPUs %q: no model %q; known are %s", text, key, knownModels(models))
		}
		if len(cards)+count > MaxCards {
			return nil, fmt.Errorf("GPUs %q: more than %d GPUs", text, MaxCards)
		}
		for range count {
			cards = append(cards, newCard(model, len(cards), seed))
		}
	}
	return cards, nil
}

// splitCount takes "2xL4" apart; without a count it is 1.
func splitCount(part string) (int, string, error) {
	if part == "" {
		return 0, "", fmt.Errorf("empty entry; write models with commas between, like 2xA100-40GB,L4")
	}
	digits := 0
	for digits < len(part) && part[digits] >= '0' && part[digits] <= '9' {
		digits++
	}
	if digits == 0 {
		return 1, part, nil
	}
	if digits == len(part) || (part[digits] != 'x' && part[digits] != 'X') {
		return 0, "", fmt.Errorf("%q: a count is written like 2xA100-40GB", part)
	}
	count, err := strconv.Atoi(part[:digits])
	if err != nil || count < 1 || count > MaxCards {
		return 0, "", fmt.Errorf("%q: the count must be between 1 and %d", part, MaxCards)
	}
	return count, part[digits+1:], nil
}

func findModel(models []Model, key string) (Model, bool) {
	for _, m := range models {
		if strings.EqualFold(m.Key, key) {
			return m, true
		}
		for _, alias := range m.Aliases {
			if strings.EqualFold(alias, key) {
				return m, true
			}
		}
	}
	return Model{}, false
}

func knownModels(models []Model) string {
	var keys []string
	for _, m := range models {
		keys = append(keys, m.Key)
	}
	return strings.Join(keys, ", ")
}

// newCard makes up an identity that depends on nothing but its arguments.
func newCard(model Model, index int, seed uint64) Card {
	hash := sha256.New()
	fmt.Fprintf(hash, "divvy simulated card\n%s\n%d\n%d\n", model.Key, index, seed)
	sum := hash.Sum(nil)
	c := Card{Model: model, Index: index, PCIBus: pciBus(index)}
	copy(c.UUID[:], sum)
	c.UUID[6] = c.UUID[6]&0x0f | 0x80 // version 8: made up by its own rule
	c.UUID[8] = c.UUID[8]&0x3f | 0x80
	c.Serial = fmt.Sprintf("%013d", binary.BigEndian.Uint64(sum[16:])%1e13)
	return c
}

// pciBus spreads cards over buses as servers do, all different.
func pciBus(index int) uint32 { return uint32(7 + 7*index) }
