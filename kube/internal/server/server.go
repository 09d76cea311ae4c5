// SPDX-License-Identifier: Apache-2.0

// Package server is what the parts need of the cluster's API server, as methods that tests
// can replace. It caches nothing.
package server

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
