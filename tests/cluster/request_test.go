package main

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseRequest(t *testing.T) {
	r, err := parseRequest([]byte(`{"do":"behave","name":"x","namespace":"ns","selector":{"app":"x"},"behaviour":"fail","exitCode":3}`))
	if err != nil {
		t.Fatal(err)
	}
	b, err := r.behaviour()
	if err != nil {
		t.Fatal(err)
	}
	if b.annotations[behaviourAnnotation] != "fail" || b.annotations[exitCodeAnnotation] != "3" || b.selector["app"] != "x" {
		t.Errorf("wrong rule: %+v", b)
	}
	for line, want := range map[string]string{
		`nonsense`:                                   "not understood",
		`{"do":"stop"}`:                              `needs "part"`,
		`{"do":"stop","prt":"etcd"}`:                 `unknown field "prt"`,
		`{"do":"frob"}`:                              `no request "frob"`,
		`{"do":"kubeconfig"}`:                        `needs "user" or "serviceAccount"`,
		`{"do":"status"} {"do":"down"}`:              "one JSON object a line",
		`{"do":"run","name":"../x","command":["a"]}`: "lower-case letters",
	} {
		if _, err := parseRequest([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: want an error with %q, got %v", line, want, err)
		}
	}
}

func TestBehaviourRefuses(t *testing.T) {
	code := 300
	for _, r := range []request{{Behaviour: "sulk"}, {}, {Behaviour: "fail", ExitCode: &code}} {
		if _, err := r.behaviour(); err == nil {
			t.Errorf("%+v must be refused", r)
		}
	}
}

func TestCtlRequest(t *testing.T) {
	for words, want := range map[string]string{
		"stop etcd": `{"do":"stop","part":"etcd"}`,
		"kubeconfig --user alice --group a --group b": `{"do":"kubeconfig","user":"alice","groups":["a","b"]}`,
		"behave slow pending --selector app=x,tier=y": `{"do":"behave","name":"slow","selector":{"app":"x","tier":"y"},"behaviour":"pending"}`,
		"behave --namespace ns slow --remove":         `{"do":"behave","name":"slow","namespace":"ns","remove":true}`,
		`{"do":"status"}`:                             `{"do":"status"}`,
	} {
		line, err := ctlRequest(strings.Fields(words))
		if err != nil || string(line) != want {
			t.Errorf("%s: want %s, got %s, %v", words, want, line, err)
		}
	}
	line, err := ctlRequest([]string{"run", "host", "--env", "A=1", "prog", "--flag", "-x"})
	var r request
	if err != nil || json.Unmarshal(line, &r) != nil {
		t.Fatal(string(line), err)
	}
	if r.Name != "host" || strings.Join(r.Command, " ") != "prog --flag -x" || r.Env["A"] != "1" {
		t.Errorf("wrong run request: %s", line)
	}
	if _, err := ctlRequest([]string{"stop", "etcd", "now"}); err == nil {
		t.Error("a word too many must be refused")
	}
}

func TestChooseNeighbours(t *testing.T) {
	if names, err := chooseNeighbours("none"); err != nil || len(names) != 0 {
		t.Error(names, err)
	}
	if names, err := chooseNeighbours("default"); err != nil || len(names) != 6 {
		t.Error(names, err)
	}
	if _, err := chooseNeighbours("keda,kaput"); err == nil || !strings.Contains(err.Error(), "inference-pool") {
		t.Errorf("an unknown neighbour must be refused with the list of known ones, got %v", err)
	}
}

func TestLastMeaningfulLine(t *testing.T) {
	for log, want := range map[string]string{
		"E1121 08:13:50.518938   31981 run.go:72] \"command failed\" err=\"boom\"\nI1121 08:13:50.518938 1 x.go:1] bye\n": `"command failed" err="boom"`,
		`{"level":"fatal","msg":"etcd failed","error":"wal: no space left on device"}`:                                    "etcd failed: wal: no space left on device",
		`{"severity":"EMERGENCY","message":"no watcher","error":"no config-features","stacktrace":"at home"}`:             "no watcher: no config-features",
		"panic: oh no\n\ngoroutine 1 [running]:\nmain.main()\n":                                                           "panic: oh no",
		"": "",
	} {
		if got := lastMeaningfulLine(log); got != want {
			t.Errorf("want %q, got %q", want, got)
		}
	}
}
