package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	behaviourAnnotation = "cluster.pointsman.dev/behaviour"
	exitCodeAnnotation  = "cluster.pointsman.dev/exit-code"
	// probeLabel marks the pod that we create in a dry run to see whether a rule works already.
	probeLabel = "cluster.pointsman.dev/probe"
	rulePrefix = "cluster-pointsman-dev-"
)

var behaviours = []string{"pending", "fail", "crash", "run", "complete"}

// behaviour is a rule about pods that don't exist yet: those of a namespace (of all, when it is empty) with these labels
// get these annotations when they are created.
type behaviour struct {
	name, namespace string
	selector        map[string]string
	annotations     map[string]string
}

func (r *request) behaviour() (*behaviour, error) {
	b := &behaviour{name: r.Name, namespace: r.Namespace, selector: r.Selector, annotations: map[string]string{}}
	for key, value := range r.Annotations {
		b.annotations[key] = value
	}
	if r.Behaviour != "" {
		if !slices.Contains(behaviours, r.Behaviour) {
			return nil, fmt.Errorf("there is no behaviour %q; there are %s", r.Behaviour, listed(behaviours))
		}
		b.annotations[behaviourAnnotation] = r.Behaviour
	}
	if r.ExitCode != nil {
		if *r.ExitCode < 0 || *r.ExitCode > 255 {
			return nil, fmt.Errorf("the exit code %d is not between 0 and 255", *r.ExitCode)
		}
		b.annotations[exitCodeAnnotation] = strconv.Itoa(*r.ExitCode)
	}
	if len(b.annotations) == 0 {
		return nil, fmt.Errorf("`behave` needs a \"behaviour\" (%s) or \"annotations\"", listed(behaviours))
	}
	return b, nil
}

// behave makes the rule a MutatingAdmissionPolicy and returns when the API server applies it.
func (s *supervisor) behave(ctx context.Context, b *behaviour) error {
	token := rand.Text()[:12]
	policy, err := b.policy(token)
	if err != nil {
		return err
	}
	policies := s.kube.typed.AdmissionregistrationV1().MutatingAdmissionPolicies()
	if old, err := policies.Get(ctx, policy.Name, metav1.GetOptions{}); err == nil {
		policy.ResourceVersion = old.ResourceVersion
		_, err = policies.Update(ctx, policy, metav1.UpdateOptions{})
		if err != nil {
			return err
		}
	} else if _, err := policies.Create(ctx, policy, metav1.CreateOptions{}); err != nil {
		return err
	}
	binding := &admission.MutatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: policy.Name},
		Spec:       admission.MutatingAdmissionPolicyBindingSpec{PolicyName: policy.Name},
	}
	_, err = s.kube.typed.AdmissionregistrationV1().MutatingAdmissionPolicyBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	return s.wait(ctx, "the API server to apply the rule "+b.name, func(ctx context.Context) error {
		got, err := s.probe(ctx, token)
		if err != nil {
			return err
		}
		for key, value := range b.annotations {
			if got[key] != value {
				return fmt.Errorf("a new pod does not get the annotation %s yet", key)
			}
		}
		return nil
	})
}

// forget removes a rule and returns when the API server applies it no more.
func (s *supervisor) forget(ctx context.Context, name string) error {
	name = rulePrefix + name
	policies := s.kube.typed.AdmissionregistrationV1().MutatingAdmissionPolicies()
	policy, err := policies.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("there is no rule %q", name[len(rulePrefix):])
	} else if err != nil {
		return err
	}
	token := policy.Annotations[probeLabel]
	bindings := s.kube.typed.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err := policies.Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return s.wait(ctx, "the API server to drop the rule", func(ctx context.Context) error {
		got, err := s.probe(ctx, token)
		if err != nil {
			return err
		}
		if len(got) > 0 {
			return fmt.Errorf("new pods still get its annotations")
		}
		return nil
	})
}

// policy says it in CEL. A probe pod is recognised by the rule's own token instead of the selector, so the probe needs no
// labels that other webhooks might react to.
func (b *behaviour) policy(token string) (*admission.MutatingAdmissionPolicy, error) {
	wanted := "true"
	if b.namespace != "" {
		wanted = "request.namespace == " + quoted(b.namespace)
	}
	keys := make([]string, 0, len(b.selector))
	for key := range b.selector {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		wanted += fmt.Sprintf(" && object.metadata.?labels[?%s].orValue(\"\") == %s", quoted(key), quoted(b.selector[key]))
	}
	match := fmt.Sprintf("object.metadata.?labels[?%s].orValue(\"\") == %s || (!(%s in object.metadata.?labels.orValue({})) && %s)",
		quoted(probeLabel), quoted(token), quoted(probeLabel), wanted)
	annotations, err := json.Marshal(b.annotations)
	if err != nil {
		return nil, err
	}
	fail, all := admission.Fail, admission.NamespacedScope
	return &admission.MutatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: rulePrefix + b.name, Annotations: map[string]string{probeLabel: token}},
		Spec: admission.MutatingAdmissionPolicySpec{
			FailurePolicy:      &fail,
			ReinvocationPolicy: admission.NeverReinvocationPolicy,
			MatchConstraints: &admission.MatchResources{ResourceRules: []admission.NamedRuleWithOperations{{
				RuleWithOperations: admission.RuleWithOperations{
					Operations: []admission.OperationType{admission.Create},
					Rule:       admission.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods"}, Scope: &all},
				},
			}}},
			MatchConditions: []admission.MatchCondition{{Name: "wanted", Expression: match}},
			Mutations: []admission.Mutation{{
				PatchType: admission.PatchTypeApplyConfiguration,
				// JSON objects of strings are CEL map literals too.
				ApplyConfiguration: &admission.ApplyConfiguration{
					Expression: "Object{metadata: Object.metadata{annotations: " + string(annotations) + "}}",
				},
			}},
		},
	}, nil
}

// probe creates a pod in a dry run and returns the annotations that it would get.
func (s *supervisor) probe(ctx context.Context, token string) (map[string]string, error) {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "pointsman-cluster-probe", Labels: map[string]string{probeLabel: token}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}},
	}
	created, err := s.kube.typed.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	if err != nil {
		return nil, err
	}
	return created.Annotations, nil
}

// quoted makes a CEL string literal; JSON's escapes are among CEL's.
func quoted(text string) string {
	literal, _ := json.Marshal(text)
	return string(literal)
}
