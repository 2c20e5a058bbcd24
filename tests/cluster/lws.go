package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

// lwsManager runs LeaderWorkerSet's own manager outside the cluster, with our certificates instead of those that it would
// make and inject itself.
func (s *supervisor) lwsManager(p *part) (*exec.Cmd, bool, error) {
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.lws.x-k8s.io/v1alpha1", "kind": "Configuration",
		"leaderElection":         map[string]any{"leaderElect": false},
		"internalCertManagement": map[string]any{"enable": false},
		"webhook":                map[string]any{"host": "127.0.0.1", "port": p.port("webhook"), "certDir": s.path("pki", "webhooks")},
		"health":                 map[string]any{"healthProbeBindAddress": loopback(p.port("health"))},
		"metrics":                map[string]any{"bindAddress": "0"},
		"clientConnection":       map[string]any{"qps": 500, "burst": 1000},
	})
	if err != nil {
		return nil, false, err
	}
	path := s.path("etc", "lws-manager.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, false, err
	}
	return exec.Command(s.options.program(neighbourLWS), "--kubeconfig="+s.path("etc", partLWS+".kubeconfig"), "--config="+path, "--zap-devel=false"), false, nil
}

// installLWS starts the manager (its CRDs are there already), points the API server at its webhooks, and waits until they
// really answer.
func (s *supervisor) installLWS(ctx context.Context) error {
	manager := s.get(partLWS)
	if !manager.process().running() {
		if err := manager.start(ctx, s); err != nil {
			return err
		}
	}
	configurations, err := s.lwsWebhooks()
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := s.kube.apply(ctx, configuration); err != nil {
			return err
		}
	}
	return s.wait(ctx, "the webhooks of LeaderWorkerSet", s.lwsAnswers)
}

func (s *supervisor) uninstallLWS(ctx context.Context) error {
	configurations, err := s.lwsWebhooks()
	if err != nil {
		return err
	}
	for _, configuration := range configurations {
		if err := s.kube.remove(ctx, configuration); err != nil {
			return err
		}
	}
	if manager := s.get(partLWS); manager.process().running() {
		return manager.stop(time.Second)
	}
	return nil
}

// lwsWebhooks are the webhook configurations of its module, with the module's own patches (which limit the pod webhooks to
// LeaderWorkerSet's pods, so that a dead manager blocks nobody else), pointed at the manager's loopback port.
func (s *supervisor) lwsWebhooks() ([]*unstructured.Unstructured, error) {
	dir := filepath.Join(s.options.neighboursDir, neighbourLWS)
	objects, err := readObjects(dir + "/webhook")
	if err != nil {
		return nil, err
	}
	patches := map[string]string{
		"MutatingWebhookConfiguration":   filepath.Join(dir, "webhook", "patches", "mutating-patch.yaml"),
		"ValidatingWebhookConfiguration": filepath.Join(dir, "webhook", "patches", "validating-patch.yaml"),
	}
	bundle := base64.StdEncoding.EncodeToString(s.identity.ca.certPEM)
	var configurations []*unstructured.Unstructured
	for _, object := range objects {
		path, ok := patches[object.GetKind()]
		if !ok {
			continue
		}
		if object, err = patched(object, path); err != nil {
			return nil, err
		}
		object.SetName("lws-" + object.GetName())
		hooks, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return nil, err
		}
		for _, item := range hooks {
			hook, _ := item.(map[string]any)
			service, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			hook["clientConfig"] = map[string]any{
				"url":      "https://" + loopback(s.get(partLWS).port("webhook")) + service,
				"caBundle": bundle,
			}
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return nil, err
		}
		configurations = append(configurations, object)
	}
	if len(configurations) != len(patches) {
		return nil, fmt.Errorf("%s does not hold LeaderWorkerSet's two webhook configurations: run `pointsman-cluster fetch` again", dir)
	}
	return configurations, nil
}

// patched applies one of kustomize's JSON patches.
func patched(object *unstructured.Unstructured, path string) (*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	operations, err := yaml.YAMLToJSON(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	patch, err := jsonpatch.DecodePatch(operations)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	body, err := json.Marshal(object.Object)
	if err != nil {
		return nil, err
	}
	if body, err = patch.Apply(body); err != nil {
		return nil, fmt.Errorf("%s does not fit the webhook configuration: %w", path, err)
	}
	result := &unstructured.Unstructured{}
	return result, result.UnmarshalJSON(body)
}

var lwsResource = schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}

// lwsAnswers creates a LeaderWorkerSet in a dry run, which goes through the webhooks.
func (s *supervisor) lwsAnswers(ctx context.Context) error {
	probe := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet",
		"metadata": map[string]any{"name": "pointsman-cluster-probe"},
		"spec": map[string]any{
			"replicas": int64(1),
			"leaderWorkerTemplate": map[string]any{
				"size": int64(2),
				"workerTemplate": map[string]any{"spec": map[string]any{
					"containers": []any{map[string]any{"name": "probe", "image": "probe"}},
				}},
			},
		},
	}}
	created, err := s.kube.dynamic.Resource(lwsResource).Namespace("default").
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) {
		return stopWaiting{err}
	} else if err != nil {
		return err
	}
	// The defaulting webhook fills this in: without it the API server does not know the webhook yet.
	if policy, _, _ := unstructured.NestedString(created.Object, "spec", "networkConfig", "subdomainPolicy"); policy == "" {
		return fmt.Errorf("they don't default objects yet")
	}
	return nil
}
