//! The pods of a component: the question at pod-templating.

use super::{
    DECIDED, PlanBuilder, PlanError,
    component::{ComponentKind, DeployedComponent, Mode},
    metadata::Sources,
};
use crate::{
    kinds::questions::{PodRole, TemplateQuestion},
    model_nodes::names::node_label,
    world::{
        ObjectKey,
        ome::{ModelView, PodLayer as Content, WeightView},
    },
};
use pointsman_sandbox::point::{Role, templating::Layer};
use serde_json::{Value, json};

/// The annotation that stops KubeRay from changing command lines.
const OVERWRITE: &str = "ray.io/overwrite-container-cmd";

/// The roles of a component's pods: one, or leader and worker.
pub(super) fn places(component: &DeployedComponent) -> Vec<PodRole> {
    let role = component.part.role();
    match component.mode {
        Mode::Raw | Mode::Serverless => vec![PodRole { role, group: None }],
        // Ray's head is also a leader.
        Mode::MultiNode(_) | Mode::Ray(_) => [Role::Leader, Role::Worker].map(|place| PodRole { role: place, group: Some(role) }).to_vec(),
    }
}

impl PlanBuilder<'_> {
    /// The template for the pods with a role, as `metadata` and `spec`.
    pub(super) fn template(
        &mut self,
        component: &DeployedComponent,
        place: PodRole,
        sources: &Sources<'_>,
        workload: &ObjectKey,
    ) -> Result<Value, Box<PlanError>> {
        let mut frame = json!({"metadata": {}, "spec": {}});
        if component.part == ComponentKind::Router {
            frame["spec"]["serviceAccountName"] = component.name.as_str().into();
        }
        let layers = self.pod_layers(component, place, sources);
        let admin_layers = layers.iter().filter(|layer| is_of_admins(&layer.name, component, sources));
        let admin_layers = admin_layers.map(|layer| layer.name.clone()).collect();
        let question = TemplateQuestion { layers, admin_layers, frame };
        let template = self.asking.template(&self.service.subject, place, question, workload);
        template.map_err(|undecided| self.undecided(DECIDED, &undecided))
    }

    /// The layers in order of precedence, the lowest first.
    fn pod_layers(&self, component: &DeployedComponent, place: PodRole, sources: &Sources<'_>) -> Vec<Layer> {
        let mut layers = Vec::new();
        let mut add = |name: String, content: Value| layers.push(Layer { name, content: content.to_string() });
        for (name, side) in [("runtime", &component.runtime), ("user", &component.user)] {
            let content = |part: &Content| Value::Object(part.0.clone());
            add(name.to_owned(), content(&side.part));
            let of_place = match place.role {
                Role::Leader => Some(("leader", &side.leader)),
                Role::Worker => Some(("worker", &side.worker)),
                _ => None,
            };
            if let Some((role, Some(part))) = of_place {
                add(format!("{name}-{role}"), content(part));
            }
        }
        let extras = &component.extras;
        if component.part != ComponentKind::Router {
            match (sources.model, &extras.storage_uri, sources.merged_weight()) {
                (None, None, _) => {}
                (Some(model), _, Some((name, weight))) => add("model".to_owned(), merged_facts(model, name, weight)),
                (model, uri, _) => add("model".to_owned(), facts(model, uri.as_deref(), &self.service.name)),
            }
            for (name, weight) in sources.weights.iter().filter(|(_, weight)| !weight.is_merged) {
                let mut adapter = json!({"name": name, "storageUri": weight.storage_uri, "modelType": weight.tuning});
                if let Some(rank) = weight.rank {
                    adapter["rank"] = rank.into();
                }
                add("adapter".to_owned(), adapter);
            }
            if let Some(storage) = &extras.storage {
                add("storage".to_owned(), json!({"claim": component.claim(), "readOnly": storage.mode == "ReadOnlyMany"}));
            }
        }
        if !extras.settings.is_empty() {
            add("settings".to_owned(), json!(extras.settings));
        }
        match component.mode {
            Mode::MultiNode(nodes) => add("group".to_owned(), json!({"nodes": nodes})),
            Mode::Ray(nodes) => {
                let own = component.user.settings.annotations.get(OVERWRITE).or_else(|| self.service.annotations.get(OVERWRITE));
                add("group".to_owned(), json!({"nodes": nodes, "ray": true, "overwrite": own.is_some_and(|own| own == "true")}));
            }
            Mode::Raw | Mode::Serverless => {}
        }
        layers
    }
}

/// Whether only administrators write a layer: its contents are from cluster-scoped objects.
fn is_of_admins(layer: &str, component: &DeployedComponent, sources: &Sources<'_>) -> bool {
    match layer {
        "runtime" | "runtime-leader" | "runtime-worker" => sources.runtime.is_some_and(|runtime| runtime.candidate.namespace.is_empty()),
        // Weights are cluster-scoped.
        "model" if sources.merged_weight().is_some() => true,
        "model" => component.extras.storage_uri.is_none() && sources.model.is_some_and(|view| view.model.namespace.is_empty()),
        "adapter" => true,
        _ => false,
    }
}

/// The facts about the model. A model from a storage URI isn't on a node.
fn facts(view: Option<&ModelView>, uri: Option<&str>, service: &str) -> Value {
    let mut facts = match view {
        Some(ModelView { model, storage_uri, .. }) => json!({
            "kind": model.kind, "namespace": model.namespace, "name": model.name, "storageUri": storage_uri, "nodeLabel": node_label(&model.namespace, &model.name),
        }),
        None => json!({"name": service}),
    };
    if let Some(path) = view.and_then(|view| view.path.as_deref()) {
        facts["path"] = path.into();
    }
    if let Some(tokens) = view.and_then(|view| view.max_tokens) {
        facts["maxTokens"] = tokens.into();
    }
    if let Some(uri) = uri {
        facts["storageUri"] = uri.into();
        facts["download"] = true.into();
    }
    facts
}

/// The suffix of a merged model's object in OCI Object Storage, as upstream's training writes it.
const MERGED: &str = "-merged-weight";

/// The facts about a merged weight that is served instead of its model: pods download it to the model's path.
fn merged_facts(base: &ModelView, name: &str, weight: &WeightView) -> Value {
    let uri = &weight.storage_uri;
    let suffix = if uri.starts_with("oci://n/") && !uri.ends_with(MERGED) { MERGED } else { "" };
    let mut facts = json!({"kind": "FineTunedWeight", "name": name, "storageUri": format!("{uri}{suffix}"), "download": true});
    if let Some(path) = &base.path {
        facts["path"] = path.as_str().into();
    }
    if let Some(tokens) = base.max_tokens {
        facts["maxTokens"] = tokens.into();
    }
    facts
}
