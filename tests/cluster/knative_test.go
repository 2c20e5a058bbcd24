package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// knativeFiles makes a supervisor that finds these files of Knative.
func knativeFiles(t *testing.T, files map[string]string) *supervisor {
	t.Helper()
	s := newTestSupervisor(t)
	s.options.neighboursDir = t.TempDir()
	s.defineParts()
	for name, text := range files {
		path := filepath.Join(s.options.neighboursDir, neighbourKnative, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func TestKnativeFeaturesAreAdded(t *testing.T) {
	s := knativeFiles(t, map[string]string{
		"namespace/100-namespace.yaml": "apiVersion: v1\nkind: Namespace\nmetadata: {name: knative-serving}\n",
		"namespace/features.yaml":      "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config-features}\ndata: {_example: text}\n",
	})
	objects, err := s.knativeObjects()
	if err != nil {
		t.Fatal(err)
	}
	if len(objects) != 2 || objects[0].GetKind() != "Namespace" {
		t.Fatalf("the namespace comes before what is in it: %v", objects)
	}
	data, _, _ := unstructured.NestedStringMap(objects[1].Object, "data")
	if data["_example"] != "text" || data["kubernetes.podspec-volumes-hostpath"] != "enabled" {
		t.Errorf("the features are %v", data)
	}
}

func TestKnativeFilesAreMissed(t *testing.T) {
	s := knativeFiles(t, nil)
	if _, err := s.knativeObjects(); err == nil || !strings.Contains(err.Error(), "fetch") {
		t.Errorf("want a sentence about its ConfigMap, got %v", err)
	}
	if _, err := s.knativeWebhooks(); err == nil || !strings.Contains(err.Error(), "fetch") {
		t.Errorf("want a sentence about its webhook configurations, got %v", err)
	}
}

// hostPathService is a Knative Service that one of the features allows.
func hostPathService() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": map[string]any{"generateName": "llama-"},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
			"containers": []any{map[string]any{
				"image": "vllm", "volumeMounts": []any{map[string]any{"name": "model", "mountPath": "/mnt/models"}},
			}},
			"volumes": []any{map[string]any{"name": "model", "hostPath": map[string]any{"path": "/models"}}},
		}}},
	}}
}

func TestKnative(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	i := startInstance(t, append(neighbourFlags(t), "--neighbours", "knative", "--nodes", "none", "--parts", "etcd,apiserver")...)
	services := i.kube.dynamic.Resource(knativeResource).Namespace("default")
	try := func(ctx context.Context) (*unstructured.Unstructured, error) {
		return services.Create(ctx, hostPathService(), metav1.CreateOptions{})
	}
	refused := func(ctx context.Context) error {
		if _, err := try(ctx); !apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "HostPath volume support is disabled") {
			return fmt.Errorf("it is not refused: %w", err)
		}
		return nil
	}
	set := func(config, key, value string) error {
		patch := fmt.Sprintf(`{"data":{%q:%q}}`, key, value)
		_, err := i.kube.typed.CoreV1().ConfigMaps(knativeNamespace).
			Patch(t.Context(), config, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}

	created, err := try(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mounts, _, _ := unstructured.NestedSlice(created.Object, "spec", "template", "spec", "containers")
	if text := fmt.Sprint(mounts); !strings.Contains(text, "readOnly:true") || !strings.Contains(text, "user-container") {
		t.Errorf("it has not got its defaults: %s", text)
	}
	if err := set(knativeFeatures, "kubernetes.podspec-volumes-hostpath", "disabled"); err != nil {
		t.Fatal(err)
	}
	i.eventually("the feature to be off", refused)
	if err := set("config-defaults", "revision-timeout-seconds", "9000"); !apierrors.IsBadRequest(err) {
		t.Errorf("Knative refuses what it can't work with, got %v", err)
	}

	i.do(`{"do":"kill","part":"knative-webhook"}`)
	if _, err := try(t.Context()); !apierrors.IsInternalError(err) {
		t.Errorf("without Knative's webhook no Service can be made, got %v", err)
	}
	i.do(`{"do":"start","part":"knative-webhook"}`)
	if err := refused(t.Context()); err != nil {
		t.Errorf("after a restart: %v", err)
	}

	i.do(`{"do":"remove","neighbour":"knative"}`)
	left, err := i.kube.typed.AdmissionregistrationV1().ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("its webhook configurations go with it: %v, %v", left.Items, err)
	}
	i.do(`{"do":"install","neighbour":"knative"}`)
	if _, err := try(t.Context()); err != nil {
		t.Errorf("after another installation its features are those of the beginning: %v", err)
	}
}
