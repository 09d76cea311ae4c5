// SPDX-License-Identifier: Apache-2.0

// Package journal keeps records on disk so that they survive a crash at any
// byte: a file to which records are appended, each with its length and
// checksum, and which is now and then replaced by a shorter one. It does not
// know what the records mean.
//
// File: 8 bytes "divvyj1\n", then records: length (4 bytes, little endian),
// CRC-32C of the body (4 bytes), body.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	magic        = "divvyj1\n"
	headerBytes  = 8
	maxFileBytes = 256 << 20

	// MaxRecordBytes bounds one record. A card with 64 virtual functions that offer 60
	// types each takes half of it, as it was and as it is to be.
	MaxRecordBytes = 1 << 20
)

// ErrRecord says that a record cannot be kept.
var ErrRecord = errors.New("record too large or empty")

// ErrForeign says that a file is somebody else's.
var ErrForeign = errors.New("it is no journal of Divvy")

// Journal is an open journal. It belongs to one goroutine.
type Journal struct {
	path string
	file *os.File
	size int64
	kept string
}

// Kept is where the file is kept as it was, when it was damaged before records that could be
// read; empty: it was not.
func (j *Journal) Kept() string { return j.kept }

// Open reads what is left of the journal at path, and opens it for more. It
// makes an empty one where there is none. A file of another kind is left as it is:
// ErrForeign. lostBytes is what could not be read
// at the end: a record that was being written when its writer died, as a rule.
func Open(path string) (j *Journal, records [][]byte, lostBytes int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("open journal: %w", err)
	}
	defer func() {
		if err != nil {
			_ = file.Close()
		}
	}()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, 0, fmt.Errorf("open journal %s: %w", path, err)
	}
	if !info.Mode().IsRegular() { // to read a pipe would never end
		return nil, nil, 0, fmt.Errorf("open journal %s: %w: it is no regular file", path, ErrForeign)
	}
	raw, err := io.ReadAll(io.LimitReader(file, maxFileBytes+1))
	if err != nil {
		return nil, nil, 0, fmt.Errorf("read journal %s: %w", path, err)
	}
	if len(raw) > maxFileBytes {
		return nil, nil, 0, fmt.Errorf("journal %s has more than %d bytes", path, maxFileBytes)
	}
	records, good := Parse(raw)
	if more, read := salvage(raw, max(good, len(magic))); len(more) > 0 {
		return repair(path, file, raw, append(records, more...), int64(len(raw)-max(good, len(magic))-read))
	}
	if good == 0 && foreign(raw) {
		return nil, nil, 0, fmt.Errorf("open journal %s: %w", path, ErrForeign)
	}
	j = &Journal{path: path, file: file, size: int64(good)}
	if good < len(raw) || good == 0 {
		if err := j.truncate(int64(good)); err != nil {
			return nil, nil, 0, err
		}
	}
	if _, err := file.Seek(j.size, io.SeekStart); err != nil {
		return nil, nil, 0, fmt.Errorf("open journal %s: %w", path, err)
	}
	return j, records, int64(len(raw) - good), nil
}

// repair keeps a damaged file beside the journal, and makes the records that could be read
// the journal.
func repair(path string, file *os.File, raw []byte, records [][]byte, lostBytes int64) (*Journal, [][]byte, int64, error) {
	kept := path + ".damaged"
	if err := os.Remove(kept); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, nil, 0, fmt.Errorf("keep the damaged journal: %w", err)
	}
	bad, err := os.OpenFile(kept, os.O_WRONLY|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, nil, 0, fmt.Errorf("keep the damaged journal: %w", err)
	}
	_, err = bad.Write(raw)
	if err = errors.Join(err, bad.Sync(), bad.Close()); err != nil {
		return nil, nil, 0, fmt.Errorf("keep the damaged journal: %w", err)
	}
	j := &Journal{path: path, file: file, kept: kept}
	if err := j.Replace(records); err != nil {
		return nil, nil, 0, err
	}
	return j, records, lostBytes, nil
}

// maxSummed bounds what is added up in search of records: a file can be made to look like
// many of them.
const maxSummed = 4 * maxFileBytes

// salvage finds the records after damage at from, and how many bytes they take.
func salvage(raw []byte, from int) (records [][]byte, bytes int) {
	summed := 0
	for at := from; at+headerBytes < len(raw); {
		length := int(binary.LittleEndian.Uint32(raw[at:]))
		if length == 0 || length > MaxRecordBytes || length > len(raw)-at-headerBytes {
			at++
			continue
		}
		if summed += length; summed > maxSummed {
			break
		}
		body := raw[at+headerBytes : at+headerBytes+length]
		if checksum(body) != binary.LittleEndian.Uint32(raw[at+4:]) {
			at++
			continue
		}
		records = append(records, body)
		bytes += headerBytes + length
		at += headerBytes + length
	}
	return records, bytes
}

