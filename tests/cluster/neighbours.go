package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// neighbour is another project whose kinds Pointsman works with. To add one: name its module, pin the sums that
// `go mod download -json MODULE@VERSION` prints, and list its CRD files.
type neighbour struct {
	name, module, version string
	sum, goModSum         string
	files                 []string          // CRDs, by their paths in the module
	extra                 map[string]string // other files: path in the module to path in the neighbour's directory
	byDefault             bool
}

// The neighbours of which more than the CRDs is installed.
const (
	neighbourLWS     = "lws"
	neighbourKnative = "knative"
	neighbourKueue   = "kueue"
)

var neighbours = []neighbour{
	{
		name: neighbourLWS, module: "sigs.k8s.io/lws", version: "v0.9.0", byDefault: true,
		sum: "h1:DcJCgxjjoGOx//QHZkeKpyiblxYq70aCRZNYSfykWyI=", goModSum: "h1:oYkORu4fUxGwA2Q/V4IOXfn5yGpQVDAHAZx2TVbi9LY=",
		files: []string{
			"config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml",
			"config/crd/bases/disaggregatedset.x-k8s.io_disaggregatedsets.yaml", // its manager watches both
		},
		extra: map[string]string{
			"config/webhook/manifests.yaml":        "webhook/manifests.yaml",
			"config/webhook/mutating-patch.yaml":   "webhook/patches/mutating-patch.yaml",
			"config/webhook/validating-patch.yaml": "webhook/patches/validating-patch.yaml",
		},
	},
	{
		name: "keda", module: "github.com/kedacore/keda/v2", version: "v2.17.2", byDefault: true,
		sum: "h1:xlrcK5TKABJF9PebK79sgL07s/csGjL3H4m72OkZXxk=", goModSum: "h1:z5Qr4yxPRrtuYbbO2fRxikr2EkNPT6Dd4jjypV+Vmo8=",
		files: []string{
			"config/crd/bases/keda.sh_scaledobjects.yaml", "config/crd/bases/keda.sh_triggerauthentications.yaml",
			"config/crd/bases/keda.sh_clustertriggerauthentications.yaml",
		},
	},
	{
		name: neighbourKnative, module: "knative.dev/serving", version: "v0.49.0", byDefault: true,
		sum: "h1:5B1JsytwZ+5bh9vOCNnu4GQJ/m6oj61Z/rVKziAY6MA=", goModSum: "h1:KXvVnXohxsbE3rCRbr1TZlxeC20qIzhVckDwbsgLWPI=",
		files: []string{
			"config/core/300-resources/service.yaml", "config/core/300-resources/configuration.yaml",
			"config/core/300-resources/revision.yaml", "config/core/300-resources/route.yaml",
		},
		extra: map[string]string{
			"config/core/100-namespace.yaml":                 "namespace/100-namespace.yaml",
			"config/core/configmaps/autoscaler.yaml":         "namespace/autoscaler.yaml",
			"config/core/configmaps/defaults.yaml":           "namespace/defaults.yaml",
			"config/core/configmaps/features.yaml":           "namespace/features.yaml",
			"config/core/webhooks/secret.yaml":               "namespace/secret.yaml",
			"config/core/webhooks/configmap-validation.yaml": "webhook/configmap-validation.yaml",
			"config/core/webhooks/defaulting.yaml":           "webhook/defaulting.yaml",
			"config/core/webhooks/resource-validation.yaml":  "webhook/resource-validation.yaml",
		},
	},
	{
		name: "ray", module: "github.com/ray-project/kuberay/ray-operator", version: "v1.4.2", byDefault: true,
		sum: "h1:A4tGzbIky8sInAUxZBdBb+rrpZ7fbqoxdsOtm559Zqg=", goModSum: "h1:oZaK6ZxZS57/JYvCbJdU1FdIMPW1JJNv6TqbAcUjE/8=",
		files: []string{"config/crd/bases/ray.io_rayclusters.yaml"},
	},
	{
		name: "gateway", module: "sigs.k8s.io/gateway-api", version: "v1.3.0", byDefault: true,
		sum: "h1:q6okN+/UKDATola4JY7zXzx40WO4VISk7i9DIfOvr9M=", goModSum: "h1:d8NV8nJbaRbEKem+5IuxkL8gJGOZ+FJ+NvOIltV8gDk=",
		files: []string{
			"config/crd/standard/gateway.networking.k8s.io_gatewayclasses.yaml",
			"config/crd/standard/gateway.networking.k8s.io_gateways.yaml",
			"config/crd/standard/gateway.networking.k8s.io_httproutes.yaml",
			"config/crd/standard/gateway.networking.k8s.io_grpcroutes.yaml",
			"config/crd/standard/gateway.networking.k8s.io_referencegrants.yaml",
		},
	},
	{
		name: "inference-pool", module: "sigs.k8s.io/gateway-api-inference-extension", version: "v1.3.0", byDefault: true,
		sum: "h1:Ng2Qs1Oum4WycuWyi3rOkAC7pZ2aDqgN2ku6Lr/mryQ=", goModSum: "h1:Cyex0AlEzhuXFklzl0y5Hdf5zVY8PUtSKhzMvHh5D9M=",
		files: []string{
			"config/crd/bases/inference.networking.k8s.io_inferencepools.yaml",
			"config/crd/bases/inference.networking.x-k8s.io_inferencepools.yaml",
			"config/crd/bases/inference.networking.x-k8s.io_inferencemodelrewrites.yaml",
		},
	},
	{
		name: "kserve", module: "github.com/kserve/kserve", version: "v0.17.0",
		sum: "h1:IaynaBFzVQz1Xyrw5n3ncqzd5Y7L1RkO+YWvVwwtMQE=", goModSum: "h1:opWKxSXI6W58Ap23eYGGZp5UYOm5RPf/JYnTpZA9Jcw=",
		files: []string{
			"config/crd/full/llmisvc/serving.kserve.io_llminferenceservices.yaml",
			"config/crd/full/llmisvc/serving.kserve.io_llminferenceserviceconfigs.yaml",
		},
	},
	{
		name: neighbourKueue, module: "sigs.k8s.io/kueue", version: "v0.17.0",
		sum: "h1:7hzb38M4eKGzYW+CFv2s1L+swzzacUCHOCXxZmAV90I=", goModSum: "h1:GZCsUiO2BBScS2EnTQ2w3uobe8GY1FXjkZOvjrtV+5c=",
		files: []string{
			"config/components/crd/bases/kueue.x-k8s.io_admissionchecks.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_clusterqueues.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_cohorts.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_localqueues.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_multikueueclusters.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_multikueueconfigs.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_provisioningrequestconfigs.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_resourceflavors.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_topologies.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_workloadpriorityclasses.yaml",
			"config/components/crd/bases/kueue.x-k8s.io_workloads.yaml",
		},
		extra: map[string]string{"config/components/webhook/manifests.yaml": "webhook/manifests.yaml"},
	},
	{
		name: "cert-manager", module: "github.com/cert-manager/cert-manager", version: "v1.18.2",
		sum: "h1:H2P75ycGcTMauV3gvpkDqLdS3RSXonWF2S49QGA1PZE=", goModSum: "h1:icDJx4kG9BCNpGjBvrmsFd99d+lXUvWdkkcrSSQdIiw=",
		files: []string{"deploy/crds/crd-certificates.yaml", "deploy/crds/crd-issuers.yaml"},
	},
	{
		name: "prometheus-operator", module: "github.com/prometheus-operator/prometheus-operator", version: "v0.84.0",
		sum: "h1:XXm7lKizTnnxeSwI01wjNAapKzw/4XAPdpcZqjRKgRU=", goModSum: "h1:02WWJf07/MNZgypq8yUOHDneJIs+KylWchtz/wEcACo=",
		files: []string{
			"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml",
			"example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml",
		},
	},
}

