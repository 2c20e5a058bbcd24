//! The status of a PolicyPlugin. Pure, so that it is written only after a change.

use super::{
    binding,
    record::{PreviousSet, Recorded},
};
use crate::problem::Problem;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use pointsman_core::point::name;
use pointsman_crds::policy::{
    plugin::{FailedRevision, PluginError, PluginRevision, PolicyPlugin, PolicyPluginStatus, PolicyPoint},
    set::PolicySetPlugin,
};
use pointsman_sandbox::call::CallError;

/// The current state of a plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginState<'a> {
    /// Its entry in the record.
    pub recorded: Option<&'a Recorded>,
    /// The reason why the newest bytes or binding can't be used, or none.
    pub problem: Option<&'a Problem>,
    /// The reason why the recorded plugin can't be called, if it can't be loaded.
    pub missing: Option<&'a str>,
    /// Whether the newest bytes are still being checked.
    pub loading: bool,
    /// The size of the newest bytes, if storing their revision takes long.
    pub storing: Option<usize>,
    /// The reason for its quarantine, or none.
    pub quarantine: Option<&'a CallError>,
    /// The namespaces whose subjects it isn't called for at the moment.
    pub namespaces: Vec<&'a str>,
    /// The last failure of a call.
    pub failure: Option<&'a Problem>,
    /// Whether a failure within the last minutes was its own fault.
    pub failing: bool,
    /// The reason why its newest version waits, if it does.
    pub waiting: Option<Waiting>,
}

/// A version that isn't active yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The digest of its bytes.
    pub digest: String,
    /// The version in its description.
    pub version: Option<String>,
    /// The policy points at which it will be called.
    pub points: Vec<PolicyPoint>,
    /// A CamelCase word.
    pub reason: &'static str,
    /// The reason for the wait.
    pub message: String,
}

/// The status that a PolicyPlugin should have. Transition times change only with a transition.
pub fn status(plugin: &PolicyPlugin, known: &PluginState<'_>, now: &Time) -> PolicyPluginStatus {
    let before = plugin.status.clone().unwrap_or_default();
    let generation = plugin.metadata.generation;
    let condition = |type_: &str, (status, reason, message): (&str, &str, String)| {
        let former = before.conditions.iter().find(|condition| condition.type_ == type_ && condition.status == status);
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: reason.to_owned(),
            message,
            observed_generation: generation,
            last_transition_time: former.map_or_else(|| now.clone(), |former| former.last_transition_time.clone()),
        }
    };
    let (loaded, active, quarantined) = (loaded(known), active(known), quarantined(known));
    let ready = ready(plugin.spec.digest.is_some(), known, &loaded, &active, &quarantined);
    let last_error = known.problem.or(known.failure).map(|Problem { reason, message }| {
        let same = before.last_error.as_ref().filter(|before| before.reason == *reason && before.message == *message);
        let time = same.and_then(|before| before.time.clone()).unwrap_or_else(|| now.clone());
        PluginError { reason: reason.clone(), message: message.clone(), time: Some(time) }
    });
    let active_points = known.recorded.map(|recorded| &recorded.active.points);
    let points = active_points.or(known.waiting.as_ref().map(|waiting| &waiting.points)).cloned().unwrap_or_default();
    let point_names = points.iter().map(|point| name(*point)).collect::<Vec<_>>().join(",");
    PolicyPluginStatus {
        observed_generation: generation,
        conditions: vec![
            condition("Ready", ready),
            condition("Loaded", loaded),
            condition("Active", active),
            condition("Quarantined", quarantined),
        ],
        point_names: (!points.is_empty()).then_some(point_names),
        points,
        source: Some(binding::source(&plugin.spec.source)),
        active: known.recorded.map(|recorded| revision(&recorded.active, &recorded.at)),
        previous: known.recorded.and_then(|recorded| recorded.previous.as_ref()).map(|PreviousSet { plugin, at, .. }| revision(plugin, at)),
        candidate: known.waiting.as_ref().map(|waiting| PluginRevision {
            digest: waiting.digest.clone(),
            version: waiting.version.clone(),
            // The PolicySet has the time.
            at: None,
        }),
        last_error,
        failed_revisions: failed_revisions(before.failed_revisions, known, now),
    }
}

/// The maximum number of failed revisions that are remembered.
const MAX_FAILED: usize = 16;

/// The failed revisions, including the active one if it is failing now. Existing entries stay unchanged.
fn failed_revisions(mut failed: Vec<FailedRevision>, known: &PluginState<'_>, now: &Time) -> Vec<FailedRevision> {
    let reason = known.quarantine.map(CallError::reason).or(known.failure.map(|failure| failure.reason.as_str()));
    if let (Some(reason), Some(digest)) = (reason, known.recorded.map(|recorded| &recorded.active.digest))
        && failed.iter().all(|known| known.digest != *digest)
    {
        failed.push(FailedRevision { digest: digest.clone(), reason: reason.to_owned(), at: Some(now.clone()) });
        failed.drain(..failed.len().saturating_sub(MAX_FAILED));
    }
    failed
}

