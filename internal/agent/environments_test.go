// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/process"
)

// Processes whose environment never comes (here a pipe that nobody writes to) keep nobody, and
// there are no more reads that hang than a few, however often they are asked for.
func TestEnvironmentThatHangs(t *testing.T) {
	root := t.TempDir()
	const hanging, good, all = 3, 7, mostEnvironments + 10
	folder := func(pid int) string {
		path := filepath.Join(root, strconv.Itoa(pid))
		must(t, os.MkdirAll(path, 0o700))
		return filepath.Join(path, "environ")
	}
	must(t, unix.Mkfifo(folder(hanging), 0o600))
	must(t, os.WriteFile(folder(good), []byte("A=b\x00C=d\x00"), 0o600))
	e := newEnvironments(process.New(root))
	read := make(chan string)
	go func() {
		for range all {
			read <- e.variable(hanging, "A")
		}
		read <- e.variable(good, "C")
	}()
	late := time.After(10 * time.Second)
	for i := range all + 1 {
		select {
		case v := <-read:
			if want := map[bool]string{true: "d"}[i == all]; v != want {
				t.Errorf("read %q, want %q", v, want)
			}
		case <-late:
			t.Fatal("it waits for who does not answer")
		}
	}
	writer, err := os.OpenFile(folder(hanging), os.O_WRONLY, 0)
	must(t, err)
	_, err = writer.WriteString("A=b\x00")
	must(t, err)
	must(t, writer.Close())
	eventually(t, "the read has ended", func() bool {
		e.mutex.Lock()
		defer e.mutex.Unlock()
		return len(e.read) == 0
	})
}
