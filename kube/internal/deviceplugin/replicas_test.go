// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"os"
	"path/filepath"
	"testing"

	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/internal/cdi"
)

// Replicas are what CDI files say, of our class only; one that is gone is refused.
func TestReplicas(t *testing.T) {
	folder := t.TempDir()
	write := func(class, id string) {
		text := `{"cdiVersion":"0.3.0","kind":"divvy.dev/` + class + `","devices":[{"name":"` + id + `","containerEdits":{"env":["A=b"]}}],"containerEdits":{}}`
		if err := os.WriteFile(filepath.Join(folder, "divvy.dev-"+class+"_"+id+".json"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("replica", "b-2")
	write("replica", "a-1")
	write("card", "a")
	r := &Replicas{Folders: []cdi.Folder{cdi.Folder(folder), cdi.Folder(filepath.Join(folder, "none"))}}
	devices, err := r.devices()
	if err != nil || len(devices) != 2 || devices[0].ID != "a-1" || devices[0].Health != pluginapi.Healthy {
		t.Fatalf("%v %v", devices, err)
	}
	ask := func(ids ...string) (*pluginapi.AllocateResponse, error) {
		return r.Allocate(t.Context(), &pluginapi.AllocateRequest{ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}}})
	}
	answer, err := ask("b-2", "a-1")
	if err != nil || len(answer.ContainerResponses[0].CdiDevices) != 2 || answer.ContainerResponses[0].CdiDevices[0].Name != "divvy.dev/replica=b-2" {
		t.Errorf("%v %v", answer, err)
	}
	if answer, err := ask("c-1"); err == nil {
		t.Errorf("%v", answer)
	}
}
