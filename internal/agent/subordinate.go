// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"bufio"
	"cmp"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of a machine's own list of subordinate user ids.
const (
	maxSubordinates      = 1 << 16
	maxSubordinatesBytes = 4 << 20
)

// subordinates says whose a machine's subordinate user ids are. Who has some can be each of them outside
// of user namespaces, too: by a program with the setuid bit that he gave to the id inside of one.
type subordinates struct {
	path, users string // as /etc/subuid and /etc/passwd

	mutex   sync.Mutex // guards the rest
	changed time.Time  // the file that the ranges are of
	ranges  []subordinateRange
}

type subordinateRange struct{ first, count, owner int }

// person is who has a user id: if it is a subordinate one, whom the machine gave it to.
func (s *subordinates) person(uid int) int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	info, err := os.Stat(s.path)
	if err != nil {
		return uid
	}
	if !info.ModTime().Equal(s.changed) {
		s.changed, s.ranges = info.ModTime(), readSubordinates(s.path, s.users)
	}
	after, _ := slices.BinarySearchFunc(s.ranges, uid, func(r subordinateRange, uid int) int { return cmp.Compare(r.first, uid+1) })
	if after == 0 {
		return uid
	}
	if r := s.ranges[after-1]; uid-r.first < r.count {
		return r.owner
	}
	return uid
}

// readSubordinates reads the ranges of all users but root, who stays the only one, in the order of their ids.
func readSubordinates(path, users string) []subordinateRange {
	uids := map[string]int{}
	for _, user := range fieldsOfLines(users, maxUsersBytes, maxUsers) {
		if uid, err := strconv.Atoi(user[min(2, len(user)-1)]); err == nil {
			uids[user[0]] = uid
		}
	}
	var ranges []subordinateRange
	for _, line := range fieldsOfLines(path, maxSubordinatesBytes, maxSubordinates) {
		owner, known := uids[line[0]]
		if number, err := strconv.Atoi(line[0]); err == nil && !known {
			owner = number
		}
		if len(line) != 3 || owner <= 0 {
			continue
		}
		first, err := strconv.Atoi(line[1])
		count, err2 := strconv.Atoi(line[2])
		if err == nil && err2 == nil && first > 0 {
			ranges = append(ranges, subordinateRange{first, count, owner})
		}
	}
	slices.SortFunc(ranges, func(a, b subordinateRange) int { return cmp.Compare(a.first, b.first) })
	return ranges
}

// fieldsOfLines reads a file of lines with colons; of one that cannot be read, none.
func fieldsOfLines(path string, mostBytes int64, most int) (all [][]string) {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer file.Close() // only read from: nothing is lost
	lines := bufio.NewScanner(io.LimitReader(file, mostBytes))
	for len(all) < most && lines.Scan() {
		all = append(all, strings.SplitN(lines.Text(), ":", 4))
	}
	return all
}
