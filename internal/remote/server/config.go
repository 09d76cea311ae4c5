// SPDX-License-Identifier: Apache-2.0

package server

import (
	"errors"
	"fmt"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/divvy-gpu/divvy/internal/share"
	"github.com/divvy-gpu/divvy/internal/size"
	"github.com/divvy-gpu/divvy/internal/yamldoc"
)

// Config is what an administrator decides.
type Config struct {
	Listen       []string // unix:/path or HOST:PORT
	Certificates string   // folder of the server's own, made by divvy certs init
	Audit        string   // file for one line per session, share and refusal; empty: none
	Drain        time.Duration
	Sessions     int // of all tenants together
	// UIDs are the numbers of users that nobody else has, of which each run's workers get
	// one where the server is root; Count 0: they stay what the server is.
	UIDs UIDRange
	// Tenants may ask for runs. None: everybody who comes in, without limits.
	Tenants []Tenant
}

// UIDRange is numbers of users.
type UIDRange struct{ First, Count int }

// Tenant is who pays, and what it may have at most; 0 and empty: no limit.
type Tenant struct {
	Name         string
	UIDs         []int    // users of this machine that are it, on the unix socket
	Cards        []string // UUIDs of the GPUs that it may use
	MemoryBytes  uint64   // of all its runs together
	CoresPercent int      // of all its runs together
	Sessions     int      // processes at once
	Runs         int
	Priority     *int // nil: none but 0
}

// Bounds of what has come in. Those of what is waiting hold before anybody is known.
const (
	maxWaiting         = 256
	maxWaitingEach     = 64 // of one address, or one user of the machine
	maxConnections     = 4096
	maxConnectionsEach = 3072             // of one tenant: others still come in
	patience           = 10 * time.Second // for who connects to say what is wanted
	maxSessions        = 100_000
	maxTenants         = 1000
	maxConfigBytes     = 1 << 20
)

// Default is the configuration where there is no file.
func Default() Config {
	return Config{Drain: 30 * time.Second, Sessions: 1000, UIDs: UIDRange{First: 0x70000000, Count: 65536}}
}

// Parse reads a configuration file; what it does not say is as in Default.
func Parse(raw []byte) (Config, error) {
	c := Default()
	root, err := yamldoc.Parse(raw, maxConfigBytes)
	if err != nil {
		return Config{}, err
	}
	if len(root.Content) == 0 {
		return c, nil
	}
	err = yamldoc.Fields(root.Content[0], "the configuration", func(key string, value *yaml.Node) error {
		var err error
		switch key {
		case "listen":
			c.Listen, err = texts(value)
		case "certificates":
			c.Certificates, err = text(value)
		case "audit":
			c.Audit, err = text(value)
		case "drain":
			c.Drain, err = duration(value)
		case "sessions":
			c.Sessions, err = number(value)
		case "uids":
			c.UIDs, err = uidRange(value)
		case "tenants":
			return yamldoc.Fields(value, "tenants", func(name string, value *yaml.Node) error {
				t, err := tenant(name, value)
				c.Tenants = append(c.Tenants, t)
				return err
			})
		default:
			err = errors.New("no such field")
		}
		return at(value, key, err)
	})
	if err == nil {
		err = c.Validate()
	}
	if err != nil {
		return Config{}, err
	}
	return c, nil
}

// at says where an error is.
func at(node *yaml.Node, key string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("line %d: %s: %w", node.Line, yamldoc.Short(key), err)
}

func tenant(name string, node *yaml.Node) (Tenant, error) {
	t := Tenant{Name: name}
	if err := share.CheckName(name); err != nil {
		return t, at(node, name, errors.New(strings.Replace(err.Error(), "share", "tenant", 1)))
	}
	return t, yamldoc.Fields(node, "tenant "+name, func(key string, value *yaml.Node) error {
		var err error
		switch key {
		case "users":
			var names []string
			if names, err = texts(value); err == nil {
				t.UIDs, err = userNumbers(names)
			}
		case "gpus":
			t.Cards, err = texts(value)
		case "memory":
			var word string
			if word, err = text(value); err == nil {
				t.MemoryBytes, err = size.Parse(word)
			}
		case "cores":
			t.CoresPercent, err = number(value)
		case "sessions":
			t.Sessions, err = number(value)
		case "runs":
			t.Runs, err = number(value)
		case "priority":
			var most int
			most, err = number(value)
			t.Priority = &most
		default:
			err = errors.New("no such field")
		}
		if err == nil {
			err = t.validate(key)
		}
		return at(value, name+": "+key, err)
	})
}

// validate checks one field.
func (t Tenant) validate(key string) error {
	switch {
	case key == "memory" && (t.MemoryBytes == 0 || t.MemoryBytes%size.MiB != 0):
		return errors.New("is no whole number of MiB, at least one")
	case key == "cores" && (t.CoresPercent < 1 || t.CoresPercent > 100*100):
		return fmt.Errorf("%d is no percentage of GPUs", t.CoresPercent)
	case key == "sessions" && (t.Sessions < 1 || t.Sessions > maxSessions), key == "runs" && (t.Runs < 1 || t.Runs > maxSessions):
		return fmt.Errorf("is not between 1 and %d", maxSessions)
	case key == "priority":
		return share.Priority.Check(*t.Priority)
	}
	return nil
}

