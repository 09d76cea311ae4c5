// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/internal/api"
	"github.com/divvy-gpu/divvy/internal/cdi"
	"github.com/divvy-gpu/divvy/internal/client"
	"github.com/divvy-gpu/divvy/kube/internal/cri"
	"github.com/divvy-gpu/divvy/kube/internal/deviceplugin"
	"github.com/divvy-gpu/divvy/kube/internal/doctor"
	"github.com/divvy-gpu/divvy/kube/internal/dra"
	"github.com/divvy-gpu/divvy/kube/internal/mig"
	"github.com/divvy-gpu/divvy/kube/internal/names"
	"github.com/divvy-gpu/divvy/kube/internal/nodeagent"
	"github.com/divvy-gpu/divvy/kube/internal/server"
)

// nodeFlags are what `divvy-kube node` is told.
type nodeFlags struct {
	dra        bool
	plugin     bool
	slots      int
	runtime    string
	agent      string
	node       string
	kubeconfig string
	kubelet    string
	podUID     string
	beside     bool
	settle     time.Duration
}

// patience is within the 45 s that the kubelet gives a call of DRA, and the 30 s before a
// container's start.
const patience = 25 * time.Second

func nodeCommand() *cobra.Command {
	var f nodeFlags
	command := &cobra.Command{
		Use:   "node",
		Short: "Serve a node's GPUs to its kubelet",
		Long: `Serves the GPUs of a node's agent to its kubelet: publishes them, and makes and
removes the shares that pods were given. It runs on every node with GPUs, beside
divvy agent.`,
		Example: "  divvy-kube node --dra --node $(hostname) --kubeconfig /etc/divvy/kubeconfig",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runNode(cmd.Context(), f) },
	}
	command.Flags().BoolVar(&f.dra, "dra", false, "by dynamic resource allocation")
	command.Flags().BoolVar(&f.plugin, "device-plugin", false, "as a device plugin, by the records of Divvy's scheduler")
	command.Flags().IntVar(&f.slots, "slots", 128, "`number` of GPUs that containers can have at a time, with --device-plugin")
	command.Flags().StringVar(&f.runtime, "runtime", "/run/containerd/containerd.sock", "`socket` of the container runtime, with --device-plugin")
	command.Flags().StringVar(&f.agent, "agent", "/run/divvy/agent.sock", "`socket` of the agent")
	command.Flags().StringVar(&f.node, "node", os.Getenv("NODE_NAME"), "`name` of this node (default: $NODE_NAME)")
	command.Flags().StringVar(&f.kubeconfig, "kubeconfig", "", "`file` that leads to the API server (default: the pod's service account)")
	command.Flags().BoolVar(&f.beside, "beside-others", false, "serve GPUs though another plugin or driver gives them away too")
	command.Flags().StringVar(&f.kubelet, "kubelet-dir", "/var/lib/kubelet", "`folder` of the kubelet")
	command.Flags().StringVar(&f.podUID, "pod-uid", os.Getenv("POD_UID"), "`UID` of this pod, for updates without a gap (default: $POD_UID)")
	command.Flags().DurationVar(&f.settle, "settle", 10*time.Second, "`time` for which changes of what is free are gathered")
	return command
}

func (f nodeFlags) validate() error {
	switch {
	case f.dra == f.plugin:
		return fmt.Errorf("%w: say how: --dra or --device-plugin, not both: each has books of its own", errUsage)
	case f.slots < 1 || f.slots > names.MaxSlots:
		return fmt.Errorf("%w: --slots must be 1 to %d", errUsage, names.MaxSlots)
	case f.node == "":
		return fmt.Errorf("%w: --node or NODE_NAME is missing", errUsage)
	case f.settle <= 0:
		return fmt.Errorf("%w: --settle must be more than 0", errUsage)
	}
	return nil
}