func neighbourNamed(name string) (*neighbour, error) {
	var known []string
	for i := range neighbours {
		if neighbours[i].name == name {
			return &neighbours[i], nil
		}
		known = append(known, neighbours[i].name)
	}
	return nil, fmt.Errorf("there is no neighbour %q; there are %s", name, listed(known))
}

// chooseNeighbours reads the value of --neighbours.
func chooseNeighbours(value string) ([]string, error) {
	var names []string
	switch value {
	case "none", "":
		return nil, nil
	case "default":
		for _, n := range neighbours {
			if n.byDefault {
				names = append(names, n.name)
			}
		}
		return names, nil
	}
	for _, name := range strings.Split(value, ",") {
		n, err := neighbourNamed(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, n.name) {
			names = append(names, n.name)
		}
	}
	return names, nil
}

// checkNeighbour says in advance what installing a neighbour would miss.
func (o *upOptions) checkNeighbour(name string) error {
	dir := filepath.Join(o.neighboursDir, name)
	if files, _ := filepath.Glob(filepath.Join(dir, "*.yaml")); len(files) == 0 {
		return fmt.Errorf("the neighbour %s is chosen but %s holds no files of it: run `pointsman-cluster fetch --out %s` first", name, dir, o.neighboursDir)
	}
	if programs[name] == "" {
		return nil
	}
	if info, err := os.Stat(o.program(name)); err != nil || info.IsDir() {
		return fmt.Errorf("the neighbour %s is chosen but its program %s is missing: build it (see the README of tests/cluster) or leave %s out of --neighbours", name, o.program(name), name)
	}
	return nil
}

