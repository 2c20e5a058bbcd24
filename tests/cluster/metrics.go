package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/util/retry"
)

// startMetrics starts metrics-server and makes the API server serve metrics.k8s.io through it: an ExternalName Service
// leads from the cluster to the loopback interface.
func (s *supervisor) startMetrics(ctx context.Context) error {
	p := s.get(partMetrics)
	if err := p.start(ctx, s); err != nil {
		return err
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "metrics-server", Namespace: "kube-system"},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeExternalName, ExternalName: "localhost",
			Ports: []corev1.ServicePort{{Name: "https", Port: int32(p.port("https"))}},
		},
	}
	services := s.kube.typed.CoreV1().Services(service.Namespace)
	// kube-system is made by the API server itself, a moment after it is ready.
	err := s.wait(ctx, "the Service of metrics-server", func(ctx context.Context) error {
		_, err := services.Create(ctx, service, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return retry.RetryOnConflict(retry.DefaultRetry, func() error {
				_, err := services.Update(ctx, service, metav1.UpdateOptions{})
				return err
			})
		}
		return err
	})
	if err != nil {
		return err
	}
	api := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
		"metadata": map[string]any{"name": "v1beta1.metrics.k8s.io"},
		"spec": map[string]any{
			"group": "metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"insecureSkipTLSVerify": true, // its certificate names localhost, the API server asks for a Service's name
			"service":               map[string]any{"name": service.Name, "namespace": service.Namespace, "port": int64(p.port("https"))},
		},
	}}
	if err := s.kube.apply(ctx, api); err != nil {
		return err
	}
	err = s.wait(ctx, "the metrics API", func(ctx context.Context) error {
		resource, err := s.kube.resource(api)
		if err != nil {
			return stopWaiting{err}
		}
		object, err := resource.Get(ctx, api.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
		for _, item := range conditions {
			condition, _ := item.(map[string]any)
			if condition["type"] == "Available" && condition["status"] == "True" {
				return nil
			} else if condition["type"] == "Available" {
				return fmt.Errorf("%v", condition["message"])
			}
		}
		return fmt.Errorf("the API server has not tried it yet")
	})
	if err == nil {
		s.progress("metrics is ready")
	}
	return err
}
