package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/environment"
)

// measured is what stdin says: how often which expressions are evaluated on an object, each as a policy of its own.
type measured struct {
	Object      json.RawMessage `json:"object"`
	Expressions []string        `json:"expressions"`
	Batches     int             `json:"batches"`
	Times       int             `json:"times"`
}

// validate prints how many nanoseconds Kubernetes' own ValidatingAdmissionPolicy validator takes for all policies on the object: the median of
// the batches. It measures what our rules are compared with.
func validate(_ []string) error {
	var input measured
	if err := json.NewDecoder(os.Stdin).Decode(&input); err != nil {
		return fmt.Errorf("reading what to evaluate: %w", err)
	}
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(input.Object); err != nil {
		return fmt.Errorf("reading the object: %w", err)
	}
	validators, err := validatorsOf(input.Expressions)
	if err != nil {
		return err
	}
	kind := object.GroupVersionKind()
	resource := schema.GroupVersionResource{Group: kind.Group, Version: kind.Version, Resource: "measured"}
	attributes := admission.NewAttributesRecord(object, nil, kind, object.GetNamespace(), object.GetName(), resource, "",
		admission.Create, &metav1.CreateOptions{}, false, nil)
	versioned := &admission.VersionedAttributes{Attributes: attributes, VersionedObject: object, VersionedKind: kind}

	var batches []time.Duration
	for range input.Batches {
		started := time.Now()
		for range input.Times {
			for number, validator := range validators {
				result := validator.Validate(context.Background(), resource, versioned, nil, nil, celconfig.RuntimeCELCostBudget, nil)
				if len(result.Decisions) != 1 || result.Decisions[0].Action != validating.ActionAdmit {
					return fmt.Errorf("%s isn't true: %+v", input.Expressions[number], result.Decisions)
				}
			}
		}
		batches = append(batches, time.Since(started)/time.Duration(input.Times))
	}
	if len(batches) == 0 {
		return errors.New("there is no batch to measure")
	}
	slices.Sort(batches)
	fmt.Println(batches[len(batches)/2].Nanoseconds())
	return nil
}

// validatorsOf compiles each expression into a policy.
func validatorsOf(expressions []string) ([]validating.Validator, error) {
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(environment.DefaultCompatibilityVersion()))
	if err != nil {
		return nil, fmt.Errorf("making Kubernetes' CEL environment: %w", err)
	}
	var validators []validating.Validator
	none := func() cel.ConditionEvaluator {
		return compiler.CompileCondition(nil, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
	}
	for _, expression := range expressions {
		conditions := []cel.ExpressionAccessor{&validating.ValidationCondition{Expression: expression}}
		condition := compiler.CompileCondition(conditions, cel.OptionalVariableDeclarations{}, environment.StoredExpressions)
		if problems := condition.CompilationErrors(); len(problems) > 0 {
			return nil, fmt.Errorf("%s: %w", expression, problems[0])
		}
		validators = append(validators, validating.NewValidator(condition, nil, none(), none(), nil, nil))
	}
	return validators, nil
}
