// SPDX-License-Identifier: Apache-2.0

// Package cri asks a node's container runtime, by the interface that the kubelet uses,
// which pods it has and how their containers are. It changes nothing.
package cri

import (
	"context"
	"encoding/json"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	labelUID       = "io.kubernetes.pod.uid"
	labelContainer = "io.kubernetes.container.name"
)

// Client asks one runtime. It is safe for concurrent use.
type Client struct {
	connection *grpc.ClientConn
	runtime    runtimeapi.RuntimeServiceClient
}

// New returns a client of the runtime that listens on a socket; it does not connect yet.
func New(socket string) (*Client, error) {
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, fmt.Errorf("container runtime %s: %w", socket, err)
	}
	return &Client{connection: connection, runtime: runtimeapi.NewRuntimeServiceClient(connection)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.connection.Close() }

// Sandbox is a pod as the runtime has it.
type Sandbox struct {
	ID, UID, Namespace, Name string
	Ready                    bool
	created                  int64
}

// Sandboxes lists pods, the newest sandbox of each by UID.
func (c *Client) Sandboxes(ctx context.Context) (map[string]Sandbox, error) {
	return c.sandboxes(ctx, &runtimeapi.PodSandboxFilter{})
}

// Sandbox is the newest sandbox of a pod; ok is false when there is none.
func (c *Client) Sandbox(ctx context.Context, uid string) (found Sandbox, ok bool, err error) {
	all, err := c.sandboxes(ctx, &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{labelUID: uid}})
	found, ok = all[uid]
	return found, ok, err
}

func (c *Client) sandboxes(ctx context.Context, filter *runtimeapi.PodSandboxFilter) (map[string]Sandbox, error) {
	answer, err := c.runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("list the runtime's pods: %w", err)
	}
	all := map[string]Sandbox{}
	for _, item := range answer.Items {
		s := Sandbox{
			ID: item.Id, UID: item.Metadata.GetUid(), Namespace: item.Metadata.GetNamespace(), Name: item.Metadata.GetName(),
			Ready: item.State == runtimeapi.PodSandboxState_SANDBOX_READY, created: item.CreatedAt,
		}
		if have, ok := all[s.UID]; !ok || have.created < s.created {
			all[s.UID] = s
		}
	}
	return all, nil
}

// Container is a container of a sandbox, as it was last started.
type Container struct {
	Name   string
	Exited bool
	Code   int // with which it exited
}

// Containers lists the containers of a sandbox, the last of each name.
func (c *Client) Containers(ctx context.Context, sandbox string) (map[string]Container, error) {
	answer, err := c.runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{PodSandboxId: sandbox}})
	if err != nil {
		return nil, fmt.Errorf("list containers of sandbox %s: %w", sandbox, err)
	}
	last := map[string]*runtimeapi.Container{}
	for _, item := range answer.Containers {
		name := item.Labels[labelContainer]
		if have := last[name]; have == nil || have.CreatedAt < item.CreatedAt {
			last[name] = item
		}
	}
	all := map[string]Container{}
	for name, item := range last {
		k := Container{Name: name, Exited: item.State == runtimeapi.ContainerState_CONTAINER_EXITED}
		if k.Exited {
			status, err := c.runtime.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: item.Id})
			if err != nil {
				return nil, fmt.Errorf("ask for container %s: %w", item.Id, err)
			}
			k.Code = int(status.GetStatus().GetExitCode())
		}
		all[name] = k
	}
	return all, nil
}

// Version is who the runtime says that it is.
type Version struct {
	Name    string // containerd, cri-o
	Version string
}

// Version asks the runtime who it is.
func (c *Client) Version(ctx context.Context) (Version, error) {
	answer, err := c.runtime.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		return Version{}, fmt.Errorf("ask the runtime for its version: %w", err)
	}
	return Version{Name: answer.RuntimeName, Version: answer.RuntimeVersion}, nil
}

// CDI is what a runtime says of its configuration for CDI.
type CDI struct {
	Known   bool // it says something
	Enabled bool
	Folders []string
}

// CDI asks the runtime whether it takes CDI devices, and from where. Only containerd says
// so, in what it tells of its configuration.
func (c *Client) CDI(ctx context.Context) (CDI, error) {
	answer, err := c.runtime.Status(ctx, &runtimeapi.StatusRequest{Verbose: true})
	if err != nil {
		return CDI{}, fmt.Errorf("ask the runtime for its configuration: %w", err)
	}
	return parseCDI(answer.Info["config"]), nil
}

func parseCDI(raw string) CDI {
	var config struct {
		EnableCDI   *bool    `json:"enableCDI"`
		CDISpecDirs []string `json:"cdiSpecDirs"`
	}
	if json.Unmarshal([]byte(raw), &config) != nil || config.EnableCDI == nil && config.CDISpecDirs == nil {
		return CDI{}
	}
	// containerd 2 leaves enableCDI out where it is not set: it is on then.
	return CDI{Known: true, Enabled: config.EnableCDI == nil || *config.EnableCDI, Folders: config.CDISpecDirs}
}
