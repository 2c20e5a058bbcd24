//! The runtime of a service: a named one is checked; otherwise one is chosen and then retained.

use super::{PlanBuilder, PlanError, RUNTIME_SELECTED, RUNTIME_UP_TO_DATE, component::ComponentKind};
use crate::{
    condition::Condition,
    decide::{
        Decision,
        selection::{Inputs, Judged, Selection},
    },
    plan::Decided,
    resource::{CLUSTER_SERVING_RUNTIME, SERVING_RUNTIME},
    world::{
        ObjectKey, Read,
        ome::{ModelView, RuntimeView},
    },
};
use pointsman_crds::ome::inference_service::ServingRuntimeRef;
use pointsman_sandbox::{
    digest::Digested,
    point::{Reason, selection::Candidate},
};
use serde_json::{Value, json};
use std::{borrow::Cow, sync::Arc};

/// The annotation that requests a new choice whenever its value changes.
pub(super) const CHOOSE_RUNTIME: &str = "pointsman.dev/choose-runtime";

/// The maximum number of runtimes in a message.
const MAX_RUNTIMES_LISTED: usize = 5;

impl PlanBuilder<'_> {
    /// The runtime that serves the model.
    pub(super) fn runtime(&mut self, model: Option<&Arc<ModelView>>) -> Result<Option<Arc<RuntimeView>>, Box<PlanError>> {
        match (self.service.runtime.clone(), model) {
            (Some(reference), model) => self.named_runtime(&reference, model).map(Some),
            (None, Some(model)) => self.chosen(model).map(Some),
            (None, None) if self.service.model_uri().is_some() && !self.service.brings_containers() => {
                let message = "The model comes from a storage URI, so no runtime can be selected for it: set spec.runtime (or \
                               spec.predictor.model.runtime), or spec.model.";
                Err(PlanError::new(RUNTIME_SELECTED, "NoSupportingRuntime", message, "NoSupportingRuntime"))
            }
            (None, None) => {
                let message = "The service names neither a model nor a runtime: its engine is complete.";
                self.conditions.push(Condition::satisfied(RUNTIME_SELECTED, "NoRuntime", message));
                self.up_to_date("NoRuntime", "No runtime is in use.");
                Ok(None)
            }
        }
    }

    /// A named runtime doesn't need autoSelect, but must suit the model.
    fn named_runtime(&mut self, reference: &ServingRuntimeRef, model: Option<&Arc<ModelView>>) -> Result<Arc<RuntimeView>, Box<PlanError>> {
        let (name, namespace) = (&reference.name, self.service.namespace.clone());
        let own = ObjectKey { resource: &SERVING_RUNTIME, namespace: namespace.clone(), name: name.clone() };
        let of_all = ObjectKey { resource: &CLUSTER_SERVING_RUNTIME, namespace: String::new(), name: name.clone() };
        let places = match reference.kind.as_str() {
            "ServingRuntime" => vec![own],
            "ClusterServingRuntime" => vec![of_all, own],
            _ => vec![own, of_all],
        };
        let found = places.iter().find_map(|place| self.snapshot.runtimes.all.get(&place.namespace, &place.name)).cloned();
        let looked = match &places[..] {
            [_] => format!("There is no ServingRuntime {name} in the namespace {namespace}"),
            _ => format!("There is neither a ClusterServingRuntime {name} nor a ServingRuntime {name} in the namespace {namespace}"),
        };
        self.asking.reads.extend(places.into_iter().map(Read::Object));
        let stopped = |reason: &str, message: String, failure| Err(PlanError::new(RUNTIME_SELECTED, reason, message, failure));
        let Some(runtime) = found else {
            return stopped("RuntimeNotFound", format!("{looked}: create it, or correct spec.runtime.name."), "RuntimeNotRecognized");
        };
        let kind = &runtime.candidate.kind;
        if let Some(protocol) = self.service.protocol.as_ref().filter(|protocol| !speaks(&runtime.candidate, protocol)) {
            let message = format!(
                "The {kind} {name} doesn't support the protocol {protocol} of spec.predictor.model.protocolVersion, only {}.",
                runtime.candidate.protocols.join(", ")
            );
            return stopped("ProtocolNotSupported", message, "NoSupportingRuntime");
        }
        if let Some(model) = model {
            let candidates = Digested::new(vec![runtime.candidate.clone()]).unwrap_or_default();
            let decision = self.judge(model, candidates, true)?;
            if let Some(Judged::Excluded { reason, .. }) = decision.answer.judged.first() {
                let why = sentence(&reason.message);
                let message = format!("The {kind} {name}, which spec.runtime names, can't serve the model: {why} Name another, or fix it.");
                let failure = if runtime.candidate.disabled { "RuntimeDisabled" } else { "NoSupportingRuntime" };
                return stopped(&reason.code, message, failure);
            }
        } else if runtime.candidate.disabled {
            let message = format!("The {kind} {name}, which spec.runtime names, is disabled: name another, or enable it.");
            return stopped("Disabled", message, "RuntimeDisabled");
        }
        self.conditions.push(Condition::satisfied(RUNTIME_SELECTED, "Named", format!("spec.runtime names the {kind} {name}.")));
        self.up_to_date("Named", "The runtime is the one that spec.runtime names.");
        self.choice = Some(json!({"name": name, "kind": kind, "apiGroup": "ome.io"}));
        Ok(runtime)
    }

    /// A chosen runtime stays until another choice is requested or the service's spec changes.
    fn chosen(&mut self, model: &Arc<ModelView>) -> Result<Arc<RuntimeView>, Box<PlanError>> {
        let namespace = self.service.namespace.clone();
        self.asking.reads.extend([Read::Candidates(String::new()), Read::Candidates(namespace.clone())]);
        let candidates = self.snapshot.runtimes.candidates(&namespace);
        let decision = self.judge(model, candidates.clone(), false)?;
        let selection = &*with_protocol(&decision.answer, &candidates, self.service.protocol.as_deref());
        let best = selection.ranking.first().copied();
        self.next_choice = best.map(|best| format!("{} {}", candidates[best].kind, candidates[best].name));
        let request = self.service.annotations.get(CHOOSE_RUNTIME).cloned();
        let former = self.former("runtime").or_else(|| self.choice_on_workload());
        let former = former.filter(|former| self.is_choice_current(former, request.as_deref()));
        let kept = former.as_ref().map(|former| self.kept(former, &candidates, selection)).transpose()?.flatten();
        let Some(place) = kept.or(best) else {
            return Err(PlanError::new(
                RUNTIME_SELECTED,
                "NoSupportingRuntime",
                nothing_suits(&candidates, selection),
                "NoSupportingRuntime",
            ));
        };
        let chosen = &candidates[place];
        self.record_choice(&candidates, selection, place);
        self.choice = former.filter(|_| kept.is_some()).or_else(|| {
            let mut choice = json!({"name": chosen.name, "kind": chosen.kind, "apiGroup": "ome.io"});
            if let Some(generation) = self.snapshot.subject.generation {
                choice["chosenAtGeneration"] = generation.into();
            }
            if let Some(request) = request {
                choice["chosenOnRequest"] = request.into();
            }
            Some(choice)
        });
        let resource = if chosen.namespace.is_empty() { &CLUSTER_SERVING_RUNTIME } else { &SERVING_RUNTIME };
        self.asking.reads.insert(Read::Object(ObjectKey { resource, namespace: chosen.namespace.clone(), name: chosen.name.clone() }));
        let runtime = self.snapshot.runtimes.all.get(&chosen.namespace, &chosen.name).cloned();
        // Cannot fail: candidates and runtimes are from the same snapshot.
        runtime.ok_or_else(|| PlanError::new(RUNTIME_SELECTED, "RuntimeNotFound", "The runtime no longer exists.", "RuntimeNotRecognized"))
    }

    /// The choice in the engine's annotation, if the status lost it or its CRD lacks the field.
    fn choice_on_workload(&self) -> Option<Value> {
        let written = ComponentKind::Engine.workloads(self.snapshot).last()?.observed.runtime.as_ref()?;
        let (rest, request) = written.split_once('#').map_or((written.as_str(), None), |(rest, request)| (rest, Some(request)));
        let (rest, generation) = rest.split_once('@').map_or((rest, None), |(rest, generation)| (rest, generation.parse::<i64>().ok()));
        let (kind, name) = rest.split_once('/')?;
        let mut choice = json!({"name": name, "kind": kind, "apiGroup": "ome.io"});
        if let Some(generation) = generation {
            choice["chosenAtGeneration"] = generation.into();
        }
        if let Some(request) = request {
            choice["chosenOnRequest"] = request.into();
        }
        Some(choice)
    }

    /// Whether no new choice is requested.
    fn is_choice_current(&self, former: &Value, request: Option<&str>) -> bool {
        former["chosenAtGeneration"].as_i64() == self.snapshot.subject.generation && former["chosenOnRequest"].as_str() == request
    }

    /// The index of the previously chosen runtime. If it no longer suits, existing objects stay unchanged; without objects, another runtime
    /// can be chosen.
    fn kept(&self, former: &Value, candidates: &[Candidate], selection: &Selection) -> Result<Option<usize>, Box<PlanError>> {
        let same = |candidate: &Candidate| former["name"] == candidate.name && former["kind"] == candidate.kind;
        let place = candidates.iter().position(same);
        let why = match place.and_then(|place| selection.judged.get(place)) {
            Some(Judged::Eligible(_)) => return Ok(place),
            Some(Judged::Excluded { reason, .. }) => sentence(&reason.message),
            None => "It no longer exists.".to_owned(),
        };
        if self.snapshot.children.is_empty() {
            return Ok(None);
        }
        let text = |field: &str| former[field].as_str().unwrap_or_default().to_owned();
        let message = format!(
            "Existing objects stay unchanged, but their {} {} no longer suits the model: {why} Fix the runtime, or set the annotation \
             {CHOOSE_RUNTIME} to a new value to select another.",
            text("kind"),
            text("name"),
        );
        Err(PlanError::new(RUNTIME_SELECTED, "RuntimeUnsuitable", message, "NoSupportingRuntime"))
    }

    fn judge(
        &mut self,
        model: &ModelView,
        candidates: Digested<Vec<Candidate>>,
        named: bool,
    ) -> Result<Arc<Decision<Selection>>, Box<PlanError>> {
        let (subject, model) = (self.service.subject.clone(), model.model.clone());
        let inputs = Inputs { subject, model, candidates, named, now: Some(self.snapshot.now), ..Inputs::default() };
        let decision = self.asking.policies().select(&inputs).map_err(|undecided| self.undecided(RUNTIME_SELECTED, &undecided))?;
        self.asking.decisions.push(Decided::Selection(inputs, Arc::clone(&decision)));
        Ok(decision)
    }

    fn record_choice(&mut self, candidates: &[Candidate], selection: &Selection, place: usize) {
        let name = |place: usize| format!("{} {}", candidates[place].kind, candidates[place].name);
        let score = |place: usize| match &selection.judged[place] {
            // Three decimals are enough to tell apart scores that are meant to differ.
            Judged::Eligible(eligible) => (eligible.score * 1000.0).round() / 1000.0,
            Judged::Excluded { .. } => 0.0,
        };
        // If the one in use ranks equal to the first, it counts as the best.
        let best = selection.ranking.first().copied().filter(|best| !equal(candidates, selection, *best, place)).unwrap_or(place);
        let other = selection.ranking.iter().take(2).find(|other| **other != place);
        let second = other.filter(|other| place == best && equal(candidates, selection, **other, place));
        self.conditions.push(match second {
            Some(second) => {
                let message = format!(
                    "The {} and the {} suit the model equally well (score {}): the first by name was selected. Give one a higher priority, \
                     or name it in spec.runtime.",
                    name(place),
                    name(*second),
                    score(place)
                );
                Condition::satisfied(RUNTIME_SELECTED, "Tie", message).with_event()
            }
            None => Condition::satisfied(RUNTIME_SELECTED, "Selected", format!("The {} was selected.", name(place))),
        });
        if place == best {
            self.up_to_date("Best", "The runtime is the best match for the model.");
        } else {
            let message = format!(
                "The {} suits the model better now: its score is {}, and the score of the {} in use is {}. It is selected when the \
                 service's spec or the annotation {CHOOSE_RUNTIME} changes.",
                name(best),
                score(best),
                name(place),
                score(place)
            );
            self.conditions.push(Condition::no(RUNTIME_UP_TO_DATE, "BetterRuntime", message).optional().with_event());
        }
    }

    fn up_to_date(&mut self, reason: &str, message: &str) {
        self.conditions.push(Condition::satisfied(RUNTIME_UP_TO_DATE, reason, message).optional());
    }
}

