// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Forty containers that start at once do not wait for each other at the API server's door: a
// client's own limit of 5 requests a second would take 6 s for these.
func TestManyStartsAtOnce(t *testing.T) {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "pod"}}`)
	}))
	defer api.Close()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "clusters": [{"name": "c", "cluster": {"server": %q}}],
"contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}], "current-context": "c"}`, api.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	kube, err := apiServer(file)
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	var starts sync.WaitGroup
	for range 40 {
		starts.Go(func() {
			if _, err := kube.CoreV1().Pods("default").Get(t.Context(), "pod", metav1.GetOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	starts.Wait()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("they took %.1f s", took.Seconds())
	}
}
