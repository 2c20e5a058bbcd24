package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestParseNodes(t *testing.T) {
	nodes, err := parseNodes("n.yaml", []byte(`
nodes:
- name: a100
  count: 2
  labels: {zone: a}
  taints: [{key: nvidia.com/gpu, effect: NoSchedule}]
  capacity: {cpu: "64", memory: 512Gi, nvidia.com/gpu: "8"}
- name: cpu
  capacity: {cpu: 4, memory: 1Gi, pods: 20}
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != 3 || nodes[0].Name != "a100-0" || nodes[1].Name != "a100-1" || nodes[2].Name != "cpu" {
		t.Fatalf("wrong nodes: %v", nodes)
	}
	gpus := nodes[1].Status.Allocatable["nvidia.com/gpu"]
	if gpus.Value() != 8 || nodes[1].Labels["zone"] != "a" || nodes[1].Spec.Taints[0].Effect != corev1.TaintEffectNoSchedule {
		t.Errorf("a100-1 is not what the file says: %v", nodes[1])
	}
	if pods := nodes[0].Status.Capacity[corev1.ResourcePods]; pods.Value() != 110 {
		t.Errorf("pods should default to 110, not %v", pods.Value())
	}
	if pods := nodes[2].Status.Capacity[corev1.ResourcePods]; pods.Value() != 20 {
		t.Errorf("pods should be 20, not %v", pods.Value())
	}
}

func TestParseNodesRefuses(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"empty":            {"", "n.yaml:1: the file is empty"},
		"not yaml":         {"nodes:\n  - name: x\n   count: 3\n", "n.yaml:3: this is not YAML"},
		"no list":          {"nodes: 3\n", "n.yaml:1: `nodes` must be a list"},
		"unknown field":    {"nodes:\n- name: a\n  colour: red\n", `n.yaml:3: unknown field "colour"`},
		"unknown top":      {"knots: []\n", `n.yaml:1: unknown field "knots"`},
		"field twice":      {"nodes:\n- name: a\n  name: b\n", `n.yaml:3: the field "name" is given twice`},
		"quantity":         {"nodes:\n- name: a\n  capacity:\n    cpu: 1\n    memory: lots\n", `n.yaml:5: the capacity of memory is "lots"`},
		"no memory":        {"nodes:\n- name: a\n  capacity: {cpu: 1}\n", "has no memory"},
		"name":             {"nodes:\n- name: A_b\n  capacity: {cpu: 1, memory: 1Gi}\n", `n.yaml:2: the name "A_b"`},
		"count":            {"nodes:\n- name: a\n  count: none\n  capacity: {cpu: 1, memory: 1Gi}\n", "n.yaml:3: `count` must be"},
		"name twice":       {"nodes:\n- {name: a, capacity: {cpu: 1, memory: 1Gi}}\n- {name: a, capacity: {cpu: 1, memory: 1Gi}}\n", "n.yaml:3: the node name"},
		"taint":            {"nodes:\n- {name: a, capacity: {cpu: 1, memory: 1Gi}, taints: [{key: k, effect: Never}]}\n", "n.yaml:2: a taint's `effect`"},
		"bad label":        {"nodes:\n- {name: a, labels: {k: \"a b\"}, capacity: {cpu: 1, memory: 1Gi}}\n", `n.yaml:2: the label "k"`},
		"list for mapping": {"nodes:\n- [a]\n", "n.yaml:2: a node must be a mapping"},
	} {
		_, err := parseNodes("n.yaml", []byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: want an error with %q, got %v", name, c.want, err)
		}
	}
}

func TestDefaultNodes(t *testing.T) {
	nodes, err := (&upOptions{}).nodes()
	if err != nil || len(nodes) == 0 {
		t.Fatalf("the default node file must be good: %d nodes, %v", len(nodes), err)
	}
}
