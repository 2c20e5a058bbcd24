// Command go-labels is a Pointsman policy: it carries a label of the namespace, such as its cost centre, to every pod that is made
// in it.
//
// This file answers the host, and is the same for every policy; policy.go is the policy.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// A question is one JSON document on stdin. The host starts the command anew for each, so the configuration comes along.
type question struct {
	Call    string          `json:"call"`
	Config  json.RawMessage `json:"config"`
	Request json.RawMessage `json:"request"`
}

// The answer is one JSON document on stdout: one of these two.
type (
	ok struct {
		Ok any `json:"ok"`
	}
	failed struct {
		Err any `json:"err"`
	}
)

// A failure is why a request can't be answered.
type failure struct {
	Message string `json:"message"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	var asked question
	if err := json.NewDecoder(in).Decode(&asked); err != nil {
		return fmt.Errorf("the question can't be read: %w", err)
	}
	return json.NewEncoder(out).Encode(reply(asked))
}

func reply(asked question) any {
	if asked.Call == "describe" {
		return ok{description}
	}
	config, err := parseConfig(asked.Config)
	switch {
	case asked.Call == "configure" && err != nil:
		return failed{err.Error()}
	case asked.Call == "configure":
		return ok{nil}
	case asked.Call != "propagate":
		return failed{failure{fmt.Sprintf("this plugin has no answer to the call %q; bind it to the points that it describes", asked.Call)}}
	case err != nil:
		return failed{failure{err.Error()}}
	}
	var request request
	if err := json.Unmarshal(asked.Request, &request); err != nil {
		return failed{failure{fmt.Sprintf("the request can't be read: %v", err)}}
	}
	return ok{propagate(config, request)}
}