type State = (&'static str, &'static str, String);

fn loaded<'a>(known: &'a PluginState<'_>) -> (&'static str, &'a str, String) {
    match (known.problem, known.recorded) {
        (Some(problem), _) => ("False", &problem.reason, problem.message.clone()),
        (None, _) if let Some(bytes) = known.storing => (
            "Unknown",
            "StoringRevision",
            format!(
                "The plugin is compiled. Its revision ({bytes} bytes) is still being stored, because the API server is slow. Other \
                 updates don't wait for it."
            ),
        ),
        (None, _) if known.loading => ("Unknown", "Loading", "The plugin is being compiled and checked.".to_owned()),
        (None, recorded) if known.waiting.is_some() || recorded.is_some() => {
            let waiting = known.waiting.as_ref().map(|waiting| &waiting.digest);
            let digest = waiting.or(recorded.map(|recorded| &recorded.active.digest)).map(String::as_str).unwrap_or_default();
            ("True", "Loaded", format!("{digest} is compiled, and accepts its configuration."))
        }
        (None, _) => ("Unknown", "Waiting", "The plugin's source has not been read yet.".to_owned()),
    }
}

fn active(known: &PluginState<'_>) -> State {
    if let (Some(recorded), Some(why)) = (known.recorded, known.missing) {
        let digest = &recorded.active.digest;
        let message = format!("{digest} is active but can't be loaded, so its failurePolicy applies: {why}.");
        return ("False", "RevisionMissing", message);
    }
    match (known.recorded, known.problem) {
        (None, None) if known.waiting.is_some() => {
            ("False", "NotYet", "No version of the plugin is active yet: see the condition Ready.".to_owned())
        }
        (Some(recorded), None) => ("True", "Active", format!("{} is active.", recorded.active.digest)),
        (Some(recorded), Some(_)) => (
            "True",
            "LastGood",
            format!(
                "{} is active with its previous settings, because the newest version can't be loaded: see the condition Loaded.",
                recorded.active.digest
            ),
        ),
        (None, Some(_)) => ("False", "NotLoaded", "No version of the plugin has been loaded: see the condition Loaded.".to_owned()),
        (None, None) => ("Unknown", "Waiting", "The plugin has not been loaded yet.".to_owned()),
    }
}

fn quarantined<'a>(known: &PluginState<'a>) -> (&'static str, &'a str, String) {
    match known.quarantine {
        Some(error) => (
            "True",
            error.reason(),
            format!("The plugin failed too often and is quarantined for a while. Last failure: {error}. Its failurePolicy applies."),
        ),
        None if !known.namespaces.is_empty() => (
            "False",
            "InNamespaces",
            format!("The plugin failed too often in {} and is quarantined there. Its failurePolicy applies.", known.namespaces.join(", ")),
        ),
        None => ("False", "WithinErrorBudget", "The plugin is within its error budget.".to_owned()),
    }
}

/// The version that a PolicyPlugin requests, in words.
pub(super) fn wanted_version(pinned: bool) -> &'static str {
    if pinned { "The pinned version" } else { "The newest version" }
}

