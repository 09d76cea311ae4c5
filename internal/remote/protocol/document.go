// SPDX-License-Identifier: Apache-2.0

package protocol

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/divvy-gpu/divvy/internal/share"
)

// Schema names of the documents; fields are only ever added to a version. A request with a
// field that the server does not know is refused, for ignoring it would not be what was
// asked; an answer may have more than the client knows.
const (
	SchemaRun     = "divvy.remote.run/v1"
	SchemaRunning = "divvy.remote.running/v1"
	SchemaAsk     = "divvy.remote.ask/v1"
	SchemaStatus  = "divvy.remote.status/v1"
)

// Bounds of the documents, besides MaxControl.
const (
	maxWords     = 64  // of a command
	maxWordBytes = 255 // of any name or word
	maxNames     = 16384
)

// RunDocument asks for a run: a share for the programs of a command.
type RunDocument struct {
	Schema string `json:"schema"`
	// Join is the declared share to join; empty: a new one, which what follows describes in
	// the words of the agent's interface.
	Join         string            `json:"join,omitempty"`
	Name         string            `json:"name,omitempty"`
	GPU          string            `json:"gpu,omitempty"`
	MemoryBytes  uint64            `json:"memoryBytes,omitempty"`
	CoresPercent int               `json:"coresPercent,omitempty"`
	Policy       share.Policy      `json:"policy,omitempty"`
	Weight       int               `json:"weight,omitempty"`
	Priority     int               `json:"priority,omitempty"`
	Enforce      share.Enforcement `json:"enforce,omitempty"`
	Labels       share.Labels      `json:"labels,omitempty"`
	Command      []string          `json:"command"` // names only, for people
	Client       ClientDocument    `json:"client"`
}

// ClientDocument is what a client says of itself, for people.
type ClientDocument struct {
	Host    string `json:"host"`
	User    string `json:"user"`
	Version string `json:"version"`
}

// RunningDocument answers it. The run lasts as long as its connection.
type RunningDocument struct {
	Schema string         `json:"schema"`
	Token  string         `json:"token"` // 64 hexadecimal digits, of a Token
	Share  string         `json:"share"`
	Device DeviceDocument `json:"device"`
	Driver DriverDocument `json:"driver"`
	Notes  []string       `json:"notes,omitempty"` // for the user
}

// DeviceDocument is the GPU of a run.
type DeviceDocument struct {
	UUID        string `json:"uuid"`
	Name        string `json:"name"`
	MemoryBytes uint64 `json:"memoryBytes"` // the share's quota, or the GPU's
	Simulated   bool   `json:"simulated"`
	Enforcement string `json:"enforcement"` // that the share is held at
}

// DriverDocument is what a client library is fitted to.
type DriverDocument struct {
	Release string   `json:"release"` // like 535.104.05
	BuildID string   `json:"buildId"` // hexadecimal; another one for another build
	CUDA    []string `json:"cuda"`    // what libcuda.so.1 exports
	NVML    []string `json:"nvml"`    // and libnvidia-ml.so.1; empty: there is none
}

// AskDocument asks the server about itself.
type AskDocument struct {
	Schema string `json:"schema"`
}

// StatusDocument answers it: of a tenant's own runs, and for the server's owner of all.
type StatusDocument struct {
	Schema      string        `json:"schema"`
	Version     string        `json:"version"`
	Since       time.Time     `json:"since"`
	Draining    bool          `json:"draining"`
	Connections int           `json:"connections"` // all, also of others
	Waiting     int           `json:"waiting"`     // of those, that have not said yet what they want
	Refusals    uint64        `json:"refusals"`
	Truncated   bool          `json:"truncated,omitempty"` // there are more runs than are listed
	Runs        []RunStatus   `json:"runs"`
	Tenants     []TenantTotal `json:"tenants"`
}

// RunStatus is a run.
type RunStatus struct {
	Share    string          `json:"share"`
	Joined   bool            `json:"joined"` // the share is declared, and stays
	Tenant   string          `json:"tenant"`
	User     string          `json:"user"`
	Client   ClientDocument  `json:"client"`
	From     string          `json:"from"` // address, or the unix socket's process
	Command  string          `json:"command"`
	CardUUID string          `json:"cardUuid"`
	Since    time.Time       `json:"since"`
	Sessions []SessionStatus `json:"sessions"`
	// Calls and RoundTrips are of all its sessions, those that have ended included.
	Calls      uint64 `json:"calls"`
	RoundTrips uint64 `json:"roundTrips"`
}

// SessionStatus is one process of a run.
type SessionStatus struct {
	ID        uint64    `json:"id"`
	Program   string    `json:"program"`
	PID       uint32    `json:"pid"`       // on the client
	WorkerPID int       `json:"workerPid"` // here
	Since     time.Time `json:"since"`
	Relayed   bool      `json:"relayed"` // the server passes its bytes on; else the worker has the connection
	InBytes   uint64    `json:"inBytes"` // passed on so far, from the client
	OutBytes  uint64    `json:"outBytes"`

	Calls      uint64 `json:"calls"`      // that its worker got
	RoundTrips uint64 `json:"roundTrips"` // of those, that the program waited for
}

// TenantTotal is what the runs of a tenant have together.
type TenantTotal struct {
	Name         string `json:"name"`
	Runs         int    `json:"runs"`
	Sessions     int    `json:"sessions"`
	MemoryBytes  uint64 `json:"memoryBytes"` // promised to runs with shares of their own
	CoresPercent int    `json:"coresPercent"`
}

