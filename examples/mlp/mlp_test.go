// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// The network was trained: without a card it knows almost all of its digits.
func TestNetworkKnowsDigits(t *testing.T) {
	model, err := readNetwork()
	if err != nil {
		t.Fatal(err)
	}
	right := 0
	for i := range 1000 {
		image, err := sample(i)
		if err != nil {
			t.Fatal(err)
		}
		if model.cpu(image).Digit() == i%Classes {
			right++
		}
	}
	if right < 970 {
		t.Errorf("%d of 1000 right", right)
	}
}

func TestReadImage(t *testing.T) {
	good := strings.Repeat("#.......\n", Side)
	image, err := ReadImage(good)
	if err != nil || image[0] != 1 || image[1] != 0 || image[Side] != 1 {
		t.Errorf("%v: %v", err, image)
	}
	for _, bad := range []string{"", good + "........\n", "#......\n" + good[9:], strings.Replace(good, "#", "x", 1)} {
		if _, err := ReadImage(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}