// crds are a neighbour's CRDs as we install them: one served by conversion webhooks in a real installation is served
// without, since no such webhook runs here.
func (s *supervisor) crds(name string) ([]*unstructured.Unstructured, error) {
	objects, err := readObjects(filepath.Join(s.options.neighboursDir, name))
	if err != nil {
		return nil, err
	}
	var crds []*unstructured.Unstructured
	for _, object := range objects {
		if object.GetKind() != "CustomResourceDefinition" {
			continue
		}
		unstructured.RemoveNestedField(object.Object, "spec", "conversion")
		unstructured.RemoveNestedField(object.Object, "status")
		// Those of cert-manager's CRDs are templates of its chart.
		unstructured.RemoveNestedField(object.Object, "metadata", "labels")
		unstructured.RemoveNestedField(object.Object, "metadata", "creationTimestamp")
		crds = append(crds, object)
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("there is no CRD in %s", filepath.Join(s.options.neighboursDir, name))
	}
	return crds, nil
}

// install applies a neighbour's CRDs and waits until they are served; then it starts what the neighbour runs here.
func (s *supervisor) install(ctx context.Context, name string) error {
	if _, err := neighbourNamed(name); err != nil {
		return err
	}
	if err := s.options.checkNeighbour(name); err != nil {
		return err
	}
	crds, err := s.crds(name)
	if err != nil {
		return err
	}
	for _, crd := range crds {
		if err := s.kube.apply(ctx, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		err := s.wait(ctx, "the CRD "+crd.GetName(), func(ctx context.Context) error { return s.kube.established(ctx, crd) })
		if err != nil {
			return err
		}
	}
	switch name {
	case neighbourLWS:
		err = s.installLWS(ctx)
	case neighbourKnative:
		err = s.installKnative(ctx)
	case neighbourKueue:
		err = s.installKueue(ctx)
	}
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.installed[name] = true
	return nil
}

// uninstall deletes a neighbour's CRDs, and with them all their objects, and waits until they are gone.
func (s *supervisor) uninstall(ctx context.Context, name string) error {
	if _, err := neighbourNamed(name); err != nil {
		return err
	}
	crds, err := s.crds(name)
	if err != nil {
		return err
	}
	switch name {
	case neighbourLWS:
		err = s.uninstallLWS(ctx)
	case neighbourKnative:
		err = s.uninstallKnative(ctx)
	case neighbourKueue:
		err = s.uninstallKueue(ctx)
	}
	if err != nil {
		return err
	}
	if err := s.removeCRDs(ctx, crds); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.installed, name)
	return nil
}

// removeCRDs deletes CRDs, and with them all their objects, and waits until they are gone.
func (s *supervisor) removeCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		if err := s.kube.remove(ctx, crd); err != nil {
			return err
		}
	}
	for _, crd := range crds {
		err := s.wait(ctx, "the CRD "+crd.GetName()+" to go", func(ctx context.Context) error { return s.kube.gone(ctx, crd) })
		if err != nil {
			return err
		}
	}
	return nil
}

func listed(names []string) string {
	return strings.Join(names, ", ")
}
