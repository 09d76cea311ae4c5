// SPDX-License-Identifier: Apache-2.0

// Package server is what the parts need of the cluster's API server, as methods that tests
// can replace. It caches nothing.
package server

import (
	"context"
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourceapply "k8s.io/client-go/applyconfigurations/resource/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/divvy-gpu/divvy/kube/internal/names"
)

// Server asks one API server.
type Server struct {
	kube kubernetes.Interface
}

// New returns a Server that asks by a client.
func New(kube kubernetes.Interface) *Server { return &Server{kube: kube} }

// Pod returns a pod.
func (s *Server) Pod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return s.kube.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// Node returns a node.
func (s *Server) Node(ctx context.Context, name string) (*corev1.Node, error) {
	return s.kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
}

// LabelNode writes labels of a node, and leaves its others.
func (s *Server) LabelNode(ctx context.Context, name string, labels map[string]string) error {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"labels": labels}})
	if err != nil {
		return err
	}
	_, err = s.kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, raw, metav1.PatchOptions{FieldManager: names.Driver + "-doctor"})
	return err
}

// Slices lists what is published of a node by anybody; none where the cluster has no slices.
func (s *Server) Slices(ctx context.Context, node string) ([]resourceapi.ResourceSlice, error) {
	list, err := s.kube.ResourceV1().ResourceSlices().List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + node})
	if IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// IsNotFound says whether the API server has no such object.
func IsNotFound(err error) bool { return apierrors.IsNotFound(err) }

// Claim returns a claim.
func (s *Server) Claim(ctx context.Context, namespace, name string) (*resourceapi.ResourceClaim, error) {
	return s.kube.ResourceV1().ResourceClaims(namespace).Get(ctx, name, metav1.GetOptions{})
}

// WriteStatus writes what a node's driver has to say in a claim's status, and nothing else
// of it; it fails when there is another claim of that name by now.
func (s *Server) WriteStatus(ctx context.Context, claim *resourceapi.ResourceClaim, status *resourceapply.ResourceClaimStatusApplyConfiguration) error {
	apply := resourceapply.ResourceClaim(claim.Name, claim.Namespace).WithUID(claim.UID).WithStatus(status)
	_, err := s.kube.ResourceV1().ResourceClaims(claim.Namespace).ApplyStatus(ctx, apply,
		metav1.ApplyOptions{FieldManager: names.Driver + "-node", Force: true})
	return err
}
