// SPDX-License-Identifier: Apache-2.0

package usage

import (
	"fmt"
	"math/big"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// Prices are what GPUs cost, in millionths of a currency per hour.
type Prices struct {
	Currency                  string
	MemoryWeight, CoresWeight int64            // millionths, which add up to one
	Models, UUIDs             map[string]int64 // a GPU's own price goes before its model's
}

// Bounds of price files.
const (
	maxPriceBytes = 1 << 20
	maxName       = 128
	maxPrice      = 1e6 // of a currency per hour
)

const micros = 1_000_000

// of is the price of a card.
func (p Prices) of(c Card) (int64, bool) {
	if price, ok := p.UUIDs[c.UUID]; ok {
		return price, true
	}
	price, ok := p.Models[c.Model]
	return price, ok
}

// ParsePrices reads a price file.
func ParsePrices(raw []byte) (Prices, error) {
	p := Prices{MemoryWeight: micros / 2, CoresWeight: micros / 2, Models: map[string]int64{}, UUIDs: map[string]int64{}}
	root, err := yamldoc.Parse(raw, maxPriceBytes)
	if err != nil {
		return Prices{}, err
	}
	if root.Kind == 0 {
		return Prices{}, fmt.Errorf("no prices: currency and cards are needed")
	}
	priced := false
	if err := yamldoc.Fields(root.Content[0], "the document", func(key string, value *yaml.Node) (err error) {
		switch key {
		case "currency":
			p.Currency, err = text(value, key)
		case "weights":
			err = p.readWeights(value)
		case "cards":
			priced = true
			err = p.readCards(value)
		default:
			err = fmt.Errorf("unknown field %q: currency, weights and cards are known", yamldoc.Short(key))
		}
		return err
	}); err != nil {
		return Prices{}, err
	}
	switch {
	case p.Currency == "":
		return Prices{}, fmt.Errorf("no currency")
	case !priced:
		return Prices{}, fmt.Errorf("no cards")
	}
	return p, nil
}

func (p *Prices) readWeights(node *yaml.Node) error {
	given := map[string]int64{}
	if err := yamldoc.Fields(node, "weights", func(key string, value *yaml.Node) error {
		if key != "memory" && key != "cores" {
			return fmt.Errorf("weights: unknown field %q: memory and cores are known", yamldoc.Short(key))
		}
		weight, err := decimal(value, "weights: "+key, 1)
		given[key] = weight
		return err
	}); err != nil {
		return err
	}
	if len(given) != 2 || given["memory"]+given["cores"] != micros {
		return fmt.Errorf("weights: memory and cores have to add up to 1")
	}
	p.MemoryWeight, p.CoresWeight = given["memory"], given["cores"]
	return nil
}

func (p *Prices) readCards(node *yaml.Node) error {
	if node.Kind != yaml.SequenceNode {
		return fmt.Errorf("line %d: cards is not a list", node.Line)
	}
	for _, entry := range node.Content {
		var model, uuid string
		price := int64(-1)
		what := fmt.Sprintf("line %d", entry.Line)
		if err := yamldoc.Fields(entry, "a GPU", func(key string, value *yaml.Node) (err error) {
			switch key {
			case "model":
				model, err = text(value, what+": model")
			case "uuid":
				uuid, err = text(value, what+": uuid")
			case "price":
				price, err = decimal(value, what+": price", maxPrice)
			default:
				err = fmt.Errorf("%s: unknown field %q: model, uuid and price are known", what, yamldoc.Short(key))
			}
			return err
		}); err != nil {
			return err
		}
		into, name := p.Models, model
		if uuid != "" {
			into, name = p.UUIDs, uuid
		}
		_, twice := into[name]
		switch {
		case (model == "") == (uuid == ""):
			return fmt.Errorf("%s: a GPU has either a model or a uuid", what)
		case price < 0:
			return fmt.Errorf("%s: %s has no price", what, name)
		case twice:
			return fmt.Errorf("%s: %s has two prices", what, name)
		}
		into[name] = price
	}
	return nil
}

// decimal reads a number of at most six digits behind the point, in millionths.
func decimal(node *yaml.Node, what string, most int64) (int64, error) {
	const wanted = "is not a number like 2.10, with at most 6 digits behind the point"
	if node.Kind != yaml.ScalarNode || len(node.Value) > 32 {
		return 0, fmt.Errorf("%s %s", what, wanted)
	}
	if strings.HasPrefix(node.Value, "-") {
		return 0, fmt.Errorf("%s: %q is negative", what, node.Value)
	}
	if strings.Trim(node.Value, "0123456789.") != "" || node.Value == "" || node.Value == "." {
		return 0, fmt.Errorf("%s: %q %s", what, node.Value, wanted)
	}
	value, ok := new(big.Rat).SetString(node.Value)
	if !ok {
		return 0, fmt.Errorf("%s: %q %s", what, node.Value, wanted)
	}
	value.Mul(value, big.NewRat(micros, 1))
	if !value.IsInt() {
		return 0, fmt.Errorf("%s: %q %s", what, node.Value, wanted)
	}
	if value.Cmp(new(big.Rat).SetInt64(most*micros)) > 0 {
		return 0, fmt.Errorf("%s: %q is more than %d", what, node.Value, most)
	}
	return value.Num().Int64(), nil
}

func text(node *yaml.Node, what string) (string, error) {
	if node.Kind != yaml.ScalarNode || node.Value == "" || len(node.Value) > maxName || strings.ContainsFunc(node.Value, func(r rune) bool { return r < ' ' }) {
		return "", fmt.Errorf("%s is not a text of 1 to %d bytes", what, maxName)
	}
	return node.Value, nil
}
