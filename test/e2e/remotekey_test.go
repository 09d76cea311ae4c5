// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/certificates"
)

// The key of a certificate is in its file and in the relay, and nowhere else: not in what
// processes are started with, in no log, and not in the program's memory.
func TestRemoteKeyStaysInTheRelay(t *testing.T) {
	t.Parallel()
	s := newServedTLS(t, hostOptions{})
	bundle, err := certificates.ReadBundle(s.identity)
	if err != nil {
		t.Fatal(err)
	}
	key, is := bundle.Certificate.PrivateKey.(ed25519.PrivateKey)
	if !is {
		t.Fatalf("the key is a %T", bundle.Certificate.PrivateKey)
	}
	wanted := [][]byte{key.Seed(), []byte(hex.EncodeToString(key.Seed())), []byte(textOfKey(t, s.identity))}
	has := func(text []byte) bool {
		for _, w := range wanted {
			if bytes.Contains(text, w) {
				return true
			}
		}
		return false
	}
	env, _ := s.open(t, "--mem", "1GiB")
	holder := s.holderIn(t, env)
	do(t, holder, "start")
	of := running(t, func(process string) bool {
		return fileHas(process+"/cmdline", s.directory) || fileHas(process+"/environ", s.directory)
	})
	for _, pid := range of {
		for _, file := range []string{"cmdline", "environ"} {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, file)); err == nil && has(text) {
				t.Errorf("the key is in %s of process %d", file, pid)
			}
		}
	}
	if !slices.ContainsFunc(s.relays(t), func(pid int) bool { return inMemory(t, pid, has) }) {
		t.Error("control: the key is not found in the memory of a relay")
	}
	if inMemory(t, holder.PID, has) {
		t.Error("the key is in the program's memory")
	}
	files := 0
	if err := filepath.WalkDir(s.directory, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil // it went meanwhile
		}
		text, err := os.ReadFile(path)
		if err == nil && has(text) {
			if files++; path != s.identity {
				t.Errorf("the key is in %s", path)
			}
		}
		return nil
	}); err != nil || files != 1 {
		t.Errorf("control: %d files have the key, %v", files, err)
	}
}

// textOfKey is how a file has a key.
func textOfKey(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "PRIVATE KEY" {
			return base64.StdEncoding.EncodeToString(block.Bytes)[:64]
		}
	}
	t.Fatal("there is no key")
	return ""
}

// inMemory says whether a process has something in memory that it can write.
func inMemory(t *testing.T, pid int, has func([]byte) bool) bool {
	t.Helper()
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	memory, err := os.Open(fmt.Sprintf("/proc/%d/mem", pid))
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Close()
	const part = 1 << 20
	buffer := make([]byte, part+4096)
	read := 0
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		var begin, end int64
		var rights string
		if _, err := fmt.Sscanf(lines.Text(), "%x-%x %s", &begin, &end, &rights); err != nil || !strings.HasPrefix(rights, "rw") {
			continue
		}
		for at := begin; at < end; at += part { // what spans two parts is in the first's overhang
			n, err := memory.ReadAt(buffer[:min(int64(len(buffer)), end-at)], at)
			if err != nil && err != io.EOF {
				break // reserved, or gone
			}
			read += n
			if has(buffer[:n]) {
				return true
			}
		}
	}
	if read == 0 {
		t.Errorf("nothing of the memory of process %d could be read", pid)
	}
	return false
}
