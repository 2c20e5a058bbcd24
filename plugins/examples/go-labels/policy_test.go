package main

import (
	"bytes"
	"encoding/json"
	"os"
	"reflect"
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

func TestAnswersLikeTheSamePolicyInOtherLanguages(t *testing.T) {
	text, err := os.ReadFile("../labels-cases.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name                    string
		Config, Request, Answer any
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	if len(cases) == 0 {
		t.Fatal("there are no cases")
	}
	for _, each := range cases {
		t.Run(each.Name, func(t *testing.T) {
			said := ask(t, map[string]any{"call": "propagate", "config": each.Config, "request": each.Request})
			if want := map[string]any{"ok": each.Answer}; !reflect.DeepEqual(said, want) {
				t.Errorf("it answers %v, and should answer %v", said, want)
			}
		})
	}
}

func TestSaysWhatIsWrongWithAConfiguration(t *testing.T) {
	for config, want := range map[string]any{
		`{}`:                nil,
		`{"label": "team"}`: nil,
		`{"lable": "team"}`: "the configuration doesn't fit: unknown field `lable`, expected `label`",
		`{"LABEL": "team"}`: "the configuration doesn't fit: unknown field `LABEL`, expected `label`",
		`{"label": 1}`:      "the configuration doesn't fit: `label` must be a string",
		`{"label": null}`:   "the configuration doesn't fit: `label` must be a string",
		`null`:              "the configuration doesn't fit: it must be an object",
		`[]`:                "the configuration doesn't fit: it must be an object",
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
	if want := []any{"metadata-propagation"}; !reflect.DeepEqual(described["points"], want) {
		t.Errorf("it answers %v, and should answer at %v", said, want)
	}
}

func TestAnUnknownCallIsAFailureWithASentence(t *testing.T) {
	said := ask(t, map[string]any{"call": "judge", "config": map[string]any{}})
	failure, _ := said["err"].(map[string]any)
	if failure["message"] == nil {
		t.Errorf("it answers %v, and should fail with a message", said)
	}
}