func runNode(ctx context.Context, f nodeFlags) error {
	if err := f.validate(); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	klog.SetSlogLogger(log)
	kube, err := apiServer(f.kubeconfig)
	if err != nil {
		return err
	}
	if !f.beside {
		waitAlone(ctx, f, server.New(kube), log)
	}
	if f.plugin {
		return servePlugin(ctx, f, kube, log)
	}
	return serveDRA(ctx, f, kube, log)
}

// aloneInterval is how often is looked whether others still give the GPUs away.
const aloneInterval = 10 * time.Second

// waitAlone waits while another plugin or driver gives the same GPUs away, and says so. It is
// for the start: who comes later is found by the doctor.
func waitAlone(ctx context.Context, f nodeFlags, api *server.Server, log *slog.Logger) {
	for {
		found, err := others(ctx, f, api)
		switch {
		case err != nil:
			log.Warn("who else gives the node's GPUs away is not known", "error", err)
		case len(found) > 0:
			log.Error("nothing is published: others give these GPUs away (--beside-others does so all the same)", "others", found)
		default:
			return
		}
		wait := aloneInterval
		if err != nil {
			wait = aloneInterval / 20
		}
		if !nodeagent.Pause(ctx, wait) {
			return
		}
	}
}

func others(ctx context.Context, f nodeFlags, api *server.Server) ([]string, error) {
	node, err := api.Node(ctx, f.node)
	if err != nil {
		return nil, err
	}
	published, err := api.Slices(ctx, f.node)
	if err != nil {
		return nil, err
	}
	devices, err := nodeagent.New(f.agent).Devices(ctx)
	if err != nil {
		return nil, err
	}
	return doctor.Others(node, published, devices.Cards), nil
}

func serveDRA(ctx context.Context, f nodeFlags, kube kubernetes.Interface, log *slog.Logger) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	driver, err := dra.New(dra.Config{
		Node: f.node, Agent: nodeagent.New(f.agent), Instances: client.New(f.agent), MIG: f.migDevices(names.ByDRA), Server: server.New(kube), Log: log, Settle: f.settle, Patience: patience,
		Fatal: func(err error) { cancel(err) },
	})
	if err != nil {
		return err
	}
	registry := filepath.Join(f.kubelet, "plugins_registry")
	if err := waitFor(ctx, registry); err != nil {
		return err
	}
	data := filepath.Join(f.kubelet, "plugins", names.Driver)
	if err := os.MkdirAll(data, 0o750); err != nil {
		return err
	}
	options := []kubeletplugin.Option{
		kubeletplugin.DriverName(names.Driver), kubeletplugin.KubeClient(kube), kubeletplugin.NodeName(f.node),
		// A call may wait for what another one gives back.
		kubeletplugin.Serialize(false),
		kubeletplugin.RegistrarDirectoryPath(registry), kubeletplugin.PluginDataDirectoryPath(data),
	}
	if f.podUID != "" {
		options = append(options, kubeletplugin.RollingUpdate(types.UID(f.podUID)))
	}
	helper, err := kubeletplugin.Start(ctx, driver, options...)
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	defer helper.Stop()
	log.Info("serving", "driver", names.Driver, "node", f.node, "agent", f.agent)
	if err := driver.Run(ctx, helper); err != nil {
		return err
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// checkpoint is the file in which the kubelet keeps whose devices are.
const checkpoint = "kubelet_internal_checkpoint"

func servePlugin(ctx context.Context, f nodeFlags, kube kubernetes.Interface, log *slog.Logger) error {
	folder := filepath.Join(f.kubelet, "device-plugins")
	if err := waitFor(ctx, folder); err != nil {
		return err
	}
	runtime, err := cri.New(f.runtime)
	if err != nil {
		return err
	}
	defer runtime.Close()
	plugin, err := deviceplugin.New(deviceplugin.Config{
		Node: f.node, Slots: f.slots, Agent: nodeagent.New(f.agent), Server: server.New(kube), Runtime: runtime,
		Checkpoint: filepath.Join(folder, checkpoint), Log: log, Patience: patience,
	})
	if err != nil {
		return err
	}
	log.Info("serving", "resource", names.ResourceGPU, "node", f.node, "agent", f.agent, "slots", f.slots)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		plugin.Run(ctx)
	}()
	defer func() { <-watched }()
	replicas := &deviceplugin.Files{Folders: cdiFolders(), Blind: f.inPod(), Class: cdi.ClassReplica}
	parts := &deviceplugin.MIG{
		Devices: f.migDevices(names.ByPlugin), Instances: client.New(f.agent), Runtime: runtime,
		Checkpoint: filepath.Join(folder, checkpoint), Patience: patience, Log: log,
	}
	served := make(chan error, 2)
	go func() { served <- deviceplugin.Serve(ctx, folder, names.ResourceReplica, replicas, log) }()
	go func() { served <- parts.Serve(ctx, folder) }()
	err = deviceplugin.Serve(ctx, folder, names.ResourceGPU, plugin, log)
	return errors.Join(err, <-served, <-served)
}

