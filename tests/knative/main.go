// Command knative-check tells what Knative's own defaulting and validation make of a Service, without a cluster: a question
// a line on standard input, an answer a line on standard output.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	authentication "k8s.io/api/authentication/v1"
	"knative.dev/pkg/apis"
	"knative.dev/serving/pkg/apis/config"
	serving "knative.dev/serving/pkg/apis/serving/v1"
	autoscaler "knative.dev/serving/pkg/autoscaler/config"
	strict "sigs.k8s.io/json"
)

// longestLine is several times what etcd takes.
const longestLine = 8 << 20

// question is a new Service, and what an administrator has written into Knative's ConfigMaps of these names.
type question struct {
	Service    json.RawMessage   `json:"service"`
	Features   map[string]string `json:"features"`
	Defaults   map[string]string `json:"defaults"`
	Autoscaler map[string]string `json:"autoscaler"`
}

// answer is empty where Knative has nothing to say.
type answer struct {
	Errors   string `json:"errors"`
	Warnings string `json:"warnings"`
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, 64<<10), longestLine)
	answers := json.NewEncoder(out)
	answers.SetEscapeHTML(false)
	number := 0
	for lines.Scan() {
		number++
		var q question
		if err := decode(lines.Bytes(), &q); err != nil {
			return fmt.Errorf("line %d is not a question: %w", number, err)
		}
		a, err := q.check()
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return fmt.Errorf("line %d can't be read: %w", number+1, err)
	}
	return nil
}

// check does what Knative's webhook does with a Service that is created.
func (q *question) check() (answer, error) {
	settings, err := q.settings()
	if err != nil {
		return answer{}, err
	}
	if len(q.Service) == 0 {
		return answer{}, errors.New(`it has no "service"`)
	}
	var service serving.Service
	// A field that there isn't is refused here. An API server refuses it too, before Knative sees the Service.
	if err := decode(q.Service, &service); err != nil {
		return answer{Errors: "the Service can't be read: " + err.Error()}, nil
	}
	ctx := config.ToContext(context.Background(), settings)
	ctx = apis.WithUserInfo(apis.WithinCreate(ctx), &authentication.UserInfo{Username: "knative-check"})
	service.SetDefaults(ctx)
	problems := service.Validate(ctx)
	return answer{
		Errors:   problems.Filter(apis.ErrorLevel).Error(),
		Warnings: problems.Filter(apis.WarningLevel).Error(),
	}, nil
}

func (q *question) settings() (*config.Config, error) {
	features, err := config.NewFeaturesConfigFromMap(q.Features)
	if err != nil {
		return nil, fmt.Errorf("the features are refused: %w", err)
	}
	defaults, err := config.NewDefaultsConfigFromMap(q.Defaults)
	if err != nil {
		return nil, fmt.Errorf("the defaults are refused: %w", err)
	}
	scaling, err := autoscaler.NewConfigFromMap(q.Autoscaler)
	if err != nil {
		return nil, fmt.Errorf("the autoscaler's settings are refused: %w", err)
	}
	return &config.Config{Features: features, Defaults: defaults, Autoscaler: scaling}, nil
}

// decode reads as an API server does: names count with their case, and unknown and repeated ones are errors.
func decode(text []byte, into any) error {
	unwanted, err := strict.UnmarshalStrict(text, into)
	if err != nil {
		return err
	}
	return errors.Join(unwanted...)
}