// EncodeDocument is a document as it is sent.
func EncodeDocument(document any) ([]byte, error) {
	raw, err := json.Marshal(document)
	if err == nil && len(raw) > MaxControl {
		err = fmt.Errorf("%d bytes, more than %d", len(raw), MaxControl)
	}
	if err != nil {
		return nil, fmt.Errorf("write %T: %w", document, err)
	}
	return raw, nil
}

// DecodeRun reads the document of RUN.
func DecodeRun(raw []byte) (RunDocument, error) {
	var d RunDocument
	if err := decode(raw, SchemaRun, true, &d, &d.Schema); err != nil {
		return RunDocument{}, err
	}
	if err := d.Validate(); err != nil {
		return RunDocument{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return d, nil
}

// DecodeRunning reads the document of RUNNING.
func DecodeRunning(raw []byte) (RunningDocument, Token, error) {
	var d RunningDocument
	if err := decode(raw, SchemaRunning, false, &d, &d.Schema); err != nil {
		return RunningDocument{}, Token{}, err
	}
	token, err := ParseToken(d.Token)
	if err == nil {
		err = d.validate()
	}
	if err != nil {
		return RunningDocument{}, Token{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return d, token, nil
}

// DecodeAsk reads the document of a client's ADMIN.
func DecodeAsk(raw []byte) (AskDocument, error) {
	var d AskDocument
	return d, decode(raw, SchemaAsk, true, &d, &d.Schema)
}

// DecodeStatus reads the document of a server's ADMIN.
func DecodeStatus(raw []byte) (StatusDocument, error) {
	var d StatusDocument
	return d, decode(raw, SchemaStatus, false, &d, &d.Schema)
}

// decode reads one document of a schema into d.
func decode(raw []byte, schema string, strict bool, d any, found *string) error {
	if len(raw) > MaxControl {
		return fmt.Errorf("%w: a document of %d bytes", ErrProtocol, len(raw))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	// The schema first: of another one nothing else is to be complained of.
	var named struct {
		Schema string `json:"schema"`
	}
	if err := json.Unmarshal(raw, &named); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if named.Schema != schema {
		return fmt.Errorf("%w: schema %.64q, not %q", ErrProtocol, named.Schema, schema)
	}
	if strict {
		decoder.DisallowUnknownFields()
	}
	err := decoder.Decode(d)
	if err == nil && *found != schema { // a second field of that name, in other letters
		err = fmt.Errorf("schema %.64q, not %q", *found, schema)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return nil
}

// Validate says whether a run can be asked for so.
func (d RunDocument) Validate() error {
	if d.Join != "" {
		if d.Name != "" || d.GPU != "" || d.MemoryBytes != 0 || d.CoresPercent != 0 || d.Policy != "" || d.Weight != 0 || d.Priority != 0 || len(d.Labels) != 0 {
			return fmt.Errorf("share %.64q is to be joined and to be made", d.Join)
		}
		if err := share.CheckName(d.Join); err != nil {
			return err
		}
	}
	if d.Name != "" {
		if err := share.CheckName(d.Name); err != nil {
			return err
		}
	}
	for _, n := range []struct {
		what   string
		value  int
		within share.Range
	}{{"cores", d.CoresPercent, share.Cores}, {"weight", d.Weight, share.Weight}, {"priority", d.Priority, share.Priority}} {
		if n.value == 0 {
			continue
		}
		if err := n.within.Check(n.value); err != nil {
			return fmt.Errorf("%s: %w", n.what, err)
		}
	}
	if d.Policy != "" {
		if err := d.Policy.Validate(); err != nil {
			return err
		}
	}
	if d.Enforce != "" {
		if err := d.Enforce.Validate(); err != nil {
			return err
		}
	}
	if err := share.CheckLabels(d.Labels); err != nil {
		return err
	}
	if len(d.Command) > maxWords {
		return fmt.Errorf("a command of %d words, more than %d", len(d.Command), maxWords)
	}
	return checkWords(append([]string{d.GPU, d.Client.Host, d.Client.User, d.Client.Version}, d.Command...))
}

func (d RunningDocument) validate() error {
	if err := share.CheckName(d.Share); err != nil {
		return err
	}
	if len(d.Driver.CUDA) == 0 || len(d.Driver.CUDA) > maxNames || len(d.Driver.NVML) > maxNames || len(d.Notes) > maxWords {
		return fmt.Errorf("a driver with %d and %d names", len(d.Driver.CUDA), len(d.Driver.NVML))
	}
	if id, err := hex.DecodeString(d.Driver.BuildID); err != nil || len(id) == 0 || len(id) > 64 {
		return fmt.Errorf("a driver's build id %.140q", d.Driver.BuildID)
	}
	for _, list := range [][]string{{d.Device.UUID, d.Device.Name, d.Device.Enforcement, d.Driver.Release}, d.Driver.CUDA, d.Driver.NVML} {
		if err := checkWords(list); err != nil {
			return err
		}
	}
	return nil
}

// checkWords says whether texts are short and printable.
func checkWords(words []string) error {
	for _, word := range words {
		if len(word) > maxWordBytes || printable(word) != word {
			return fmt.Errorf("%.64q is not printable ASCII of at most %d bytes", word, maxWordBytes)
		}
	}
	return nil
}

// Word makes of a text what a document may hold.
func Word(text string) string { return printable(text[:min(len(text), maxWordBytes)]) }

// String is how a token stands in documents and in the environment.
func (t Token) String() string { return hex.EncodeToString(t[:]) }

// ParseToken reads one.
func ParseToken(text string) (Token, error) {
	var t Token
	if len(text) != 2*TokenBytes || strings.ToLower(text) != text {
		return t, fmt.Errorf("a token of %d characters", len(text))
	}
	if _, err := hex.Decode(t[:], []byte(text)); err != nil {
		return t, errors.New("a token that is not hexadecimal")
	}
	return t, nil
}
