// SPDX-License-Identifier: Apache-2.0

package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
)

const (
	watchInterval   = 250 * time.Millisecond
	registerTimeout = 10 * time.Second
	kubeletSocket   = "kubelet.sock"
)

// Serve offers a plugin's devices to the kubelet under a resource's name until ctx ends. The
// kubelet removes all sockets of its folder when it starts and makes its own anew: then
// Serve listens and registers again.
func Serve(ctx context.Context, folder, resource string, plugin pluginapi.DevicePluginServer, log *slog.Logger) error {
	socket := filepath.Join(folder, filepath.Base(resource)+".divvy.sock")
	for ctx.Err() == nil {
		err := serveOnce(ctx, folder, socket, resource, plugin, log)
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			log.Warn("the kubelet cannot be served", "resource", resource, "error", err)
		}
		nodeagent.Pause(ctx, watchInterval)
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// serveOnce serves one kubelet; it returns when there is another one.
func serveOnce(ctx context.Context, folder, socket, resource string, plugin pluginapi.DevicePluginServer, log *slog.Logger) error {
	kubelet := filepath.Join(folder, kubeletSocket)
	before, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	pluginapi.RegisterDevicePluginServer(server, plugin)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	defer func() {
		server.Stop()
		<-served
	}()
	if err := register(ctx, kubelet, filepath.Base(socket), resource, plugin); err != nil {
		return err
	}
	log.Info("registered", "resource", resource)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := os.Stat(kubelet)
		if err != nil || !os.SameFile(before, now) || !now.ModTime().Equal(before.ModTime()) {
			return nil
		}
		if _, err := os.Stat(socket); err != nil {
			return nil
		}
	}
}

func register(ctx context.Context, kubelet, endpoint, resource string, plugin pluginapi.DevicePluginServer) error {
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	options, err := plugin.GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		return err
	}
	connection, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer connection.Close()
	if _, err := pluginapi.NewRegistrationClient(connection).Register(ctx, &pluginapi.RegisterRequest{
		Version: pluginapi.Version, Endpoint: endpoint, ResourceName: resource, Options: options,
	}); err != nil {
		return fmt.Errorf("register %s with the kubelet: %w", resource, err)
	}
	return nil
}
