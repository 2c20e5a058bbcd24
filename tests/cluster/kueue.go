package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"
)

const (
	kueueNamespace = "kueue-system"
	kueueService   = "kueue-webhook-service"
	kueueSecret    = "kueue-webhook-server-cert"
)

// kueueConverted are the CRDs whose conversion webhook Kueue's certificate rotation insists on.
var kueueConverted = []string{
	"localqueues.kueue.x-k8s.io", "clusterqueues.kueue.x-k8s.io", "workloads.kueue.x-k8s.io", "cohorts.kueue.x-k8s.io",
	"multikueueclusters.kueue.x-k8s.io",
}

// kueueManager runs Kueue's own manager outside the cluster. It makes its certificate itself, in a Secret, and writes its
// authority into the webhook configurations and the CRDs.
func (s *supervisor) kueueManager(p *part) (*exec.Cmd, bool, error) {
	certificates := s.path("etc", partKueue)
	if err := os.MkdirAll(certificates, 0o700); err != nil {
		return nil, false, err
	}
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "config.kueue.x-k8s.io/v1beta2", "kind": "Configuration",
		"namespace":        kueueNamespace,
		"leaderElection":   map[string]any{"leaderElect": false},
		"webhook":          map[string]any{"host": "127.0.0.1", "port": p.port("webhook"), "certDir": certificates},
		"health":           map[string]any{"healthProbeBindAddress": loopback(p.port("health"))},
		"metrics":          map[string]any{"bindAddress": "0"},
		"clientConnection": map[string]any{"qps": 500, "burst": 1000},
		"integrations":     map[string]any{"frameworks": []string{"batch/job"}},
		"internalCertManagement": map[string]any{
			"enable": true, "webhookServiceName": kueueService, "webhookSecretName": kueueSecret,
		},
	})
	if err != nil {
		return nil, false, err
	}
	path := s.path("etc", "kueue-manager.yaml")
	if err := os.WriteFile(path, config, 0o600); err != nil {
		return nil, false, err
	}
	// Its server for `kubectl kueue` would listen on all interfaces.
	return exec.Command(s.options.program(neighbourKueue),
		"--kubeconfig="+s.path("etc", partKueue+".kubeconfig"), "--config="+path, "--feature-gates=VisibilityOnDemand=false"), false, nil
}

// kueueServes does, while Kueue starts, what an installation and a kubelet do: the webhook configurations, with the port that is
// known only now, and the Secret's files in the folder that Kueue waits for.
func (s *supervisor) kueueServes(ctx context.Context, p *part) error {
	objects, err := s.kueueObjects(p.port("webhook"))
	if err != nil {
		return stopWaiting{err}
	}
	for _, object := range objects {
		if err := s.kube.apply(ctx, object); err != nil {
			return err
		}
	}
	secret, err := s.kube.typed.CoreV1().Secrets(kueueNamespace).Get(ctx, kueueSecret, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(secret.Data["tls.crt"]) == 0 {
		return fmt.Errorf("it has not made its certificate yet")
	}
	// Kueue looks for the certificate, so that the key is there before.
	for _, name := range []string{"ca.crt", "tls.key", "tls.crt"} {
		if err := os.WriteFile(s.path("etc", partKueue, name), secret.Data[name], 0o600); err != nil {
			return stopWaiting{err}
		}
	}
	return s.answers(ctx, "http://"+loopback(p.port("health"))+"/readyz")
}

// installKueue starts the manager (its CRDs are there already) and waits until its webhooks really answer.
func (s *supervisor) installKueue(ctx context.Context) error {
	// What the manager reads as soon as it starts. The port is not known yet.
	for _, object := range kueueNamespaced(0) {
		if err := s.kube.apply(ctx, object); err != nil {
			return err
		}
	}
	if manager := s.get(partKueue); !manager.process().running() {
		if err := manager.start(ctx, s); err != nil {
			return err
		}
	}
	return s.wait(ctx, "the webhooks of Kueue", s.kueueAnswers)
}

// uninstallKueue removes the CRDs while the manager runs, which takes its finalizers from their objects. It leaves the namespace, which
// needs a controller manager to go.
func (s *supervisor) uninstallKueue(ctx context.Context) error {
	objects, err := s.kueueObjects(0)
	if err != nil {
		return err
	}
	crds, err := s.crds(neighbourKueue)
	if err != nil {
		return err
	}
	if err := s.removeCRDs(ctx, crds); err != nil {
		return err
	}
	for _, object := range objects {
		if kind := object.GetKind(); kind == "Namespace" || kind == "CustomResourceDefinition" {
			continue
		}
		if err := s.kube.remove(ctx, object); err != nil {
			return err
		}
	}
	if manager := s.get(partKueue); manager.process().running() {
		return manager.stop(gentle)
	}
	return nil
}

// kueueNamespaced are its namespace, the Secret for its certificate, and with a port the Service that its webhooks are called by:
// an ExternalName, which leads from the cluster to the loopback interface.
func kueueNamespaced(port int) []*unstructured.Unstructured {
	metadata := func(name string) map[string]any { return map[string]any{"name": name, "namespace": kueueNamespace} }
	objects := []*unstructured.Unstructured{
		{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": kueueNamespace}}},
		{Object: map[string]any{"apiVersion": "v1", "kind": "Secret", "metadata": metadata(kueueSecret)}},
	}
	if port == 0 {
		return objects
	}
	return append(objects, &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Service", "metadata": metadata(kueueService),
		"spec": map[string]any{
			"type": "ExternalName", "externalName": "localhost",
			"ports": []any{map[string]any{"name": "https", "port": int64(port)}},
		},
	}})
}

