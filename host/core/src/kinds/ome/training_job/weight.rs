//! The FineTunedWeight of a successful run: created once, and never over an existing one.

use super::{
    PlanBuilder, WEIGHT_CREATED,
    run::{Ended, Phase, Run},
    spec::Training,
};
use crate::{
    condition::Condition,
    kinds::questions,
    objects::label_value,
    plan::Object,
    resource::FINE_TUNED_WEIGHT,
    subject_kind::{TRAINING_JOB_NAME, TRAINING_JOB_UID},
    world::{ObjectKey, Read},
};
use pointsman_crds::ome::{
    fine_tuned_weight::{FineTunedWeightSpec, ObjectReference},
    training_job::TrainedWeight,
};
use serde_json::json;

impl PlanBuilder<'_> {
    /// Whether the requested weight exists, and the weight if it is to be created.
    pub(super) fn weight(&mut self, training: &Training, run: &Run<'_>) -> Option<(Condition, Option<Object>)> {
        let asked = training.spec.fine_tuned_weight.as_ref()?;
        let name = &asked.name;
        let unknown = |reason: &str, message: String| Condition::unknown(WEIGHT_CREATED, reason, message).optional();
        let no = |reason: &str, message: String| Condition::no(WEIGHT_CREATED, reason, message).optional().with_event();
        match &run.phase {
            Phase::Ended(Ended { succeeded: true, recorded: true, .. }) => {}
            Phase::Ended(Ended { succeeded: false, .. }) => {
                return Some((no("RunFailed", format!("The run has failed, so the FineTunedWeight {name} isn't created.")), None));
            }
            _ => return Some((unknown("Waiting", format!("The FineTunedWeight {name} is created once the run has succeeded.")), None)),
        }
        let created = || Condition::satisfied(WEIGHT_CREATED, "Created", format!("The FineTunedWeight {name} exists.")).optional();
        let conditions = || self.before["conditions"].as_array().into_iter().flatten();
        // If it was deleted after that, the deletion was intended.
        if conditions().any(|condition| condition["type"] == WEIGHT_CREATED && condition["status"] == "True") {
            return Some((created(), None));
        }
        if let Some((reason, message)) = questions::missing_kind(self.snapshot, "job", &FINE_TUNED_WEIGHT) {
            return Some((no(reason, message), None));
        }
        let key = ObjectKey { resource: &FINE_TUNED_WEIGHT, namespace: String::new(), name: name.clone() };
        self.asking.reads.insert(Read::Object(key.clone()));
        match self.snapshot.weights.get("", name) {
            Some(weight) if weight.trained_by.as_deref() == Some(&training.uid) => Some((created(), None)),
            Some(_) => {
                let message = format!(
                    "The FineTunedWeight {name} already exists, and this run didn't create it: delete it to let the run create its own, or \
                     create one with another name for {}.",
                    asked.storage.storage_uri
                );
                Some((no("NameTaken", message), None))
            }
            // The spec may have changed since the run started.
            None => Some(if let Err(stop) = training.check_weight() {
                let message = format!("The FineTunedWeight {name} isn't created. {}", stop.condition.message);
                (unknown("NotAccepted", message), None)
            } else {
                let condition = unknown("Creating", format!("The FineTunedWeight {name} is being created."));
                (condition, Some(object(training, asked, key)))
            }),
        }
    }
}

fn object(training: &Training, asked: &TrainedWeight, key: ObjectKey) -> Object {
    let TrainedWeight { base_model_ref, model_type, hyper_parameters, extension, configuration, storage, .. } = asked.clone();
    let spec = FineTunedWeightSpec {
        base_model_ref,
        model_type,
        hyper_parameters,
        extension,
        configuration,
        storage,
        training_job_ref: Some(ObjectReference { name: training.name.clone(), namespace: Some(training.namespace.clone()) }),
    };
    let labels = json!({
        "app.kubernetes.io/managed-by": "pointsman", TRAINING_JOB_NAME: label_value(&training.name), TRAINING_JOB_UID: training.uid,
    });
    Object::new(key, json!({"metadata": {"labels": labels}, "spec": spec}))
}
