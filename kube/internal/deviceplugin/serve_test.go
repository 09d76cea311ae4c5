// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/kube/internal/fakeagent"
	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// fakeKubelet hears of plugins.
type fakeKubelet struct {
	pluginapi.UnimplementedRegistrationServer
	registered chan *pluginapi.RegisterRequest
}

func (k *fakeKubelet) Register(_ context.Context, request *pluginapi.RegisterRequest) (*pluginapi.Empty, error) {
	k.registered <- request
	return &pluginapi.Empty{}, nil
}

func (k *fakeKubelet) start(t *testing.T, folder string) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", filepath.Join(folder, kubeletSocket))
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	pluginapi.RegisterRegistrationServer(server, k)
	served := make(chan error)
	go func() { served <- server.Serve(listener) }()
	return func() {
		server.Stop()
		<-served
	}
}

// The plugin registers with a kubelet that comes, and again with the next one, which has
// removed all sockets.
func TestRegistersAgain(t *testing.T) {
	folder, err := os.MkdirTemp("", "divvy-kubelet") // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	_, p := newNode(t, fakeagent.New(gib, gpu1))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- Serve(ctx, folder, names.ResourceGPU, p, slog.New(slog.NewTextHandler(io.Discard, nil)))
	}()
	kubelet := &fakeKubelet{registered: make(chan *pluginapi.RegisterRequest)}
	for range 2 {
		stop := kubelet.start(t, folder)
		asked := <-kubelet.registered
		if asked.ResourceName != "divvy.dev/gpu" || !asked.Options.PreStartRequired || asked.Version != "v1beta1" {
			t.Errorf("%+v", asked)
		}
		connection, err := grpc.NewClient("unix://"+filepath.Join(folder, asked.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			t.Fatal(err)
		}
		stream, err := pluginapi.NewDevicePluginClient(connection).ListAndWatch(ctx, &pluginapi.Empty{})
		if err != nil {
			t.Fatal(err)
		}
		if list, err := stream.Recv(); err != nil || len(list.Devices) != 8 || list.Devices[7].ID != "slot-7" || list.Devices[0].Health != pluginapi.Healthy {
			t.Errorf("%v %v", list, err)
		}
		connection.Close()
		stop()
		if err := os.RemoveAll(filepath.Join(folder, asked.Endpoint)); err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 0 {
		t.Errorf("%v %v", left, err)
	}
}
