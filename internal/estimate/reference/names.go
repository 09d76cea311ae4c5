// SPDX-License-Identifier: Apache-2.0

package reference

import (
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/estimate"
	"github.com/divvy-gpu/divvy/internal/pattern"
	"github.com/divvy-gpu/divvy/internal/selector"
)

// modelAliases are other names of the same shape; the file's notes say so.
var modelAliases = map[string]string{
	"llama-3.1-8b": "llama-3-8b", "llama-3.1-70b": "llama-3-70b", "llama-3.3-70b": "llama-3-70b", "gpt3": "gpt3-175b", "gpt-3": "gpt3-175b", "gpt-3-175b": "gpt3-175b",
}

// endings are what names of models end in without being another shape.
var endings = []string{"-instruct", "-chat", "-base", "-hf", "-it", "-fp8", "-awq", "-gptq"}

func plainModel(name string) string {
	name = strings.ToLower(strings.TrimSpace(name))
	if at := strings.LastIndex(name, "/"); at >= 0 {
		name = name[at+1:]
	}
	name = strings.NewReplacer("_", "-", " ", "-", "meta-llama-", "llama-").Replace(name)
	for cut := true; cut; {
		cut = false
		for _, end := range endings {
			if short, ok := strings.CutSuffix(name, end); ok {
				name, cut = short, true
			}
		}
	}
	return name
}

// ModelNamed finds a model by its name, or by the name that its makers give it on a
// hub.
func (f *File) ModelNamed(name string) (*estimate.Model, bool) {
	for _, wanted := range []string{name, plainModel(name), modelAliases[plainModel(name)]} {
		for i := range f.Models {
			if wanted != "" && f.Models[i].Name == wanted {
				model := f.Models[i].Model
				return &model, true
			}
		}
	}
	return nil, false
}

// ModelNames lists the models.
func (f *File) ModelNames() []string {
	var names []string
	for _, m := range f.Models {
		names = append(names, m.Name)
	}
	return names
}

// CardNames lists the cards.
func (f *File) CardNames() []string {
	var names []string
	for _, c := range f.Cards {
		names = append(names, c.Name)
	}
	return names
}

// cardName is a card's name taken apart.
type cardName struct {
	family string // h100, 4090, mi300x
	form   string // sxm, pcie, nvl, or empty
	memory string // digits, or empty
}

var (
	memoryWord = pattern.Of(`^([0-9]+)gi?b$`)
	formWord   = pattern.Of(`^(sxm|pcie|nvl)[0-9]?$`)
	noiseWord  = pattern.Of(`^(nvidia|tesla|geforce|rtx|amd|instinct|intel|habana|data|center|gpu|oam|hbm[0-9]e?|simulated|corporation|r|x[0-9]+)$`)
	separators = pattern.Of(`[^a-z0-9.]+`)
)

func takeApart(name string) cardName {
	var n cardName
	for _, word := range separators().Split(strings.ToLower(name), -1) {
		switch {
		case word == "" || noiseWord().MatchString(word):
		case memoryWord().MatchString(word):
			n.memory = memoryWord().FindStringSubmatch(word)[1]
		case formWord().MatchString(word):
			n.form = formWord().FindStringSubmatch(word)[1]
		default:
			n.family += word
		}
	}
	n.family = strings.TrimPrefix(n.family, "rtx")
	return n
}

// CardsNamed finds the kinds of card that a name may mean: as papers, drivers and
// this file write them. A name without a form means the one for sockets where
// there is one; a name without its memory may mean several.
func (f *File) CardsNamed(name string) []*estimate.Datasheet {
	for i := range f.Cards {
		if strings.EqualFold(f.Cards[i].Name, name) {
			return []*estimate.Datasheet{&f.Cards[i]}
		}
	}
	wanted := takeApart(name)
	var found []*estimate.Datasheet
	socket := false
	for i := range f.Cards {
		known := takeApart(f.Cards[i].Name)
		if known.family == "" || known.family != wanted.family || wanted.memory != "" && known.memory != wanted.memory || wanted.form != "" && known.form != wanted.form {
			continue
		}
		found = append(found, &f.Cards[i])
		socket = socket || known.form == "sxm"
	}
	if wanted.form == "" && socket {
		found = slices.DeleteFunc(found, func(c *estimate.Datasheet) bool { return takeApart(c.Name).form != "sxm" })
	}
	return found
}

// Nearest gives the names that are most like one.
func Nearest(name string, names []string) []string { return selector.Nearest(plainModel(name), names) }

// NearestCards gives the cards whose family is most like the one of a name.
func (f *File) NearestCards(name string) []string {
	wanted := takeApart(name).family
	var near []string
	least := len(wanted)
	for i := range f.Cards {
		family := takeApart(f.Cards[i].Name).family
		far := 2 * selector.Distance(wanted, family)
		if strings.HasPrefix(wanted, family) || strings.HasPrefix(family, wanted) {
			far--
		}
		switch {
		case wanted == "" || far > least:
		case far < least:
			least, near = far, []string{f.Cards[i].Name}
		default:
			near = append(near, f.Cards[i].Name)
		}
	}
	return near[:min(len(near), 4)]
}

// UnknownModel is the error for a name that no model has.
func (f *File) UnknownModel(name string) error {
	text := fmt.Sprintf("model %q is not known", name)
	if near := Nearest(name, f.ModelNames()); len(near) > 0 {
		text += ": did you mean " + strings.Join(near, ", ") + "?"
	}
	return badf("%s", text)
}

// SortedSources lists the keys of a file's sources.
func SortedSources(f *File) []string {
	var keys []string
	for key := range f.Sources {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}
