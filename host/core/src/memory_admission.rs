//! Combines an allocation with the models of the world and with the policies that score them: the question memory-admission at
//! scheduling-scoring.

use crate::{
    allocation::{self, Entry, Features, Model, NodeAnswer, cluster::ModelObject},
    decide::{
        Pinned, Undecided,
        scoring::{Candidates, features},
    },
    key::ObjectKey,
    objects::strings,
    resource::{DEPLOYMENT, INFERENCE_MODEL},
    world::{Snapshot, World},
};
use pointsman_sandbox::point::{Question, Subject};
use std::{collections::BTreeMap, sync::Arc};

/// Scores models, one row each. If the policies fail, no model gets a score, `failed` has the reason, and no model is put to sleep for
/// another.
pub fn score(policies: &Pinned<'_>, rows: &[(&ObjectKey, Features)], failed: &mut Option<Undecided>) -> Vec<Option<f64>> {
    // The question concerns many models, so the subject has the kind but no name.
    let subject = Subject {
        group: INFERENCE_MODEL.group.to_owned(),
        version: INFERENCE_MODEL.version.to_owned(),
        kind: INFERENCE_MODEL.kind.to_owned(),
        ..Subject::default()
    };
    let values: Vec<f64> = rows.iter().flat_map(|(_, row)| columns(row)).collect();
    let candidates = Candidates { features: features(Question::MemoryAdmission), values: &values };
    match policies.score(&subject, Question::MemoryAdmission, candidates) {
        Ok(decision) => decision.answer.0.clone(),
        Err(undecided) => {
            *failed = Some(undecided);
            vec![None; rows.len()]
        }
    }
}

/// The inputs of an allocation from a model's own object and its Deployment.
pub fn model_object(snapshot: &Snapshot) -> ModelObject {
    let subject = &snapshot.subject;
    let created = subject.created.and_then(|created| u64::try_from(created.as_second()).ok()).unwrap_or_default();
    let content = subject.content();
    let (model, _) = Model::from_content(&content, created);
    let deployment = snapshot.child(&DEPLOYMENT, &subject.key.name).map(|deployment| &deployment.observed);
    ModelObject {
        model,
        version: subject.version,
        finalizers: subject.finalizers.clone(),
        deleting: subject.deleting,
        has_deployment: deployment.is_some(),
        scaled_to_zero: deployment
            .is_none_or(|observed| observed.replicas == Some(0) && observed.current == 0 && observed.current_generation()),
        image: content["spec"]["containerImage"].as_str().unwrap_or_default().to_owned(),
        labels: strings(&content["metadata"]["labels"]),
        namespace_labels: Arc::clone(&snapshot.namespace_labels),
    }
}

/// All models in a world.
pub fn model_objects(world: &World) -> BTreeMap<ObjectKey, ModelObject> {
    let snapshots = world.keys(&INFERENCE_MODEL).into_iter().filter_map(|key| Some((world.snapshot(&key, 0)?, key)));
    snapshots.map(|(snapshot, key)| (key, model_object(&snapshot))).collect()
}

/// The entries of models if no nodes are known: all that aren't refused for other reasons are planned as if they ran.
pub fn assumed(objects: &BTreeMap<ObjectKey, ModelObject>) -> BTreeMap<ObjectKey, Entry> {
    let models = objects.iter().map(|(key, object)| (key.clone(), object.model.clone())).collect();
    let mut entries =
        allocation::allocate(&BTreeMap::new(), &models, 0, &mut |rows| vec![None; rows.len()], &mut |_| NodeAnswer::Equal).entries;
    for entry in entries.values_mut() {
        let is_about_room = match entry {
            Entry::Refused(refusal) => refusal.is_about_room(),
            Entry::External | Entry::Asleep => false,
            _ => true,
        };
        if is_about_room {
            *entry = Entry::Assumed;
        }
    }
    entries
}

/// The columns, in the order of the names in `decide::scoring`.
fn columns(row: &Features) -> [f64; 11] {
    let Features {
        priority,
        memory_bytes,
        idle_seconds,
        waiting_requests,
        wakes_per_hour,
        load_seconds,
        dependants,
        pool_pressure,
        age_seconds,
        requests_per_second,
        resident,
    } = *row;
    [
        priority,
        memory_bytes,
        requests_per_second,
        idle_seconds,
        load_seconds,
        resident,
        waiting_requests,
        wakes_per_hour,
        dependants,
        pool_pressure,
        age_seconds,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::{Policies, Standing, Unheard, set::ActiveSet};

    const ROW: Features = Features {
        priority: 0.0,
        memory_bytes: 1.0,
        requests_per_second: 2.0,
        idle_seconds: 3.0,
        load_seconds: 4.0,
        resident: 5.0,
        waiting_requests: 6.0,
        wakes_per_hour: 7.0,
        dependants: 8.0,
        pool_pressure: 9.0,
        age_seconds: 10.0,
    };

    #[test]
    fn each_column_has_its_name() {
        let names = features(Question::MemoryAdmission);
        let fields = format!("{ROW:?}").replace('_', "-");
        for (at, (name, value)) in names.iter().zip(columns(&ROW)).enumerate() {
            assert!(fields.contains(&format!("{name}: {value:.1}")), "column {at} is {name}, and has {value}: {fields}");
        }
        assert_eq!(names.len(), columns(&ROW).len());
    }

    #[test]
    fn without_a_policy_nobody_is_scored() {
        let policies = Policies::new(ActiveSet::new(Vec::new()), Arc::new(Unheard));
        let key = ObjectKey { resource: &INFERENCE_MODEL, namespace: "ml".to_owned(), name: "llama".to_owned() };
        let mut failed = None;
        assert_eq!(score(&policies.pin(Standing::Running), &[(&key, ROW)], &mut failed), [None]);
        assert!(failed.is_some());
    }
}
