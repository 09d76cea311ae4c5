// SPDX-License-Identifier: Apache-2.0

package server

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

const whole = `listen: [unix:/run/divvy/serve.sock, "0.0.0.0:7190"]
certificates: /etc/divvy/remote
audit: /var/log/divvy/serve.log
drain: 5s
sessions: 100
uids: 70000-70099
tenants:
  vision:
    users: [0, 1234567]
    gpus: [GPU-1]
    memory: 8GiB
    cores: 150
    sessions: 16
    runs: 4
    priority: 10
  audio: {}
`

func TestParse(t *testing.T) {
	most := 10
	want := Config{
		Listen: []string{"unix:/run/divvy/serve.sock", "0.0.0.0:7190"}, Certificates: "/etc/divvy/remote", Audit: "/var/log/divvy/serve.log",
		Drain: 5 * time.Second, Sessions: 100, UIDs: UIDRange{70000, 100},
		Tenants: []Tenant{
			{Name: "vision", UIDs: []int{0, 1234567}, Cards: []string{"GPU-1"}, MemoryBytes: 8 << 30, CoresPercent: 150, Sessions: 16, Runs: 4, Priority: &most},
			{Name: "audio"},
		},
	}
	got, err := Parse([]byte(whole))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v, want\n%+v", got, err, want)
	}
	if got, err = Parse(nil); err != nil || !reflect.DeepEqual(got, Default()) {
		t.Errorf("nothing: %+v, %v", got, err)
	}
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"listen: {a: b}":                                 "line 1: listen: is no list",
		"listen: [serve.sock:x]":                         `listen: "serve.sock:x" is not HOST`,
		"listen: unix:serve.sock":                        "is not unix: and an absolute path",
		"\nport: 7190":                                   "line 2: port: no such field",
		"drain: 5":                                       "line 1: drain: is no time",
		"drain: -5s":                                     "drain: -5s is not between",
		"sessions: 0":                                    "sessions: 0 is not between",
		"uids: 5":                                        "line 1: uids: is not FIRST-LAST",
		"uids: 0-5":                                      "line 1: uids: is not FIRST-LAST",
		"tenants: [a]":                                   "line 1: tenants is not fields",
		"tenants:\n  A: {}":                              `line 2: A: tenant name "A" is not made of`,
		"tenants:\n  a:\n    memory: 1":                  "",
		"tenants:\n  a:\n    memory: 0":                  "line 3: a: memory: is no whole number of MiB",
		"tenants:\n  a:\n    memory: lots":               "line 3: a: memory:",
		"tenants:\n  a:\n    cores: 0":                   "line 3: a: cores: 0 is no percentage",
		"tenants:\n  a:\n    sessions: 0":                "line 3: a: sessions: is not between",
		"tenants:\n  a:\n    runs: x":                    "line 3: a: runs: is no whole number",
		"tenants:\n  a:\n    priority: 2000":             "line 3: a: priority: 2000 is not between",
		"tenants:\n  a:\n    users: nobody-of-this-name": "line 3: a: users: no user",
		"tenants:\n  a: {users: 7}\n  b: {users: 7}":     "tenants a and b: user 7 is both",
		"tenants:\n  a: {}\n  a: {}":                     `"a" is given twice`,
		"a: &x 1\nb: *x":                                 "aliases are not taken",
		"just text":                                      "line 1: the configuration is not fields",
	} {
		_, err := Parse([]byte(text))
		if (want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]Address{
		"gpu1": {Host: "gpu1", Port: "7190"}, "gpu1:1": {Host: "gpu1", Port: "1"}, "10.0.0.1": {Host: "10.0.0.1", Port: "7190"},
		"::1": {Host: "::1", Port: "7190"}, "[::1]:80": {Host: "::1", Port: "80"}, "[::1]": {Host: "::1", Port: "7190"}, "unix:/a b": {Socket: "/a b"},
		"": {}, ":80": {}, "a:b": {}, "a:0": {}, "a:65536": {}, "unix:": {}, "unix:a": {}, "user@gpu1": {}, "https://gpu1": {}, "a b": {},
	} {
		got, err := ParseAddress(text)
		if got != want || (err == nil) != (want != Address{}) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// Whatever stands in a file, what is accepted is valid, and an error is one line.
func FuzzParse(f *testing.F) {
	f.Add([]byte(whole))
	f.Add([]byte("tenants: {a: {memory: 1GiB}}"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		c, err := Parse(raw)
		if err == nil {
			err = c.Validate()
			if err != nil {
				t.Errorf("accepted, and not valid: %v", err)
			}
		} else if strings.Contains(err.Error(), "\n") {
			t.Errorf("%q", err)
		}
	})
}
