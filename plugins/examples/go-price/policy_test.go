package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"testing"
)

// Asks as the host does, by way of the two documents.
func ask(t *testing.T, question any) map[string]any {
	t.Helper()
	asked, err := json.Marshal(question)
	if err != nil {
		t.Fatal(err)
	}
	var said bytes.Buffer
	if err := serve(bytes.NewReader(asked), &said); err != nil {
		t.Fatal(err)
	}
	var answer map[string]any
	if err := json.Unmarshal(said.Bytes(), &answer); err != nil {
		t.Fatalf("%s is no answer: %v", &said, err)
	}
	return answer
}

func TestAnswersItsGoldenCases(t *testing.T) {
	text, err := os.ReadFile("cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name           string
		Config, Answer any
		Request        map[string]any
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("there are no cases")
	}
	for _, each := range cases {
		t.Run(each.Name, func(t *testing.T) {
			call := "score"
			if _, isRow := each.Request["row"]; isRow {
				call = "explain"
			}
			said := ask(t, map[string]any{"call": call, "config": each.Config, "request": each.Request})
			if want := map[string]any{"ok": each.Answer}; !reflect.DeepEqual(said, want) {
				t.Errorf("it answers %v, and should answer %v", said, want)
			}
		})
	}
}

// A node, by the columns of the matrix; nil is unknown.
func node(price, spot, free, carbon any) []*float64 {
	var row []*float64
	for _, value := range []any{price, spot, free, carbon} {
		if number, isKnown := value.(float64); isKnown {
			row = append(row, &number)
		} else {
			row = append(row, nil)
		}
	}
	return row
}

// The numbers of the nodes, the best first.
func ranked(t *testing.T, config config, nodes ...[]*float64) []int {
	t.Helper()
	scores, err := score(config, request{Question: "node-placement", Columns: columns, Matrix: slices.Concat(nodes...)})
	if err != nil {
		t.Fatal(err)
	}
	order := []int{}
	for at, score := range scores {
		if score < 0 || score > 1 {
			t.Errorf("the score %v isn't from 0 to 1", score)
		}
		order = append(order, at)
	}
	slices.SortStableFunc(order, func(a, b int) int {
		switch {
		case scores[a] > scores[b]:
			return -1
		case scores[a] < scores[b]:
			return 1
		}
		return 0
	})
	return order
}

func TestPrefersCheapNodes(t *testing.T) {
	nodes := [][]*float64{
		node(4.0, 0.0, 8.0, 100.0),
		node(2.0, 0.0, 8.0, 400.0),
		node(2.0, 0.0, 2.0, 400.0),
		node(1.5, 1.0, 8.0, nil),
	}
	for _, each := range []struct {
		why    string
		config config
		want   []int
	}{
		{"cheap ones, of these the fuller one, and a spot node only if it is much cheaper", config{1, 0.25, 0}, []int{2, 1, 3, 0}},
		{"a spot node costs the least", config{1, 0, 0}, []int{3, 2, 1, 0}},
		{"carbon counts more than the price", config{0.5, 0, 2}, []int{0, 3, 2, 1}},
		{"nothing counts but how full nodes are", config{}, []int{2, 0, 1, 3}},
	} {
		if order := ranked(t, each.config, nodes...); !slices.Equal(order, each.want) {
			t.Errorf("%s: the order is %v, and should be %v", each.why, order, each.want)
		}
	}
}

func TestSaysWhatIsWrongWithAConfiguration(t *testing.T) {
	for config, want := range map[string]any{
		`{}`: nil,
		`{"priceWeight": 2, "spotPenalty": 0, "carbonWeight": 0.5}`: nil,
		`{"price": 1}`:          "the configuration doesn't fit: unknown field `price`, expected `priceWeight`, `spotPenalty` or `carbonWeight`",
		`{"PRICEWEIGHT": 1}`:    "the configuration doesn't fit: unknown field `PRICEWEIGHT`, expected `priceWeight`, `spotPenalty` or `carbonWeight`",
		`{"priceWeight": -1}`:   "the configuration doesn't fit: `priceWeight` must be a number from 0 to 1000",
		`{"spotPenalty": 1001}`: "the configuration doesn't fit: `spotPenalty` must be a number from 0 to 1000",
		`{"carbonWeight": "1"}`: "the configuration doesn't fit: `carbonWeight` must be a number from 0 to 1000",
		`{"priceWeight": null}`: "the configuration doesn't fit: `priceWeight` must be a number from 0 to 1000",
		`null`:                  "the configuration doesn't fit: it must be an object",
		`[]`:                    "the configuration doesn't fit: it must be an object",
	} {
		said := ask(t, map[string]any{"call": "configure", "config": json.RawMessage(config)})
		if said["err"] != want {
			t.Errorf("of %s it says %v, and should say %v", config, said, want)
		}
	}
}

func TestDescribesItself(t *testing.T) {
	said := ask(t, map[string]any{"call": "describe"})
	described, _ := said["ok"].(map[string]any)
	if want := []any{"scheduling-scoring"}; !reflect.DeepEqual(described["points"], want) {
		t.Errorf("it answers %v, and should answer at %v", said, want)
	}
	wanted := map[string]any{"question": "node-placement", "features": []any{"price", "spot", "free-accelerators", "node.carbon"}}
	if !reflect.DeepEqual(described["features"], []any{wanted}) {
		t.Errorf("it wants %v, and should want %v", described["features"], wanted)
	}
}

func TestWhatItCannotAnswerIsAFailureWithASentence(t *testing.T) {
	for call, request := range map[string]map[string]any{
		"judge":   {},
		"score":   {"question": "endpoint-pick", "columns": 4, "matrix": []any{}},
		"explain": {"question": "node-placement", "columns": 4, "matrix": []any{1, 0, 8, nil}, "row": 1},
	} {
		said := ask(t, map[string]any{"call": call, "config": map[string]any{}, "request": request})
		failure, _ := said["err"].(map[string]any)
		if failure["message"] == nil {
			t.Errorf("to %s it answers %v, and should fail with a message", call, said)
		}
	}
}