// inPod says whether this runs in a pod, which sees none of the host's files but those that are
// mounted: only there an API server is found without a file.
func (f nodeFlags) inPod() bool { return f.kubeconfig == "" }

func cdiFolders() []cdi.Folder { return []cdi.Folder{cdi.StaticFolder, cdi.DynamicFolder} }

// migDevices are those that the agent knows and CDI files name, but for those that it made for
// somebody, and those that are booked by others than this one.
func (f nodeFlags) migDevices(by string) *mig.Devices {
	return &mig.Devices{Folders: cdiFolders(), Blind: f.inPod(), Agent: func(ctx context.Context) (mig.Answer, error) {
		agent := client.New(f.agent)
		snapshot, err := agent.Snapshot(ctx)
		if err != nil {
			return mig.Answer{}, err
		}
		made, err := agent.Instances(ctx) // after the snapshot: one that came between is in none
		if err != nil && nodeagent.Code(err) != api.CodeNotFound {
			return mig.Answer{}, err
		}
		taken := map[string]bool{}
		for _, i := range made.Instances {
			for _, device := range i.Devices {
				taken[device] = i.Device == "" || i.Labels[names.LabelBy] != by
			}
		}
		told := mig.Answer{At: snapshot.Time}
		for _, card := range snapshot.Cards {
			if card.Instruments == nil || !card.Answers {
				told.Silent = append(told.Silent, card.UUID)
			}
			if card.Instruments == nil {
				continue
			}
			if card.SampledAt != nil && card.SampledAt.Before(told.At) {
				told.At = *card.SampledAt
			}
			for _, d := range card.Instruments.Devices {
				if taken[d.ID] {
					continue
				}
				told.Devices = append(told.Devices, mig.Device{ID: d.ID, Profile: d.Profile, MemoryBytes: d.MemoryBytes, CardUUID: card.UUID})
			}
		}
		return told, nil
	}}
}

// What the API server is asked at most: as much as a kubelet by itself does. Each container that
// starts asks once or twice, and a client's own 5 a second would keep the pods of a node that has
// just come waiting for each other.
const (
	requestsPerSecond = 50
	requestsAtOnce    = 100
)

// apiServer is a client of the API server that a file, or the pod's service account, leads to.
func apiServer(kubeconfig string) (kubernetes.Interface, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	config.UserAgent = "divvy-kube/" + version
	config.QPS, config.Burst = requestsPerSecond, requestsAtOnce
	return kubernetes.NewForConfig(config)
}

// waitFor waits until a folder is there: the kubelet makes it.
func waitFor(ctx context.Context, folder string) error {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := os.Stat(folder); err == nil || !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the kubelet's %s: %w", folder, ctx.Err())
		case <-ticker.C:
		}
	}
}
