//! Selects the endpoint picker for a service: this project's, or llm-d's.

use super::{
    COMBINED, PlanError,
    combine::EffectiveSpec,
    router::{PICKER_SERVICE, SCHEDULER_NAME},
};
use crate::{
    resource::{DEPLOYMENT, SERVICE},
    settings::{Scheduler, Settings},
    world::{Snapshot, child::SCHEDULER},
};
use pointsman_picker::config::{PickerConfig, Remark};
use serde_json::Value;

impl Scheduler {
    /// Selects the scheduler of a service. The error is a reason and a message.
    pub(super) fn choose(
        snapshot: &Snapshot,
        settings: &Settings,
        annotations: &Value,
        another_image: bool,
    ) -> Result<Self, (&'static str, String)> {
        if let Some(word) = annotations[SCHEDULER].as_str() {
            return word.parse().map_err(|()| {
                ("InvalidValue", format!("The annotation {SCHEDULER} is {word:?}: set it to pointsman or llm-d, or remove it."))
            });
        }
        // Custom images are derived from llm-d's, and take its flags.
        if another_image {
            return Ok(Self::LlmD);
        }
        // Any remaining object of the scheduler determines it, so that deleting its Deployment doesn't change the scheduler.
        let name = |suffix: &str| format!("{}{suffix}", snapshot.subject.key.name);
        let parts = [(&DEPLOYMENT, SCHEDULER_NAME), (&SERVICE, PICKER_SERVICE)];
        let mut live = parts.into_iter().filter_map(|(kind, suffix)| snapshot.child(kind, &name(suffix))).peekable();
        if live.peek().is_none() || settings.replace_schedulers {
            return Ok(settings.scheduler);
        }
        // llm-d's objects have no annotation, whether we or another controller created them.
        let marked = live.find_map(|object| object.observed.scheduler.as_deref()?.parse().ok());
        Ok(marked.unwrap_or(Self::LlmD))
    }
}

impl EffectiveSpec {
    /// The remarks of this project's picker on the scheduler's configuration; an error if it rejects it. Only the picker reads
    /// configurations in a ConfigMap.
    pub(super) fn check_scheduler_config(&self) -> Result<Vec<String>, Box<PlanError>> {
        let config = self.given("/router/scheduler/config/inline");
        if self.scheduler != Scheduler::Pointsman || !config.is_object() {
            return Ok(Vec::new());
        }
        // Positions would refer to our JSON, not to the author's text.
        let sentence = |message: &str| message.trim_end_matches('.').to_owned();
        match PickerConfig::read(&config.to_string()) {
            Ok((_, remarks)) => {
                let note = |remark: Remark| format!("spec.router.scheduler.config: {}: {}.", remark.subject, sentence(&remark.message));
                Ok(remarks.into_iter().map(note).collect())
            }
            Err(error) => {
                let message = format!(
                    "Pointsman's endpoint picker can't use spec.router.scheduler.config: {}. Or annotate the service with \
                     {SCHEDULER}=llm-d.",
                    sentence(&error.message())
                );
                Err(PlanError::new(COMBINED, "InvalidSchedulerConfig", message))
            }
        }
    }
}
