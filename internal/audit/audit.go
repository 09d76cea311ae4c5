// SPDX-License-Identifier: Apache-2.0

// Package audit keeps who did what, so that a change of what is kept shows: JSON lines in
// files by month, each line with the hash of the one before. It does not decide what is kept,
// and nothing here can keep root from writing a chain anew, or from cutting its end: who has a
// head from before sees that.
//
//	l, err := audit.Open("/var/lib/divvy/audit", audit.Bounds{Bytes: 1 << 30})
//	err = l.Append([]api.AuditLine{{Verb: "share.delete", Object: "train", Outcome: audit.Done}})
//	report, err := audit.Verify("/var/lib/divvy/audit", nil)
package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/divvy-gpu/divvy/internal/api"
)

// Verbs that the chain itself has a meaning for; docs/audit.md lists all.
const (
	Gap     = "gap"           // something was not written, or is damaged
	Dropped = "audit.dropped" // the oldest file went, for there was no room
	Summed  = "summed"        // what a user did too often to be recorded one by one
)

// Outcomes.
const (
	Asked   = "asked" // before it is done, where nothing is done without
	Done    = "done"
	Refused = "refused"
	Failed  = "failed"
)

// Bounds of what is written of one line; the reader takes longer ones.
const (
	maxObject    = 128
	maxReason    = 512
	maxName      = 64
	maxDetail    = 4 << 10
	maxLineBytes = 64 << 10
)

// first is what the first line of a chain has for the one before.
const first = "0000000000000000000000000000000000000000000000000000000000000000"

// hashStart and hashEnd are around the hash at the end of a line.
const (
	hashStart = `,"hash":"`
	hashEnd   = "\"}\n"
	hashChars = 2 * sha256.Size
	tailBytes = len(hashStart) + hashChars + len(hashEnd)
)

// Head is the last line of a chain, or one that was.
type Head struct {
	Sequence uint64
	Hash     string
}

func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Sequence, h.Hash) }

// ParseHead reads what String writes.
func ParseHead(text string) (Head, error) {
	number, hash, _ := strings.Cut(text, ":")
	sequence, err := strconv.ParseUint(number, 10, 63)
	if err != nil || sequence == 0 || !isHash(hash) {
		return Head{}, fmt.Errorf("%.100q is not a head like 4711:%s", text, first[:8]+"... (64 digits)")
	}
	return Head{sequence, hash}, nil
}

func isHash(text string) bool {
	raw, err := hex.DecodeString(text)
	return err == nil && len(raw) == sha256.Size && strings.ToLower(text) == text
}

// body is a line without its hash.
type body struct {
	Sequence uint64          `json:"seq"`
	Time     time.Time       `json:"time"`
	Actor    api.AuditActor  `json:"actor"`
	Verb     string          `json:"verb"`
	Object   string          `json:"object,omitempty"`
	Outcome  string          `json:"outcome"`
	Reason   string          `json:"reason,omitempty"`
	Count    uint64          `json:"count,omitempty"`
	Detail   json.RawMessage `json:"detail,omitempty"`
	Prev     string          `json:"prev"`
}

// encode writes a line that comes after another one, and returns the head that it is.
func encode(line api.AuditLine, after Head) ([]byte, Head, error) {
	b := body{
		Sequence: after.Sequence + 1, Time: line.Time.UTC(), Actor: line.Actor, Verb: line.Verb, Object: cut(line.Object, maxObject), Outcome: line.Outcome,
		Reason: cut(line.Reason, maxReason), Count: line.Count, Detail: line.Detail, Prev: after.Hash,
	}
	b.Actor.Name = cut(b.Actor.Name, maxName)
	if len(b.Detail) > maxDetail {
		b.Detail = fmt.Appendf(nil, `{"leftOutBytes":%d}`, len(b.Detail))
	}
	raw, err := json.Marshal(b)
	if err != nil {
		return nil, after, fmt.Errorf("audit line of %s: %w", line.Verb, err)
	}
	raw = raw[:len(raw)-1] // the closing brace comes after the hash
	hash := hashOf(raw)
	raw = append(raw, hashStart+hash+hashEnd...)
	return raw, Head{b.Sequence, hash}, nil
}

// cut shortens a text to so many bytes.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	text = text[:most-3]
	for len(text) > 0 && !utf8.ValidString(text[max(0, len(text)-utf8.UTFMax):]) && !utf8.RuneStart(text[len(text)-1]) {
		text = text[:len(text)-1]
	}
	return strings.ToValidUTF8(text, "") + "..."
}

func hashOf(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:])
}

// What is wrong with a line by itself.
var (
	errTorn    = errors.New("it has no end")
	errNoHash  = errors.New("it does not end with a hash")
	errChanged = errors.New("its bytes are not those that its hash is of")
	errForm    = errors.New("it is no line of an audit")
)

// decode reads a line with its line feed, and checks its hash.
func decode(raw []byte) (api.AuditLine, error) {
	var line api.AuditLine
	if len(raw) == 0 || raw[len(raw)-1] != '\n' {
		return line, errTorn
	}
	if len(raw) < tailBytes || !bytes.HasSuffix(raw, []byte(hashEnd)) {
		return line, errNoHash
	}
	before, tail := raw[:len(raw)-tailBytes], raw[len(raw)-tailBytes:]
	hash := string(tail[len(hashStart) : len(hashStart)+hashChars])
	if !bytes.HasPrefix(tail, []byte(hashStart)) || !isHash(hash) {
		return line, errNoHash
	}
	if hashOf(before) != hash {
		return line, errChanged
	}
	if json.Unmarshal(raw, &line) != nil || line.Sequence == 0 || !isHash(line.Prev) || line.Hash != hash {
		return api.AuditLine{}, errForm
	}
	return line, nil
}

// Digest is what stands in a line for something longer.
func Digest(raw []byte) string { return hashOf(raw) }

func head(line api.AuditLine) Head { return Head{line.Sequence, line.Hash} }
