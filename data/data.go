// SPDX-License-Identifier: Apache-2.0

// Package data holds the tables of this folder that the program itself reads.
package data

import _ "embed"

//go:embed mig-profiles.yaml
var migProfiles []byte

//go:embed llm-reference.yaml
var llmReference []byte

//go:embed health.yaml
var health []byte

// Health is data/health.yaml: what XIDs say of a GPU, and what is done about it.
func Health() []byte { return health }

// MIGProfiles is data/mig-profiles.yaml.
func MIGProfiles() []byte { return migProfiles }

// LLMReference is data/llm-reference.yaml: models, cards and what was published
// about them.
func LLMReference() []byte { return llmReference }
