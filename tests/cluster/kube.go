package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// fieldManager is under what name we apply objects; the audit log shows it as the user agent too.
const fieldManager = "pointsman-cluster"

// kube is the supervisor's own access to the API server, as an administrator and without a rate limit.
type kube struct {
	typed   kubernetes.Interface
	dynamic dynamic.Interface
}

func newKube(kubeconfigPath string) (*kube, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfigPath)
	if err != nil {
		return nil, err
	}
	config.QPS = -1
	config.UserAgent = fieldManager
	config.WarningHandler = nil
	typed, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	dyn, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return &kube{typed: typed, dynamic: dyn}, nil
}

// writeKubeconfigs makes the administrator's kubeconfig and one for each part that is a client.
func (s *supervisor) writeKubeconfigs() error {
	text, err := kubeconfig(s.server(), s.identity.ca.certPEM, "admin", s.identity.admin, "")
	if err != nil {
		return err
	}
	if err := os.WriteFile(s.path("admin.kubeconfig"), text, 0o600); err != nil {
		return err
	}
	// The two Kubernetes parts have built-in roles. The others are given everything; their names tell them apart in the
	// audit log.
	for name, groups := range map[string][]string{
		partControllerManager: nil, partScheduler: nil,
		partKwok: {"system:masters"}, partMetrics: {"system:masters"}, partLWS: {"system:masters"},
		partKnative: {"system:masters"}, partKueue: {"system:masters"},
	} {
		user := name
		if groups == nil {
			user = "system:kube-" + name
		}
		cert, err := s.identity.ca.client(user, groups...)
		if err != nil {
			return err
		}
		text, err := kubeconfig(s.server(), s.identity.ca.certPEM, user, cert, "")
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.path("etc", name+".kubeconfig"), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (k *kube) defaultServiceAccount(ctx context.Context) error {
	_, err := k.typed.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
	return err
}

// createNodes adds Node objects, several at a time.
func (k *kube) createNodes(ctx context.Context, nodes []*corev1.Node) error {
	slots := make(chan struct{}, 8)
	errs := make(chan error, len(nodes))
	for _, node := range nodes {
		slots <- struct{}{}
		go func() {
			_, err := k.typed.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
			<-slots
			errs <- err
		}()
	}
	var first error
	for range nodes {
		if err := <-errs; err != nil && first == nil {
			first = err
		}
	}
	return first
}

// nodesReady waits until pods can be scheduled to the nodes: Ready, and without the taint that new nodes start with.
func (s *supervisor) nodesReady(ctx context.Context, nodes []*corev1.Node) error {
	wanted := map[string]bool{}
	for _, node := range nodes {
		wanted[node.Name] = true
	}
	return s.wait(ctx, "the nodes to become Ready", func(ctx context.Context) error {
		list, err := s.kube.typed.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		ready := 0
		for _, node := range list.Items {
			if wanted[node.Name] && (nodeReady(&node, s.uses(partControllerManager))) {
				ready++
			}
		}
		if ready < len(wanted) {
			return fmt.Errorf("%d of %d are", ready, len(wanted))
		}
		return nil
	})
}

func nodeReady(node *corev1.Node, taintsGo bool) bool {
	for _, taint := range node.Spec.Taints {
		if taintsGo && taint.Key == corev1.TaintNodeNotReady {
			return false
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}

// resources maps the few kinds that we apply to their resource names.
var resources = map[string]string{
	"CustomResourceDefinition":       "customresourcedefinitions",
	"MutatingWebhookConfiguration":   "mutatingwebhookconfigurations",
	"ValidatingWebhookConfiguration": "validatingwebhookconfigurations",
	"APIService":                     "apiservices",
	"Namespace":                      "namespaces",
	"ConfigMap":                      "configmaps",
	"Secret":                         "secrets",
	"Service":                        "services",
}

func (k *kube) resource(object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	plural, ok := resources[gvk.Kind]
	if !ok {
		return nil, fmt.Errorf("%s %q is not something that this program installs", gvk.Kind, object.GetName())
	}
	resource := k.dynamic.Resource(schema.GroupVersionResource{Group: gvk.Group, Version: gvk.Version, Resource: plural})
	if namespace := object.GetNamespace(); namespace != "" {
		return resource.Namespace(namespace), nil
	}
	return resource, nil
}

// apply is a server-side apply: client-side ones put the whole object into an annotation, which big CRDs exceed.
func (k *kube) apply(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := k.resource(object)
	if err != nil {
		return err
	}
	body, err := object.MarshalJSON()
	if err != nil {
		return err
	}
	force := true
	_, err = resource.Patch(ctx, object.GetName(), types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: fieldManager, Force: &force})
	if err != nil {
		return fmt.Errorf("%s %s could not be applied: %w", object.GetKind(), object.GetName(), err)
	}
	return nil
}

// established is nil when the API server serves the CRD.
func (k *kube) established(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := k.resource(object)
	if err != nil {
		return stopWaiting{err}
	}
	crd, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(crd.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		switch condition["type"] {
		case "Established":
			if condition["status"] == "True" {
				return nil
			}
		case "NamesAccepted":
			if condition["status"] == "False" {
				return stopWaiting{fmt.Errorf("the CRD %s was refused: %v", object.GetName(), condition["message"])}
			}
		}
	}
	return errors.New("it is not Established yet")
}

// remove deletes an object; gone is nil when it is there no more.
func (k *kube) remove(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := k.resource(object)
	if err != nil {
		return err
	}
	err = resource.Delete(ctx, object.GetName(), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// A CRD that goes as soon as it is there finds its storage not ready yet. The API server then looks again after ever longer
// pauses, of minutes in the end, unless the CRD changes: so we change it.
func (k *kube) gone(ctx context.Context, object *unstructured.Unstructured) error {
	resource, err := k.resource(object)
	if err != nil {
		return stopWaiting{err}
	}
	left, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || meta.IsNoMatchError(err):
		return nil
	case err != nil:
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(left.Object, "status", "conditions")
	for _, item := range conditions {
		condition, _ := item.(map[string]any)
		if condition["reason"] != "InstanceDeletionFailed" {
			continue
		}
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"pointsman.dev/asked":"%d"}}}`, time.Now().UnixNano())
		_, err = resource.Patch(ctx, object.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return err
		}
		return fmt.Errorf("it is still there: %v", condition["message"])
	}
	return errors.New("it is still there")
}

// readObjects reads all documents of all YAML files in a directory.
func readObjects(dir string) ([]*unstructured.Unstructured, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
		for {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s is not a Kubernetes object in YAML: %w", file, err)
			}
			if len(object.Object) > 0 {
				objects = append(objects, object)
			}
		}
	}
	return objects, nil
}