// Validate says whether a server can be run so.
func (c Config) Validate() error {
	switch {
	case c.Drain < 0 || c.Drain > 24*time.Hour:
		return fmt.Errorf("drain: %v is not between 0 and 24h", c.Drain)
	case c.Sessions < 1 || c.Sessions > maxSessions:
		return fmt.Errorf("sessions: %d is not between 1 and %d", c.Sessions, maxSessions)
	case len(c.Tenants) > maxTenants:
		return fmt.Errorf("%d tenants, more than %d", len(c.Tenants), maxTenants)
	case c.UIDs.Count != 0 && (c.UIDs.First < 1 || c.UIDs.Count < 0 || c.UIDs.First+c.UIDs.Count > 1<<31-1):
		return fmt.Errorf("uids: %d and %d more are no numbers of users", c.UIDs.First, c.UIDs.Count)
	}
	for _, address := range c.Listen {
		if _, err := ParseAddress(address); err != nil {
			return fmt.Errorf("listen: %w", err)
		}
	}
	whose := map[int]string{}
	for _, t := range c.Tenants {
		for _, uid := range t.UIDs {
			if other, twice := whose[uid]; twice {
				return fmt.Errorf("tenants %s and %s: user %d is both", other, t.Name, uid)
			}
			whose[uid] = t.Name
		}
	}
	return nil
}

// texts reads a list, or one.
func texts(node *yaml.Node) ([]string, error) {
	if node.Kind == yaml.ScalarNode {
		one, err := text(node)
		return []string{one}, err
	}
	if node.Kind != yaml.SequenceNode {
		return nil, errors.New("is no list")
	}
	var all []string
	for _, entry := range node.Content {
		one, err := text(entry)
		if err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}

func text(node *yaml.Node) (string, error) {
	if node.Kind != yaml.ScalarNode || node.Value == "" {
		return "", errors.New("is no text")
	}
	return node.Value, nil
}

func number(node *yaml.Node) (int, error) {
	n, err := strconv.ParseInt(node.Value, 10, 32)
	if node.Kind != yaml.ScalarNode || err != nil {
		return 0, errors.New("is no whole number")
	}
	return int(n), nil
}

func duration(node *yaml.Node) (time.Duration, error) {
	d, err := time.ParseDuration(node.Value)
	if node.Kind != yaml.ScalarNode || err != nil {
		return 0, errors.New("is no time like 30s")
	}
	return d, nil
}

// uidRange reads FIRST-LAST, or 0 for none.
func uidRange(node *yaml.Node) (UIDRange, error) {
	if node.Kind == yaml.ScalarNode && node.Value == "0" {
		return UIDRange{}, nil
	}
	low, high, found := strings.Cut(node.Value, "-")
	first, err := strconv.ParseUint(low, 10, 31)
	last, errLast := strconv.ParseUint(high, 10, 31)
	if node.Kind != yaml.ScalarNode || !found || err != nil || errLast != nil || first == 0 || last < first {
		return UIDRange{}, errors.New("is not FIRST-LAST, nor 0")
	}
	return UIDRange{First: int(first), Count: int(last-first) + 1}, nil
}

func userNumbers(names []string) ([]int, error) {
	var uids []int
	for _, name := range names {
		number := name
		if known, err := user.Lookup(name); err == nil {
			number = known.Uid
		}
		uid, err := strconv.ParseUint(number, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("no user %q", yamldoc.Short(name))
		}
		uids = append(uids, int(uid))
	}
	slices.Sort(uids)
	return slices.Compact(uids), nil
}

// Address is where a server listens.
type Address struct {
	Socket string // path of a unix socket; empty: a port
	Host   string
	Port   string
}

// DefaultPort is where a server listens whose address names none.
const DefaultPort = "7190"

// ParseAddress reads unix:/path, HOST, HOST:PORT or [IPV6]:PORT.
func ParseAddress(text string) (Address, error) {
	if path, is := strings.CutPrefix(text, "unix:"); is {
		if !strings.HasPrefix(path, "/") {
			return Address{}, fmt.Errorf("%q is not unix: and an absolute path", yamldoc.Short(text))
		}
		return Address{Socket: path}, nil
	}
	host, port := text, DefaultPort
	if i := strings.LastIndexByte(text, ':'); i >= 0 && (strings.HasSuffix(text[:i], "]") || strings.Count(text, ":") == 1) {
		host, port = text[:i], text[i+1:]
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || bare == "" || len(bare) > 253 || strings.ContainsAny(bare, "/[] \t@?#%") {
		return Address{}, fmt.Errorf("%q is not HOST, HOST:PORT or unix:/path", yamldoc.Short(text))
	}
	return Address{Host: bare, Port: port}, nil
}