/// The selection without the runtimes that don't support the protocol.
fn with_protocol<'s>(selection: &'s Selection, candidates: &[Candidate], protocol: Option<&str>) -> Cow<'s, Selection> {
    let Some(protocol) = protocol else { return Cow::Borrowed(selection) };
    let mut selection = selection.clone();
    for (candidate, judged) in candidates.iter().zip(&mut selection.judged).filter(|(candidate, _)| !speaks(candidate, protocol)) {
        let message = format!(
            "it doesn't support the protocol {protocol} of spec.predictor.model.protocolVersion, only {}",
            candidate.protocols.join(", ")
        );
        *judged = Judged::Excluded { plugin: None, reason: Reason { code: "ProtocolNotSupported".to_owned(), message } };
    }
    selection.ranking.retain(|place| matches!(selection.judged.get(*place), Some(Judged::Eligible(_))));
    Cow::Owned(selection)
}

/// Whether a runtime supports a protocol. A runtime that lists no protocols may support any.
fn speaks(candidate: &Candidate, protocol: &str) -> bool {
    candidate.protocols.is_empty() || candidate.protocols.iter().any(|spoken| spoken == protocol)
}

/// A choice in the form of a workload's annotation: `KIND/NAME@GENERATION#REQUEST`; the last two may be absent.
pub(super) fn written(choice: &Value) -> String {
    let text = |field: &str| choice[field].as_str().unwrap_or_default().to_owned();
    let generation = choice["chosenAtGeneration"].as_i64().map(|generation| format!("@{generation}")).unwrap_or_default();
    let request = choice["chosenOnRequest"].as_str().map(|request| format!("#{request}")).unwrap_or_default();
    format!("{}/{}{generation}{request}", text("kind"), text("name"))
}

