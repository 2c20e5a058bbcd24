// Command go-price is a Pointsman policy: it prefers cheap nodes, and those whose power makes little carbon dioxide.
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

// A call answers one kind of request.
type call func(config config, request json.RawMessage) (any, error)

// Makes a call of a function.
func of[Request, Answer any](answer func(config, Request) (Answer, error)) call {
	return func(config config, text json.RawMessage) (any, error) {
		var request Request
		if err := json.Unmarshal(text, &request); err != nil {
			return nil, fmt.Errorf("the request can't be read: %w", err)
		}
		return answer(config, request)
	}
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
	if asked.Call == "configure" {
		if err != nil {
			return failed{err.Error()}
		}
		return ok{nil}
	}
	if err != nil {
		return failed{failure{err.Error()}}
	}
	answer, known := calls[asked.Call]
	if !known {
		return failed{failure{fmt.Sprintf("this plugin has no answer to the call %q; bind it to the points that it describes", asked.Call)}}
	}
	answered, err := answer(config, asked.Request)
	if err != nil {
		return failed{failure{err.Error()}}
	}
	return ok{answered}
}
