// SPDX-License-Identifier: Apache-2.0

package api

import (
	"encoding/json"
	"time"
)

// Schemas of the audit's documents.
const (
	SchemaAudit       = "divvy.audit/v1"
	SchemaAuditHead   = "divvy.audit.head/v1"
	SchemaAuditVerify = "divvy.audit.verify/v1"
)

// Audit is some lines of the audit.
type Audit struct {
	Schema string      `json:"schema"`
	Lines  []AuditLine `json:"lines"`
	Unread int         `json:"unread"` // lines that are none: divvy audit verify says which
}

// AuditLine says that somebody did something, or was refused it. docs/audit.md has the verbs.
type AuditLine struct {
	Sequence uint64          `json:"seq"`
	Time     time.Time       `json:"time"`
	Actor    AuditActor      `json:"actor"`
	Verb     string          `json:"verb"`
	Object   string          `json:"object,omitempty"`
	Outcome  string          `json:"outcome"`
	Reason   string          `json:"reason,omitempty"`
	Count    uint64          `json:"count,omitempty"` // how often; absent: once
	Detail   json.RawMessage `json:"detail,omitempty"`
	Prev     string          `json:"prev"` // hash of the line before
	Hash     string          `json:"hash"`
}

// AuditActor is who did it, by the kernel's word.
type AuditActor struct {
	UID  int    `json:"uid"`
	PID  int    `json:"pid,omitempty"`
	Name string `json:"name,omitempty"` // what the program is called
	Via  string `json:"via"`            // api, share (a program at its share's socket), agent (by itself)
}

// AuditHead is the last line of the audit.
type AuditHead struct {
	Schema   string `json:"schema"`
	Sequence uint64 `json:"seq"` // 0: there is none
	Hash     string `json:"hash"`
	// Directory has its files.
	Directory string `json:"directory"`
}

// AuditVerified is what came of reading a whole audit.
type AuditVerified struct {
	Schema string `json:"schema"`
	OK     bool   `json:"ok"`
	Files  int    `json:"files"`
	Lines  uint64 `json:"lines"`
	// First is the number of the first line that is there: more than 1 where the oldest went.
	First uint64    `json:"first"`
	Head  AuditHead `json:"head"` // the last line that is right
	// Gaps are lines that say that something is missing.
	Gaps uint64    `json:"gaps"`
	Bad  *AuditBad `json:"bad"` // null: all is right
}

// AuditBad is the first line that is not right.
type AuditBad struct {
	File string `json:"file"`
	Line uint64 `json:"line"` // in the file, from 1; 0: it has no such line
	Why  string `json:"why"`
}
