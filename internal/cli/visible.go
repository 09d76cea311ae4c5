// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"strconv"
	"strings"
)

// visibleVariable names the GPUs that a CUDA program sees.
const visibleVariable = "CUDA_VISIBLE_DEVICES"

// visibleGPUs is the variable's value for a program of a share. A program that loads the
// front library counts from the share's GPUs, and many read numbers from the variable.
// One that does not is alone with the driver, which counts from the machine's.
func visibleGPUs(uuids []string, loads bool) string {
	if !loads {
		return strings.Join(uuids, ",")
	}
	numbers := make([]string, len(uuids))
	for i := range uuids {
		numbers[i] = strconv.Itoa(i)
	}
	return strings.Join(numbers, ",")
}