func (j *Journal) truncate(size int64) error {
	if err := j.file.Truncate(size); err != nil {
		return fmt.Errorf("cut journal %s: %w", j.path, err)
	}
	if size > 0 {
		return nil
	}
	if _, err := j.file.WriteAt([]byte(magic), 0); err != nil {
		return fmt.Errorf("start journal %s: %w", j.path, err)
	}
	j.size = int64(len(magic))
	return nil
}

// Parse returns the records at the start of raw that are whole, and how many
// bytes they take with the file's header; 0 when not even that is right.
func Parse(raw []byte) (records [][]byte, goodBytes int) {
	if len(raw) < len(magic) || string(raw[:len(magic)]) != magic {
		return nil, 0
	}
	good := len(magic)
	for {
		rest := raw[good:]
		if len(rest) < headerBytes {
			return records, good
		}
		length := binary.LittleEndian.Uint32(rest)
		if length == 0 || length > MaxRecordBytes || int(length) > len(rest)-headerBytes {
			return records, good
		}
		body := rest[headerBytes : headerBytes+int(length)]
		if checksum(body) != binary.LittleEndian.Uint32(rest[4:]) {
			return records, good
		}
		records = append(records, body)
		good += headerBytes + int(length)
	}
}

// foreign says whether raw is neither the start of a journal nor what a crash may
// leave of one: zeros or ones where a disk has not written.
func foreign(raw []byte) bool {
	start := raw[:min(len(raw), len(magic))]
	n := 0
	for n < len(start) && start[n] == magic[n] {
		n++
	}
	return slices.ContainsFunc(start[n:], func(b byte) bool { return b != 0 && b != 0xff })
}

func checksum(body []byte) uint32 {
	return crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli))
}

func encode(records [][]byte) ([]byte, error) {
	var out []byte
	for _, body := range records {
		if len(body) == 0 || len(body) > MaxRecordBytes {
			return nil, fmt.Errorf("%w: %d bytes", ErrRecord, len(body))
		}
		out = binary.LittleEndian.AppendUint32(out, uint32(len(body)))
		out = binary.LittleEndian.AppendUint32(out, checksum(body))
		out = append(out, body...)
	}
	return out, nil
}

// Append adds records with one write. They survive the death of the process
// when it returns, and of the machine after Sync. A failed write leaves the
// records before it readable.
func (j *Journal) Append(records ...[]byte) error {
	if len(records) == 0 {
		return nil
	}
	out, err := encode(records)
	if err != nil {
		return err
	}
	if j.size+int64(len(out)) > maxFileBytes {
		return fmt.Errorf("append to journal %s: it is full", j.path)
	}
	if _, err := j.file.WriteAt(out, j.size); err != nil {
		// Take back what was written of it, or a later record would follow rubbish.
		_ = j.file.Truncate(j.size)
		return fmt.Errorf("append to journal %s: %w", j.path, err)
	}
	j.size += int64(len(out))
	return nil
}

// Sync waits until everything is on disk.
func (j *Journal) Sync() error {
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("sync journal %s: %w", j.path, err)
	}
	return nil
}

// Syncer returns what waits, in any goroutine, until everything that the journal has now
// is on disk.
func (j *Journal) Syncer() func() error {
	file, path := j.file, j.path
	return func() error {
		if err := file.Sync(); err != nil && !errors.Is(err, os.ErrClosed) { // replaced by what is on disk
			return fmt.Errorf("sync journal %s: %w", path, err)
		}
		return nil
	}
}

// Size is how long the file is.
func (j *Journal) Size() int64 { return j.size }

// Replace makes records the whole content. Whoever opens the journal after a
// crash finds the old content or the new, never a mixture.
func (j *Journal) Replace(records [][]byte) error {
	out, err := encode(records)
	if err != nil {
		return err
	}
	out = append([]byte(magic), out...)
	next := j.path + ".next"
	if err := os.Remove(next); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("replace journal %s: %w", j.path, err)
	}
	file, err := os.OpenFile(next, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return fmt.Errorf("replace journal %s: %w", j.path, err)
	}
	_, err = file.Write(out)
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = os.Rename(next, j.path)
	}
	if err != nil {
		_ = file.Close()
		_ = os.Remove(next) // a full disk needs the room
		return fmt.Errorf("replace journal %s: %w", j.path, err)
	}
	_ = j.file.Close()
	j.file, j.size = file, int64(len(out))
	return syncDirectory(filepath.Dir(j.path))
}

func syncDirectory(path string) error {
	directory, err := os.Open(path)
	if err != nil {
		return fmt.Errorf("sync folder of the journal: %w", err)
	}
	defer directory.Close()
	if err := directory.Sync(); err != nil {
		return fmt.Errorf("sync folder of the journal: %w", err)
	}
	return nil
}

// Close closes the file.
func (j *Journal) Close() error { return j.file.Close() }
