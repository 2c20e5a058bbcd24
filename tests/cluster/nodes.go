package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	yaml "go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

const mostNodes = 5000

// nodeSource is a node file being read; it gives every complaint its file and line.
type nodeSource struct{ name string }

func (s nodeSource) wrong(at *yaml.Node, format string, args ...any) error {
	return fmt.Errorf("%s:%d: %s", s.name, at.Line, fmt.Sprintf(format, args...))
}

var yamlLine = regexp.MustCompile(`^yaml: (?:line \d+: )?(.*)`)

// brokenLine finds where a text stops being YAML: the line after the longest beginning that can be read. (The parser's own
// line is that of the enclosing list or mapping, which may be far above.)
func brokenLine(text []byte) int {
	lines := strings.SplitAfter(string(text), "\n")
	for n := len(lines) - 1; n > 0; n-- {
		var ignored yaml.Node
		if yaml.Unmarshal([]byte(strings.Join(lines[:n], "")), &ignored) == nil {
			return n + 1
		}
	}
	return 1
}

func readNodeFile(path string) ([]*corev1.Node, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("the node file %s does not exist", path)
	} else if err != nil {
		return nil, fmt.Errorf("the node file can't be read: %w", err)
	}
	return parseNodes(path, text)
}

// parseNodes reads a node file strictly: an unknown field, a bad quantity or a name given twice is refused, with its line.
func parseNodes(name string, text []byte) ([]*corev1.Node, error) {
	s := nodeSource{name: name}
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		message := strings.TrimSpace(err.Error())
		if m := yamlLine.FindStringSubmatch(message); m != nil {
			message = m[1]
		}
		return nil, fmt.Errorf("%s:%d: this is not YAML: %s", name, brokenLine(text), message)
	}
	if len(document.Content) == 0 {
		return nil, fmt.Errorf("%s:1: the file is empty; it needs a list `nodes:`", name)
	}
	top, err := s.fields(document.Content[0], "the file", "nodes")
	if err != nil {
		return nil, err
	}
	list := top["nodes"]
	if list == nil || list.Kind != yaml.SequenceNode || len(list.Content) == 0 {
		return nil, s.wrong(document.Content[0], "`nodes` must be a list with at least one node")
	}
	var nodes []*corev1.Node
	seen := map[string]bool{}
	for _, item := range list.Content {
		group, err := s.group(item)
		if err != nil {
			return nil, err
		}
		for _, node := range group {
			if seen[node.Name] {
				return nil, s.wrong(item, "the node name %q is used twice", node.Name)
			}
			seen[node.Name] = true
			nodes = append(nodes, node)
		}
		if len(nodes) > mostNodes {
			return nil, s.wrong(item, "these are more than %d nodes", mostNodes)
		}
	}
	return nodes, nil
}

// group is one entry of the list: one node, or `count` equal ones.
func (s nodeSource) group(item *yaml.Node) ([]*corev1.Node, error) {
	fields, err := s.fields(item, "a node", "name", "count", "labels", "annotations", "taints", "capacity")
	if err != nil {
		return nil, err
	}
	if fields["name"] == nil {
		return nil, s.wrong(item, "the node has no `name`")
	}
	name, err := s.text(fields["name"], "name")
	if err != nil {
		return nil, err
	}
	if bad := validation.IsDNS1123Subdomain(name); len(bad) > 0 {
		return nil, s.wrong(fields["name"], "the name %q is not a valid node name: %s", name, bad[0])
	}
	labels, err := s.texts(fields["labels"], "labels")
	if err != nil {
		return nil, err
	}
	for key, value := range labels {
		if bad := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(bad) > 0 {
			return nil, s.wrong(fields["labels"], "the label %q: %q is not valid: %s", key, value, bad[0])
		}
	}
	annotations, err := s.texts(fields["annotations"], "annotations")
	if err != nil {
		return nil, err
	}
	taints, err := s.taints(fields["taints"])
	if err != nil {
		return nil, err
	}
	capacity, err := s.capacity(item, fields["capacity"])
	if err != nil {
		return nil, err
	}
	names := []string{name}
	if count := fields["count"]; count != nil {
		n, err := strconv.Atoi(count.Value)
		if err != nil || n < 1 || n > mostNodes {
			return nil, s.wrong(count, "`count` must be a whole number from 1 to %d, not %q", mostNodes, count.Value)
		}
		names = names[:0]
		for i := range n {
			names = append(names, fmt.Sprintf("%s-%d", name, i))
		}
	}
	var nodes []*corev1.Node
	for _, name := range names {
		nodes = append(nodes, simulatedNode(name, labels, annotations, taints, capacity))
	}
	return nodes, nil
}

