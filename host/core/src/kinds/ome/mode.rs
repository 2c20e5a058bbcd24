//! Chooses how a component is deployed, and checks the limits of that mode.

use super::{
    PlanError,
    component::{
        Annotation, Annotations, ComponentKind, DeployedComponent, Mode, NOT_HONOURED, Note, OVERRIDDEN, capital, invalid, refused,
    },
    entry,
};
use crate::{rules::ome_keys::DEPLOYMENT_MODE, world::ome::Component};

/// The annotation with the mode.
const MODE: &str = DEPLOYMENT_MODE.key;

/// The reason of a note that a router may bypass Knative.
const PAST_KNATIVE: &str = "PastKnative";

/// The requested mode, or the one that follows from the spec. `split` is whether there is a decoder; `least` is the minimum number of
/// replicas; `keda` is whether KEDA scales.
pub(super) fn choose_mode(
    part: ComponentKind,
    (user, runtime): (&Component, &Component),
    annotations: &Annotations<'_>,
    (split, (least, keda)): (bool, (i64, bool)),
    notes: &mut Vec<Note>,
) -> Result<Mode, Box<PlanError>> {
    let grouped =
        part != ComponentKind::Router && [user, runtime].iter().any(|component| component.leader.is_some() || component.worker.is_some());
    let workers = user.workers.or(runtime.workers);
    let has_workers = user.worker.is_some() || runtime.worker.is_some();
    // A worker without a number is one worker.
    let nodes = 1 + workers.unwrap_or(i64::from(has_workers));
    // A prefill engine without its decoder serves nobody, and Knative would scale either of them to zero.
    let alone = part == ComponentKind::Router || !split;
    let left_out = |annotation: &Annotation, notes: &mut Vec<Note>| {
        if grouped {
            let place = capital(&annotation.place);
            let (mode, name) = (&annotation.value, part.name());
            notes.push((OVERRIDDEN, format!("{place} is {mode}, so the leader and the workers of the {name} are ignored.")));
        }
    };
    match annotations.get(MODE) {
        None if grouped => Ok(Mode::MultiNode(nodes)),
        None if least == 0 && alone && !keda => Ok(Mode::Serverless),
        None => Ok(Mode::Raw),
        Some(annotation) => match annotation.value.as_str() {
            "RawDeployment" => {
                left_out(&annotation, notes);
                Ok(Mode::Raw)
            }
            "Serverless" if !alone => Err(refused(format!(
                "{} is Serverless, but an engine and a decoder depend on each other and can't be scaled to zero separately: set \
                 RawDeployment or MultiNode.",
                capital(&annotation.place)
            ))),
            "Serverless" => {
                left_out(&annotation, notes);
                Ok(Mode::Serverless)
            }
            "MultiNode" | "MultiNodeRayVLLM" if !grouped => Err(invalid(format!(
                "{} is {}, but neither the service nor the runtime sets the number of workers: set spec.{}.worker.size.",
                capital(&annotation.place),
                annotation.value,
                part.name()
            ))),
            "MultiNode" => Ok(Mode::MultiNode(nodes)),
            "MultiNodeRayVLLM" => Ok(Mode::Ray(nodes)),
            other => {
                Err(invalid(format!("{} has the value {other:?}: it must be {}.", capital(&annotation.place), DEPLOYMENT_MODE.what())))
            }
        },
    }
}

/// Checks that a mode supports the requested settings. Settings of the service are refused; those of its runtime, which is for all modes,
/// are only noted.
pub(super) fn suits(
    part: ComponentKind,
    mode: Mode,
    (user, runtime): (&Component, &Component),
    notes: &mut Vec<Note>,
) -> Result<(), Box<PlanError>> {
    let (name, its_mode) = (part.name(), mode.name());
    let (ours, theirs) = (&user.settings, &runtime.settings);
    let bounds = [
        ("timeoutSeconds", ours.timeout_seconds.or(theirs.timeout_seconds), 1),
        ("containerConcurrency", ours.container_concurrency.or(theirs.container_concurrency), 0),
        ("scaleTarget", ours.scale_target.or(theirs.scale_target).map(i64::from), 1),
    ];
    if let Some((field, Some(number), least)) = bounds.iter().find(|(_, number, least)| number.is_some_and(|number| number < *least)) {
        return Err(invalid(format!("{field} of the {name} is {number}: it must be a whole number from {least} on.")));
    }
    let strategy = |side: &Component| {
        let strategy = side.settings.deployment_strategy.as_ref();
        strategy.is_some_and(|strategy| match mode {
            Mode::Raw => false,
            Mode::MultiNode(_) => strategy.type_.as_deref() == Some("Recreate"),
            Mode::Serverless | Mode::Ray(_) => true,
        })
    };
    let elsewhere = mode != Mode::Serverless;
    let concurrency = |side: &Component| elsewhere && side.settings.container_concurrency.is_some_and(|most| most > 0);
    let canary = |side: &Component| elsewhere && side.settings.canary_traffic_percent.is_some_and(|percent| percent < 100);
    let asked: [(&str, &str, bool, bool, bool); 3] = [
        ("deploymentStrategy", "RawDeployment", strategy(user), strategy(runtime), ours.deployment_strategy.is_some()),
        ("containerConcurrency", "Serverless", concurrency(user), concurrency(runtime), ours.container_concurrency.is_some()),
        ("canaryTrafficPercent", "Serverless", canary(user), canary(runtime), ours.canary_traffic_percent.is_some()),
    ];
    for (field, other, by_service, by_runtime, said) in asked {
        if by_service {
            return Err(refused(format!(
                "{field} of the {name} has no effect in its mode {its_mode}: remove it, or set the annotation {MODE} to {other}."
            )));
        }
        if by_runtime && !said {
            notes.push((NOT_HONOURED, format!("The runtime's {field} of the {name} has no effect in the mode {its_mode}.")));
        }
    }
    Ok(())
}

/// Notes conflicts between the components' modes, and timeouts that no Gateway's route enforces.
pub(super) fn check_modes_together(components: &[DeployedComponent], routed: bool, notes: &mut Vec<Note>) {
    let entry = entry(components).map(|entry| entry.part);
    for component in components {
        let name = component.part.name();
        if component.user.settings.timeout_seconds.is_some()
            && component.mode != Mode::Serverless
            && !(routed && Some(component.part) == entry)
        {
            let text = format!(
                "timeoutSeconds of the {name} has no effect: only a Gateway's route to the service's entry component times out requests."
            );
            notes.push((NOT_HONOURED, text));
        }
    }
    let router = components.iter().any(|component| component.part == ComponentKind::Router && component.mode != Mode::Serverless);
    let past = components.iter().any(|component| router && component.part == ComponentKind::Engine && component.mode == Mode::Serverless);
    if past {
        let text = "A router that finds the engine's pods by their labels bypasses Knative, which then counts no requests: the engine \
                    stays at its minimum of replicas, and doesn't scale up from zero. Configure the router with the engine's URL, or set \
                    the engine's minReplicas to 1.";
        notes.push((PAST_KNATIVE, text.to_owned()));
    }
}
