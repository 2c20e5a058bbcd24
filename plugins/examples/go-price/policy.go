package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
)

// The columns of the matrix. node.carbon is no feature of the host: an administrator adds it.
const (
	price = iota
	spot
	free
	carbon
	columns
)

var features = [columns]string{price: "price", spot: "spot", free: "free-accelerators", carbon: "node.carbon"}

// How much it counts that few of a node's accelerators are free. It is little, and decides between nodes that cost the same.
const fullness = 0.05

var description = map[string]any{
	"name":    "pointsman-example-go-price",
	"version": "0.1.0",
	"points":  []string{"scheduling-scoring"},
	"configSchema": map[string]any{
		"$schema":     "https://json-schema.org/draft/2020-12/schema",
		"description": "What can be configured.",
		"type":        "object",
		"properties": map[string]any{
			"priceWeight":  weight("How much a node's price counts.", 1),
			"spotPenalty":  weight("How much it counts that a node can be taken away at any time.", 0.25),
			"carbonWeight": weight("How much the feature node.carbon counts.", 0),
		},
		"additionalProperties": false,
	},
	"features":  []any{map[string]any{"question": "node-placement", "features": features}},
	"wantsTime": false,
}

// The most that a weight can be.
const maxWeight = 1000

func weight(about string, usual float64) map[string]any {
	return map[string]any{"description": about, "type": "number", "minimum": 0, "maximum": maxWeight, "default": usual}
}

// What can be configured.
type config struct {
	priceWeight, spotPenalty, carbonWeight float64
}

// Field by field, because encoding/json takes null for a number, and PRICEWEIGHT for priceWeight.
func parseConfig(text json.RawMessage) (config, error) {
	parsed := config{priceWeight: 1, spotPenalty: 0.25}
	known := map[string]*float64{
		"priceWeight":  &parsed.priceWeight,
		"spotPenalty":  &parsed.spotPenalty,
		"carbonWeight": &parsed.carbonWeight,
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil || fields == nil {
		return parsed, errors.New("the configuration doesn't fit: it must be an object")
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, isKnown := known[name]
		if !isKnown {
			return parsed, fmt.Errorf("the configuration doesn't fit: unknown field `%s`, expected `priceWeight`, `spotPenalty` or `carbonWeight`", name)
		}
		number, isNumber := fields[name].(float64)
		if !isNumber || number < 0 || number > maxWeight {
			return parsed, fmt.Errorf("the configuration doesn't fit: `%s` must be a number from 0 to %d", name, maxWeight)
		}
		*field = number
	}
	return parsed, nil
}

// By column.
func (config config) weights() [columns]float64 {
	return [columns]float64{price: config.priceWeight, spot: config.spotPenalty, free: fullness, carbon: config.carbonWeight}
}

var calls = map[string]call{"score": of(score), "explain": of(explain)}

type (
	// The matrix has a row a node, one after the other; what isn't known is nil.
	request struct {
		Question string     `json:"question"`
		Columns  int        `json:"columns"`
		Matrix   []*float64 `json:"matrix"`
		Row      int        `json:"row"`
	}
	reason struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	}
)

func (request request) rows() ([][]*float64, error) {
	if request.Question != "node-placement" || request.Columns != columns || len(request.Matrix)%columns != 0 {
		return nil, fmt.Errorf("this plugin scores nodes by %d features; ask it nothing else", columns)
	}
	return slices.Collect(slices.Chunk(request.Matrix, columns)), nil
}

// The least and the greatest value of one column.
type span struct {
	least, most float64
}

func spans(rows [][]*float64) [columns]span {
	var found [columns]span
	for column := range found {
		found[column] = span{math.Inf(1), math.Inf(-1)}
		for _, row := range rows {
			if value := row[column]; value != nil {
				found[column].least = min(found[column].least, *value)
				found[column].most = max(found[column].most, *value)
			}
		}
	}
	return found
}

// 1 for the least value, 0 for the greatest. What isn't known, and what is the same for all, is neither good nor bad.
func (span span) lowness(value *float64) float64 {
	if value == nil || span.least >= span.most {
		return 0.5
	}
	return (span.most - *value) / (span.most - span.least)
}

// How good a node is by each column, from 0 to 1.
func parts(spans [columns]span, row []*float64) [columns]float64 {
	var parts [columns]float64
	for column, value := range row {
		parts[column] = spans[column].lowness(value)
	}
	// A spot node can be taken away, whatever the others are.
	switch {
	case row[spot] == nil:
		parts[spot] = 0.5
	case *row[spot] > 0.5:
		parts[spot] = 0
	default:
		parts[spot] = 1
	}
	return parts
}

func sum(weights [columns]float64) float64 {
	total := 0.0
	for _, weight := range weights {
		total += weight
	}
	return total
}

// Scores every node: 1 is best, 0 worst. It excludes none.
func score(config config, request request) ([]float64, error) {
	rows, err := request.rows()
	if err != nil {
		return nil, err
	}
	spans, weights := spans(rows), config.weights()
	scores := make([]float64, 0, len(rows))
	for _, row := range rows {
		var weighted [columns]float64
		for column, part := range parts(spans, row) {
			weighted[column] = weights[column] * part
		}
		scores = append(scores, sum(weighted)/sum(weights))
	}
	return scores, nil
}

// Says why a node has its score.
func explain(config config, request request) ([]reason, error) {
	rows, err := request.rows()
	if err != nil {
		return nil, err
	}
	if request.Row < 0 || request.Row >= len(rows) {
		return nil, fmt.Errorf("there is no row %d", request.Row)
	}
	row, spans, weights := rows[request.Row], spans(rows), config.weights()
	codes, sources := [columns]string{price: "Price", spot: "Spot", free: "Fullness", carbon: "Carbon"}, sources(spans, row)
	var reasons []reason
	for column, part := range parts(spans, row) {
		if weights[column] > 0 {
			message := fmt.Sprintf("%s: %.2f of 1, weight %v of %v.", sources[column], part, weights[column], sum(weights))
			reasons = append(reasons, reason{Code: codes[column], Message: message})
		}
	}
	return reasons, nil
}

// What each part is made from: the beginning of a sentence.
func sources(spans [columns]span, row []*float64) [columns]string {
	sources := [columns]string{
		price:  "Its price is unknown",
		spot:   "It is unknown whether it is a spot node",
		free:   "Its free accelerators are unknown",
		carbon: "Its node.carbon is unknown",
	}
	if value := row[price]; value != nil {
		sources[price] = fmt.Sprintf("It costs %v, and the candidates %v to %v", *value, spans[price].least, spans[price].most)
	}
	if value := row[spot]; value != nil && *value > 0.5 {
		sources[spot] = "It can be taken away at any time"
	} else if value != nil {
		sources[spot] = "It stays"
	}
	if value := row[free]; value != nil {
		sources[free] = fmt.Sprintf("%v of its accelerators are free", *value)
	}
	if value := row[carbon]; value != nil {
		sources[carbon] = fmt.Sprintf("Its node.carbon is %v, and that of the candidates %v to %v", *value, spans[carbon].least, spans[carbon].most)
	}
	return sources
}
