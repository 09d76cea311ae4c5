// SPDX-License-Identifier: Apache-2.0

package client

import (
	"encoding/json"
	"fmt"
	"io"
)

// maxDocumentBytes is the most that one document of an answer without an end may have.
const maxDocumentBytes = 16 << 20

// documents are those of an answer that has no end, each of which has a bound.
type documents struct {
	bound   *io.LimitedReader
	decoder *json.Decoder
}

func newDocuments(body io.Reader) *documents {
	bound := &io.LimitedReader{R: body}
	return &documents{bound: bound, decoder: json.NewDecoder(bound)}
}

// next waits for the next one. After an error there is none.
func (d *documents) next(into any) error {
	d.bound.N = maxDocumentBytes
	err := d.decoder.Decode(into)
	if err != nil && d.bound.N == 0 {
		return fmt.Errorf("a document of more than %d bytes: %w", maxDocumentBytes, err)
	}
	return err
}