func (s nodeSource) capacity(item, field *yaml.Node) (corev1.ResourceList, error) {
	texts, err := s.texts(field, "capacity")
	if err != nil {
		return nil, err
	}
	list := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for key, value := range texts {
		quantity, err := resource.ParseQuantity(value)
		if err != nil || quantity.Sign() < 0 {
			return nil, s.wrong(entry(field, key), "the capacity of %s is %q, which is not a quantity such as \"8\", \"500m\" or \"512Gi\"", key, value)
		}
		if bad := validation.IsQualifiedName(key); len(bad) > 0 {
			return nil, s.wrong(entry(field, key), "%q is not a resource name: %s", key, bad[0])
		}
		list[corev1.ResourceName(key)] = quantity
	}
	for _, needed := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if _, ok := list[needed]; !ok {
			return nil, s.wrong(item, "the node's `capacity` has no %s", needed)
		}
	}
	return list, nil
}

func (s nodeSource) taints(field *yaml.Node) ([]corev1.Taint, error) {
	if field == nil {
		return nil, nil
	}
	if field.Kind != yaml.SequenceNode {
		return nil, s.wrong(field, "`taints` must be a list")
	}
	var taints []corev1.Taint
	for _, item := range field.Content {
		fields, err := s.fields(item, "a taint", "key", "value", "effect")
		if err != nil {
			return nil, err
		}
		var taint corev1.Taint
		for key, target := range map[string]*string{"key": &taint.Key, "value": &taint.Value, "effect": (*string)(&taint.Effect)} {
			if fields[key] != nil {
				if *target, err = s.text(fields[key], key); err != nil {
					return nil, err
				}
			}
		}
		switch taint.Effect {
		case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		default:
			return nil, s.wrong(item, "a taint's `effect` must be NoSchedule, PreferNoSchedule or NoExecute, not %q", taint.Effect)
		}
		if bad := validation.IsQualifiedName(taint.Key); len(bad) > 0 {
			return nil, s.wrong(item, "a taint's `key` %q is not valid: %s", taint.Key, bad[0])
		}
		taints = append(taints, taint)
	}
	return taints, nil
}

// fields takes a mapping apart and refuses what is not known or is given twice.
func (s nodeSource) fields(node *yaml.Node, what string, known ...string) (map[string]*yaml.Node, error) {
	if node.Kind != yaml.MappingNode {
		return nil, s.wrong(node, "%s must be a mapping with the fields %s", what, strings.Join(known, ", "))
	}
	fields := map[string]*yaml.Node{}
	for i := 0; i < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		if known != nil && !slices.Contains(known, key.Value) {
			return nil, s.wrong(key, "unknown field %q: %s has the fields %s", key.Value, what, strings.Join(known, ", "))
		}
		if fields[key.Value] != nil {
			return nil, s.wrong(key, "the field %q is given twice", key.Value)
		}
		fields[key.Value] = value
	}
	return fields, nil
}

func (s nodeSource) texts(field *yaml.Node, what string) (map[string]string, error) {
	if field == nil {
		return nil, nil
	}
	fields, err := s.fields(field, "`"+what+"`")
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for key, value := range fields {
		if texts[key], err = s.text(value, key); err != nil {
			return nil, err
		}
	}
	return texts, nil
}

func (s nodeSource) text(node *yaml.Node, what string) (string, error) {
	if node.Kind != yaml.ScalarNode {
		return "", s.wrong(node, "%q must be a plain value", what)
	}
	return node.Value, nil
}

// entry finds the line of one key in a mapping.
func entry(mapping *yaml.Node, key string) *yaml.Node {
	for i := 0; i < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i]
		}
	}
	return mapping
}

// simulatedNode is the Node object that kwok then plays.
func simulatedNode(name string, labels, annotations map[string]string, taints []corev1.Taint, capacity corev1.ResourceList) *corev1.Node {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelHostname: name, corev1.LabelArchStable: "amd64", corev1.LabelOSStable: "linux",
			},
			Annotations: map[string]string{
				"kwok.x-k8s.io/node":                   "fake",
				"metrics.k8s.io/resource-metrics-path": "/metrics/nodes/" + name + "/metrics/resource",
			},
		},
		Spec:   corev1.NodeSpec{Taints: taints},
		Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity.DeepCopy()},
	}
	for key, value := range labels {
		node.Labels[key] = value
	}
	for key, value := range annotations {
		node.Annotations[key] = value
	}
	return node
}
