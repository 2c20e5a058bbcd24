package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// service is one that Knative takes as it comes, with more in its pod and in its container.
func service(pod, container string) string {
	return fmt.Sprintf(`{"metadata":{"name":"llama"},"spec":{"template":{"spec":{%s"containers":[{"image":"vllm"%s}]}}}}`, pod, container)
}

const (
	hostPath = `"volumes":[{"name":"model","hostPath":{"path":"/models"}}],`
	mount    = `,"volumeMounts":[{"name":"model","mountPath":"/mnt/models"}]`
)

func ask(t *testing.T, questions ...string) []answer {
	t.Helper()
	var out strings.Builder
	if err := serve(strings.NewReader(strings.Join(questions, "\n")), &out); err != nil {
		t.Fatal(err)
	}
	var answers []answer
	for line := range strings.Lines(out.String()) {
		var a answer
		if err := json.Unmarshal([]byte(line), &a); err != nil {
			t.Fatal(err)
		}
		answers = append(answers, a)
	}
	if len(answers) != len(questions) {
		t.Fatalf("%d answers to %d questions", len(answers), len(questions))
	}
	return answers
}

func TestKnativeRefusesWhatItsSettingsForbid(t *testing.T) {
	cases := map[string]struct{ service, settings, refused string }{
		"a plain Service":               {service("", ""), ``, ""},
		"a hostPath":                    {service(hostPath, mount), ``, "HostPath volume support is disabled"},
		"a hostPath that is allowed":    {service(hostPath, mount), `,"features":{"kubernetes.podspec-volumes-hostpath":"enabled"}`, ""},
		"a volume that nobody mounts":   {service(hostPath, ""), `,"features":{"kubernetes.podspec-volumes-hostpath":"enabled"}`, `"model" not mounted`},
		"two ports":                     {service("", `,"ports":[{"containerPort":80},{"containerPort":81}]`), ``, "more than one container port"},
		"what Knative keeps for itself": {service(`"terminationGracePeriodSeconds":1,`, ""), ``, "must not set the field(s)"},
		"a long timeout":                {service(`"timeoutSeconds":900,`, ""), ``, "expected 0 <= 900 <= 600"},
		"a long timeout in a patient cluster": {
			service(`"timeoutSeconds":900,`, ""), `,"defaults":{"max-revision-timeout-seconds":"900"}`, "",
		},
		"a field that there isn't":  {service(`"nodeselector":{},`, ""), ``, "unknown field"},
		"a field of another type":   {service(`"nodeSelector":1,`, ""), ``, "can't be read"},
		"a metric of another class": {strings.Replace(service("", ""), `{"spec":{"containers`, `{"metadata":{"annotations":{"autoscaling.knative.dev/metric":"cpu"}},"spec":{"containers`, 1), ``, "invalid value: cpu"},
	}
	for name, c := range cases {
		got := ask(t, fmt.Sprintf(`{"service":%s%s}`, c.service, c.settings))[0].Errors
		if (c.refused == "") != (got == "") || !strings.Contains(got, c.refused) {
			t.Errorf("%s: want %q, got %q", name, c.refused, got)
		}
	}
}

func TestWarningsAreNoErrors(t *testing.T) {
	safe := `,"securityContext":{"runAsNonRoot":true,"allowPrivilegeEscalation":false,"seccompProfile":{"type":"RuntimeDefault"},"capabilities":{"drop":["ALL"]}}`
	answers := ask(t, `{"service":`+service("", "")+`}`, `{"service":`+service("", safe)+`}`)
	if a := answers[0]; a.Errors != "" || !strings.Contains(a.Warnings, "runAsNonRoot") {
		t.Errorf("want a warning alone, got %+v", a)
	}
	if a := answers[1]; a != (answer{}) {
		t.Errorf("want nothing, got %+v", a)
	}
}

func TestWhatIsNoQuestionEndsItWithItsLine(t *testing.T) {
	for line, want := range map[string]string{
		`gibberish`:            "line 2 is not a question",
		`{"servise":{}}`:       `unknown field "servise"`,
		`{"features":{}}`:      `it has no "service"`,
		`{"features":{"a":1}}`: "line 2 is not a question",
		`{"service":{},"defaults":{"revision-timeout-seconds":"x"}}`: "the defaults are refused",
	} {
		err := serve(strings.NewReader(`{"service":`+service("", "")+"}\n"+line+"\n"), &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want %q, got %v", line, want, err)
		}
	}
}
