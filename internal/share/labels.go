// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Labels are what a client says of a share, by which it finds again what is its own.
// They mean nothing to Divvy.
type Labels map[string]string

// Bounds of labels, in number and bytes.
const (
	MaxLabels          = 16
	MaxLabelKeyBytes   = 128
	MaxLabelValueBytes = 256
)

// CheckLabels says whether a share may have these labels.
func CheckLabels(labels Labels) error {
	if len(labels) > MaxLabels {
		return fmt.Errorf("%d labels, a share has at most %d", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if err := checkLabelKey(key); err != nil {
			return err
		}
		if value := labels[key]; len(value) > MaxLabelValueBytes || strings.ContainsFunc(value, unprintable) {
			return fmt.Errorf("the value of label %q is not printable ASCII of at most %d bytes", key, MaxLabelValueBytes)
		}
	}
	return nil
}

func checkLabelKey(key string) error {
	other := func(r rune) bool { return unprintable(r) || r == '=' || r == ',' || r == ' ' }
	if key == "" || len(key) > MaxLabelKeyBytes || strings.ContainsFunc(key, other) {
		return fmt.Errorf("label %.140q is not printable ASCII without '=', ',' and space, at most %d bytes of it", key, MaxLabelKeyBytes)
	}
	return nil
}

func unprintable(r rune) bool { return r < ' ' || r > '~' }

// ParseLabels reads KEY=VALUE; the value may be empty. A key that is there twice is an
// error.
func ParseLabels(texts []string) (Labels, error) {
	labels := Labels{}
	for _, text := range texts {
		key, value, found := strings.Cut(text, "=")
		if _, twice := labels[key]; twice || !found {
			return nil, fmt.Errorf("label %.140q is not KEY=VALUE, each key once", text)
		}
		labels[key] = value
	}
	return labels, CheckLabels(labels)
}

// Match says whether all of wanted are among the labels.
func (l Labels) Match(wanted Labels) bool {
	for key, value := range wanted {
		if has, ok := l[key]; !ok || has != value {
			return false
		}
	}
	return true
}