fn ready(
    pinned: bool,
    known: &PluginState<'_>,
    loaded: &(&'static str, &str, String),
    active: &State,
    quarantined: &(&'static str, &str, String),
) -> State {
    match (loaded.0, active.0, quarantined.0) {
        (_, _, "True") => ("False", "Quarantined", quarantined.2.clone()),
        ("True", _, _) if known.waiting.is_some() => match &known.waiting {
            // A trial or a queued change is decided in a moment.
            Some(Waiting { reason: reason @ ("UpdateIsTried" | "UpdateQueued"), message, .. }) => ("Unknown", reason, message.clone()),
            Some(Waiting { reason, message, .. }) => ("False", reason, message.clone()),
            None => ("Unknown", "Waiting", loaded.2.clone()),
        },
        ("True", "True", _) if let (true, Some(failure)) = (known.failing, known.failure) => (
            "False",
            "Failing",
            format!(
                "{} of the plugin is active, but its calls fail ({}): {} Its failurePolicy applies. Push a fix, or run `pointsman plugin \
                 rollback`.",
                wanted_version(pinned),
                failure.reason,
                failure.message
            ),
        ),
        ("True", "True", _) => ("True", "Ready", format!("{} of the plugin is active.", wanted_version(pinned))),
        ("False", _, _) => ("False", "NotLoaded", loaded.2.clone()),
        (_, "False", _) => ("False", active.1, active.2.clone()),
        _ => ("Unknown", "Waiting", loaded.2.clone()),
    }
}

fn revision(plugin: &PolicySetPlugin, at: &Time) -> PluginRevision {
    PluginRevision { digest: plugin.digest.clone(), version: plugin.version.clone(), at: Some(at.clone()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::record::Origin;
    use k8s_openapi::jiff::Timestamp;
    use pointsman_crds::policy::plugin::PolicyPluginSpec;

    fn time(second: i64) -> Time {
        Time(Timestamp::from_second(second).unwrap())
    }

    fn recorded() -> Recorded {
        let active = PolicySetPlugin { name: "a".into(), digest: "sha256:one".into(), ..PolicySetPlugin::default() };
        Recorded { active, at: time(1), signature: None, strategy: None, previous: None, origin: Origin::default() }
    }

    fn conditions(status: &PolicyPluginStatus) -> Vec<(&str, &str, &str)> {
        status.conditions.iter().map(|c| (c.type_.as_str(), c.status.as_str(), c.reason.as_str())).collect()
    }

    #[test]
    fn every_condition_is_known_from_the_first_visit_on() {
        let plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        let first = status(&plugin, &PluginState::default(), &time(1));
        let expected = [
            ("Ready", "Unknown", "Waiting"),
            ("Loaded", "Unknown", "Waiting"),
            ("Active", "Unknown", "Waiting"),
            ("Quarantined", "False", "WithinErrorBudget"),
        ];
        assert_eq!(conditions(&first), expected);
    }

    #[test]
    fn nothing_changes_while_nothing_has_changed() {
        let mut plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        let (recorded, problem) = (recorded(), Problem { reason: "Trapped".into(), message: "it trapped".into() });
        let known = PluginState { recorded: Some(&recorded), failure: Some(&problem), ..PluginState::default() };
        plugin.status = Some(status(&plugin, &known, &time(1)));
        assert_eq!(plugin.status, Some(status(&plugin, &known, &time(2))));
        assert_eq!(conditions(plugin.status.as_ref().unwrap())[0], ("Ready", "True", "Ready"));
    }

    #[test]
    fn a_plugin_that_fails_is_not_ready_for_as_long_as_it_does() {
        let plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        let (recorded, problem) = (recorded(), Problem { reason: "Trapped".into(), message: "it trapped.".into() });
        let known = PluginState { recorded: Some(&recorded), failure: Some(&problem), failing: true, ..PluginState::default() };
        let failing = status(&plugin, &known, &time(1));
        assert_eq!(conditions(&failing)[0], ("Ready", "False", "Failing"));
        assert!(
            failing.conditions[0].message.contains("fail (Trapped): it trapped. Its failurePolicy"),
            "{}",
            failing.conditions[0].message
        );
        let well = status(&plugin, &PluginState { failing: false, ..known }, &time(1));
        assert_eq!(conditions(&well)[0], ("Ready", "True", "Ready"));
    }

    #[test]
    fn a_pinned_version_is_not_called_the_newest() {
        let recorded = recorded();
        let message = |digest: Option<&str>| {
            let spec = PolicyPluginSpec { digest: digest.map(str::to_owned), ..PolicyPluginSpec::default() };
            let known = PluginState { recorded: Some(&recorded), ..PluginState::default() };
            status(&PolicyPlugin::new("a", spec), &known, &time(1)).conditions[0].message.clone()
        };
        assert_eq!(message(None), "The newest version of the plugin is active.");
        assert_eq!(message(Some("sha256:one")), "The pinned version of the plugin is active.");
    }

    #[test]
    fn the_points_of_a_version_that_waits_are_those_of_the_plugin_until_a_version_is_active() {
        let waiting = Waiting {
            digest: "sha256:two".into(),
            version: None,
            points: vec![PolicyPoint::PodTemplating],
            reason: "ApprovalNeeded",
            message: "It waits.".into(),
        };
        let (plugin, recorded) = (PolicyPlugin::new("a", PolicyPluginSpec::default()), recorded());
        let mut known = PluginState { waiting: Some(waiting), ..PluginState::default() };
        let first = status(&plugin, &known, &time(1));
        assert_eq!((first.points, first.point_names.as_deref()), (vec![PolicyPoint::PodTemplating], Some("pod-templating")));
        known.recorded = Some(&recorded);
        assert!(status(&plugin, &known, &time(1)).points.is_empty(), "it is called at those of its active version");
    }

    #[test]
    fn a_broken_update_leaves_the_last_good_one_active_and_says_so() {
        let plugin = PolicyPlugin::new("a", PolicyPluginSpec::default());
        let (recorded, problem) = (recorded(), Problem { reason: "NoPlugin".into(), message: "it is not WebAssembly".into() });
        let told = status(&plugin, &PluginState { recorded: Some(&recorded), problem: Some(&problem), ..PluginState::default() }, &time(1));
        assert_eq!(
            conditions(&told)[..3],
            [("Ready", "False", "NotLoaded"), ("Loaded", "False", "NoPlugin"), ("Active", "True", "LastGood")]
        );
        assert_eq!(told.active.unwrap().digest, "sha256:one");
        assert_eq!(told.last_error.unwrap().message, "it is not WebAssembly");
    }
}
