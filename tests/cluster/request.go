package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// request is one line that a client writes to the control socket.
type request struct {
	Do string `json:"do"`
	// stop, start, kill, pause, resume
	Part string `json:"part,omitempty"`
	// kubeconfig: a user with groups, or a ServiceAccount as namespace/name
	User           string   `json:"user,omitempty"`
	Groups         []string `json:"groups,omitempty"`
	ServiceAccount string   `json:"serviceAccount,omitempty"`
	// install, remove
	Neighbour string `json:"neighbour,omitempty"`
	// nodes: a file (absolute) or its text
	File string `json:"file,omitempty"`
	YAML string `json:"yaml,omitempty"`
	// run, behave
	Name    string            `json:"name,omitempty"`
	Command []string          `json:"command,omitempty"`
	Env     map[string]string `json:"env,omitempty"`
	Dir     string            `json:"dir,omitempty"`
	// behave
	Namespace   string            `json:"namespace,omitempty"`
	Selector    map[string]string `json:"selector,omitempty"`
	Behaviour   string            `json:"behaviour,omitempty"`
	ExitCode    *int              `json:"exitCode,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Remove      bool              `json:"remove,omitempty"`
}

// verbs lists, for each request, the fields that it must have (one of them where they are joined by |).
var verbs = map[string][]string{
	"status": nil, "down": nil, "snapshot": nil, "restore": nil,
	"stop": {"part"}, "start": {"part"}, "kill": {"part"}, "pause": {"part"}, "resume": {"part"},
	"kubeconfig": {"user|serviceAccount"},
	"install":    {"neighbour"}, "remove": {"neighbour"},
	"nodes":  {"file|yaml"},
	"run":    {"name", "command"},
	"behave": {"name"},
}

var verbNames = []string{
	"status", "stop", "start", "kill", "pause", "resume", "kubeconfig", "install", "remove", "nodes", "run", "behave",
	"snapshot", "restore", "down",
}

var plainName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// parseRequest reads one line strictly: what is misspelt is refused, not ignored.
func parseRequest(line []byte) (*request, error) {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	var r request
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("the request is not understood: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("the request has something after its end: send one JSON object a line")
	}
	needed, ok := verbs[r.Do]
	if !ok {
		return nil, fmt.Errorf("there is no request %q; there are %s", r.Do, listed(verbNames))
	}
	for _, field := range needed {
		if !r.has(field) {
			return nil, fmt.Errorf("the request %q needs \"%s\"", r.Do, strings.ReplaceAll(field, "|", `" or "`))
		}
	}
	if r.Name != "" && !plainName.MatchString(r.Name) {
		return nil, fmt.Errorf("the name %q may only have lower-case letters, digits, dashes and dots", r.Name)
	}
	return &r, nil
}

func (r *request) has(field string) bool {
	given := map[string]bool{
		"part": r.Part != "", "user": r.User != "", "serviceAccount": r.ServiceAccount != "", "neighbour": r.Neighbour != "",
		"file": r.File != "", "yaml": r.YAML != "", "name": r.Name != "", "command": len(r.Command) > 0,
	}
	for _, alternative := range strings.Split(field, "|") {
		if given[alternative] {
			return true
		}
	}
	return false
}