// kueueObjects are all of that, its webhook configurations and the conversion of its CRDs. Of the webhooks, those are installed that
// judge Kueue's own kinds and Jobs: nothing else is queued here, and a dead manager must block nobody else.
func (s *supervisor) kueueObjects(port int) ([]*unstructured.Unstructured, error) {
	dir := filepath.Join(s.options.neighboursDir, neighbourKueue)
	configurations, err := readObjects(filepath.Join(dir, "webhook"))
	if err != nil {
		return nil, err
	}
	objects := kueueNamespaced(max(port, 1))
	for _, object := range configurations {
		all, _, err := unstructured.NestedSlice(object.Object, "webhooks")
		if err != nil {
			return nil, err
		}
		var hooks []any
		for _, item := range all {
			hook, _ := item.(map[string]any)
			path, _, _ := unstructured.NestedString(hook, "clientConfig", "service", "path")
			if !strings.Contains(path, "-kueue-x-k8s-io-") && !strings.Contains(path, "-batch-v1-job") {
				continue
			}
			hook["clientConfig"] = kueueClient(path, port)
			hooks = append(hooks, hook)
		}
		if err := unstructured.SetNestedSlice(object.Object, hooks, "webhooks"); err != nil {
			return nil, err
		}
		object.SetName("kueue-" + object.GetName())
		objects = append(objects, object)
	}
	if len(configurations) != 2 {
		return nil, fmt.Errorf("%s does not hold Kueue's two webhook configurations: run `pointsman-cluster fetch` again", dir)
	}
	crds, err := s.crds(neighbourKueue)
	if err != nil {
		return nil, err
	}
	for _, crd := range crds {
		if !slices.Contains(kueueConverted, crd.GetName()) {
			continue
		}
		conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
			"conversionReviewVersions": []any{"v1"}, "clientConfig": kueueClient("/convert", port),
		}}
		if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
			return nil, err
		}
		objects = append(objects, crd)
	}
	return objects, nil
}

func kueueClient(path string, port int) map[string]any {
	return map[string]any{"service": map[string]any{
		"name": kueueService, "namespace": kueueNamespace, "path": path, "port": int64(max(port, 1)),
	}}
}

var jobResource = schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}

// kueueAnswers creates a Job with a queue in a dry run, which Kueue's webhook suspends.
func (s *supervisor) kueueAnswers(ctx context.Context) error {
	probe := &unstructured.Unstructured{}
	err := json.Unmarshal([]byte(`{"apiVersion": "batch/v1", "kind": "Job",
		"metadata": {"name": "pointsman-cluster-probe", "labels": {"kueue.x-k8s.io/queue-name": "probe"}},
		"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "probe", "image": "probe"}]}}}}`), probe)
	if err != nil {
		return stopWaiting{err}
	}
	created, err := s.kube.dynamic.Resource(jobResource).Namespace("default").
		Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if apierrors.IsInvalid(err) {
		return stopWaiting{err}
	} else if err != nil {
		return err
	}
	if suspended, _, _ := unstructured.NestedBool(created.Object, "spec", "suspend"); !suspended {
		return fmt.Errorf("they don't suspend Jobs yet")
	}
	return nil
}