/// A plugin's message with final punctuation.
fn sentence(message: &str) -> String {
    if message.ends_with(['.', '!', '?']) { message.to_owned() } else { format!("{message}.") }
}

/// Whether only the name distinguishes two runtimes.
fn equal(candidates: &[Candidate], selection: &Selection, one: usize, other: usize) -> bool {
    let merit = |place: usize| match selection.judged.get(place) {
        Some(Judged::Eligible(eligible)) => Some((eligible.score + 0.0, eligible.tie_break.clone())),
        _ => None,
    };
    candidates[one].namespace == candidates[other].namespace && merit(one) == merit(other)
}

fn nothing_suits(candidates: &[Candidate], selection: &Selection) -> String {
    let excluded = candidates.iter().zip(&selection.judged).filter_map(|(candidate, judged)| match judged {
        Judged::Excluded { reason, .. } => Some(format!("{} {}: {}", candidate.kind, candidate.name, sentence(&reason.message))),
        Judged::Eligible(_) => None,
    });
    let excluded: Vec<String> = excluded.collect();
    if excluded.is_empty() {
        return "There is neither a ServingRuntime in the namespace nor a ClusterServingRuntime: create one.".to_owned();
    }
    let more = match excluded.len().saturating_sub(MAX_RUNTIMES_LISTED) {
        0 => String::new(),
        more => format!(" And {more} more, which `pointsman explain --all` lists."),
    };
    format!("No runtime suits the model. {}{more}", excluded[..excluded.len().min(MAX_RUNTIMES_LISTED)].join(" "))
}
