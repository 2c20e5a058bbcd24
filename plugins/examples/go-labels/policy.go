package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

var description = map[string]any{
	"name":    "pointsman-example-go-labels",
	"version": "0.1.0",
	"points":  []string{"metadata-propagation"},
	"configSchema": map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"description": "What can be configured.",
		"type":        "object",
		"properties": map[string]any{
			"label": map[string]any{"description": "The label's key.", "type": "string", "default": "cost-centre"},
		},
		"additionalProperties": false,
	},
	"features":  []any{},
	"wantsTime": false,
}

// What can be configured.
type config struct {
	label string
}

// Field by field, because encoding/json takes null for a string, and LABEL for label.
func parseConfig(text json.RawMessage) (config, error) {
	parsed := config{label: "cost-centre"}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return parsed, errors.New("the configuration doesn't fit: it must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name != "label" {
			return parsed, fmt.Errorf("the configuration doesn't fit: unknown field `%s`, expected `label`", name)
		}
		label, isText := fields[name].(string)
		if !isText {
			return parsed, errors.New("the configuration doesn't fit: `label` must be a string")
		}
		parsed.label = label
	}
	return parsed, nil
}

// Of the records, only the fields that this policy needs.
type (
	entry struct {
		Key   string `json:"key"`
		Value string `json:"value"`
	}
	placed struct {
		Key   string `json:"key"`
		Value string `json:"value"`
		Layer string `json:"layer"`
	}
	reason struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
	request struct {
		Subject struct {
			NamespaceLabels []entry `json:"namespaceLabels"`
		} `json:"subject"`
		Target struct {
			Place string `json:"place"`
		} `json:"target"`
		Labels      []placed `json:"labels"`
		Annotations []placed `json:"annotations"`
	}
	answer struct {
		Labels      []placed `json:"labels"`
		Annotations []placed `json:"annotations"`
		Reasons     []reason `json:"reasons,omitempty"`
	}
)

// Adds the label to the pods, unless something nearer to them has set it.
func propagate(config config, request request) answer {
	// All that is there already must be in the answer, or the target would lose it.
	answer := answer{Labels: request.Labels, Annotations: request.Annotations}
	given := slices.IndexFunc(request.Subject.NamespaceLabels, func(label entry) bool { return label.Key == config.label })
	isSet := slices.ContainsFunc(request.Labels, func(label placed) bool { return label.Key == config.label })
	if given < 0 || isSet || request.Target.Place != "pod-template" {
		return answer
	}
	value := request.Subject.NamespaceLabels[given].Value
	answer.Labels = append(answer.Labels, placed{Key: config.label, Value: value, Layer: "namespace"})
	message := fmt.Sprintf("The namespace's %s is %s.", config.label, value)
	answer.Reasons = append(answer.Reasons, reason{Code: "NamespaceLabel", Message: message})
	return answer
}
