// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
)

// maxCheckpointBytes is more than the kubelet writes for all pods of a node.
const maxCheckpointBytes = 16 << 20

// holders are who has some devices, by the kubelet's own account.
type holders struct {
	pod        string // UID
	containers []string
}

// readHolders looks up who has exactly these devices of a resource. The kubelet's socket for
// such questions (pod-resources) leaves out init containers and the pod's UID, so its
// check-point is read, which it writes before it starts a container. Its format has no
// version: what is not understood is an error, never a guess.
func readHolders(file, resource string, ids []string) (holders, error) {
	from, err := os.Open(file)
	if err != nil {
		return holders{}, fmt.Errorf("read the kubelet's check-point: %w", err)
	}
	defer from.Close() // only read from: nothing is lost
	raw, err := io.ReadAll(io.LimitReader(from, maxCheckpointBytes+1))
	if err != nil {
		return holders{}, fmt.Errorf("read the kubelet's check-point: %w", err)
	}
	if len(raw) > maxCheckpointBytes {
		return holders{}, fmt.Errorf("the kubelet's check-point has more than %d bytes", maxCheckpointBytes)
	}
	return parseHolders(raw, resource, ids)
}

func parseHolders(raw []byte, resource string, ids []string) (holders, error) {
	var checkpoint struct {
		Data *struct {
			PodDeviceEntries []struct {
				PodUID, ContainerName, ResourceName string
				DeviceIDs                           map[string][]string // by NUMA node
			}
		}
	}
	if err := json.Unmarshal(raw, &checkpoint); err != nil {
		return holders{}, fmt.Errorf("the kubelet's check-point: %w", err)
	}
	if checkpoint.Data == nil {
		return holders{}, fmt.Errorf("the kubelet's check-point has no data: this kubelet's is another one than is known here")
	}
	wanted := slices.Sorted(slices.Values(ids))
	var found holders
	for _, entry := range checkpoint.Data.PodDeviceEntries {
		if entry.ResourceName != resource {
			continue
		}
		var has []string
		for _, devices := range entry.DeviceIDs {
			has = append(has, devices...)
		}
		slices.Sort(has)
		if entry.PodUID != found.pod && found.pod != "" && slices.ContainsFunc(has, func(id string) bool { return slices.Contains(wanted, id) }) {
			return holders{}, fmt.Errorf("the kubelet's check-point gives devices %q to pods %s and %s", ids, found.pod, entry.PodUID)
		}
		if slices.Equal(has, wanted) {
			found.pod = entry.PodUID
			found.containers = append(found.containers, entry.ContainerName)
		}
	}
	if found.pod == "" {
		return holders{}, fmt.Errorf("the kubelet's check-point gives devices %q to no container", ids)
	}
	return found, nil
}
