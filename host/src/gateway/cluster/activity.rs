//! This gateway's ConfigMap, which reports its activity to hosts: written at once if they wait for it, otherwise rarely.

use crate::{
    gateway::{
        catalog::Models,
        model::{Model, now},
    },
    problem::sentence,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{
    Api, Client,
    api::{DeleteParams, Patch, PatchParams},
};
use pointsman_core::allocation::{
    ObjectName,
    records::{ACTIVITY, GATEWAY_ACTIVITY, GATEWAY_PREFIX, GatewayActivity, HEARTBEAT, ModelActivity},
};
use pointsman_sandbox::words::dns_label;
use serde_json::json;
use std::{collections::BTreeMap, sync::Arc, time::Duration};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// The field manager of the ConfigMap.
const FIELD_MANAGER: &str = "pointsman-gateway";

/// The minimum interval between two writes.
const MIN_INTERVAL: Duration = Duration::from_millis(500);

/// The minimum interval between two writes that no host waits for.
const QUIET_INTERVAL: Duration = Duration::from_secs(2);

/// The delay after a failed write.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// The timeout of a write.
const WRITE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of the text. A ConfigMap may have 1 MiB.
const MAX_TEXT: usize = 900 << 10;

/// The ConfigMap.
#[allow(missing_debug_implementations)] // A Kubernetes client has none.
pub struct ActivityMap {
    api: Api<ConfigMap>,
    name: String,
    models: Arc<Models>,
}

/// The activity of all models, as a text of limited size: the least important models are left out first.
fn text(models: &[Arc<Model>]) -> String {
    let mut all: Vec<(ObjectName, ModelActivity)> =
        models.iter().filter_map(|model| Some((model.key().clone(), model.activity()?))).collect();
    all.sort_by_key(|(_, activity)| {
        let matters = activity.in_flight > 0 || activity.waiting > 0 || activity.drained.is_some();
        std::cmp::Reverse((matters, activity.last_request))
    });
    loop {
        let models: BTreeMap<_, _> = all.iter().cloned().collect();
        let text = serde_json::to_string(&GatewayActivity { written: now(), models }).unwrap_or_default();
        if text.len() <= MAX_TEXT || all.is_empty() {
            return text;
        }
        all.truncate(all.len() * 3 / 4);
    }
}

impl ActivityMap {
    /// The ConfigMap of a gateway with this name, in the hosts' namespace.
    pub fn new(client: Client, host_namespace: &str, identity: &str, models: Arc<Models>) -> Result<Self, String> {
        if !is_name(identity) {
            return Err(format!("the identity {identity:?} can't be part of an object's name: use lower-case letters, digits, - and ."));
        }
        Ok(Self { api: Api::namespaced(client, host_namespace), name: format!("{GATEWAY_PREFIX}{identity}"), models })
    }

    async fn write(&self) -> Result<(), String> {
        let object = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "labels": {GATEWAY_ACTIVITY: "true"}},
            "data": {ACTIVITY: text(&self.models.all())},
        });
        let parameters = PatchParams::apply(FIELD_MANAGER).force();
        match timeout(WRITE_TIMEOUT, self.api.patch(&self.name, &parameters, &Patch::Apply(object))).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(sentence(&error)),
            Err(_) => Err("the API server doesn't answer".to_owned()),
        }
    }

    /// Writes it for the first time, with retries: hosts must know this gateway before it reads the reservations of models. Otherwise a
    /// model could be stopped while it responds here.
    pub async fn register(&self) {
        let mut complaint = String::new();
        while let Err(error) = self.write().await {
            if error != complaint {
                tracing::warn!(error, name = self.name, "the gateway can't register with the hosts; trying again");
                complaint = error;
            }
            sleep(RETRY_INTERVAL).await;
        }
    }

    /// Writes changes until the process ends.
    pub async fn keep(&self) {
        let shared = Arc::clone(self.models.shared());
        let (mut last, mut is_failing) = (Instant::now(), false);
        loop {
            let heartbeat = sleep_until(last + Duration::from_secs(HEARTBEAT));
            if is_failing {
                sleep(RETRY_INTERVAL).await;
            } else {
                let quiet = async {
                    sleep_until(last + QUIET_INTERVAL).await;
                    while !shared.take_changed() {
                        sleep(QUIET_INTERVAL).await;
                    }
                };
                tokio::select! {
                    () = shared.urgent() => {}
                    () = quiet => {}
                    () = heartbeat => {}
                }
            }
            sleep_until(last + MIN_INTERVAL).await;
            shared.take_changed();
            last = Instant::now();
            match self.write().await {
                Ok(()) => is_failing = false,
                Err(error) if !std::mem::replace(&mut is_failing, true) => {
                    tracing::warn!(
                        error,
                        name = self.name,
                        "hosts can't be informed of requests; trying again, and serving by what is known"
                    );
                }
                Err(_) => {}
            }
        }
    }

    /// Deletes it, so that hosts no longer wait for this gateway.
    pub async fn delete(&self) {
        let deleted = timeout(WRITE_TIMEOUT, self.api.delete(&self.name, &DeleteParams::default())).await;
        let error = match deleted {
            Ok(Ok(_)) => return,
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return,
            Ok(Err(error)) => sentence(&error),
            Err(_) => "the API server doesn't answer".to_owned(),
        };
        tracing::warn!(error, name = self.name, "the gateway's ConfigMap can't be deleted: hosts ignore it after a minute");
    }
}

/// Whether a text may follow the prefix in an object's name.
fn is_name(text: &str) -> bool {
    text.len() + GATEWAY_PREFIX.len() <= 253 && text.split('.').all(dns_label)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::{
        error::GatewayError,
        model::{Admission, Gate, Shared},
    };

    fn model(name: &str, drain: Option<u64>) -> Arc<Model> {
        let gate = Gate::Closed { drain, answer: GatewayError::model_not_ready("It sleeps.", None) };
        Arc::new(Model::new(ObjectName(format!("ml/{name}")), Arc::new(Shared::new(0, usize::MAX / 2)), gate))
    }

    #[test]
    fn what_is_written_is_what_hosts_read() {
        let (one, other, quiet) = (model("a", None), model("b", Some(7)), model("c", None));
        let Admission::Queued(_waiting) = one.admit(0) else { panic!("it sleeps") };
        let read: GatewayActivity = serde_json::from_str(&text(&[one, other, quiet])).unwrap();
        let get = |name: &str| read.models.get(&ObjectName(format!("ml/{name}")));
        assert_eq!(get("a").map(|activity| (activity.waiting, activity.drained)), Some((1, None)));
        assert_eq!(get("b").map(|activity| (activity.waiting, activity.drained)), Some((0, Some(7))));
        assert_eq!(get("c"), None);
        assert!(read.written > 0);
    }

    #[test]
    fn what_doesn_t_fit_is_left_out_and_drainings_never_are() {
        let long = "x".repeat(200);
        let mut models: Vec<_> = (0..6000).map(|number| model(&format!("{long}-{number}"), None)).collect();
        for model in &models {
            drop(model.admit(0));
        }
        models.push(model("drained", Some(7)));
        let text = text(&models);
        assert!(text.len() <= MAX_TEXT);
        let read: GatewayActivity = serde_json::from_str(&text).unwrap();
        assert!(read.models.contains_key(&ObjectName("ml/drained".to_owned())) && read.models.len() > 1000);
    }

    #[test]
    fn an_identity_is_part_of_a_name() {
        assert!(is_name("gateway-7d4b.node-1"));
        for wrong in ["", "A", "a_b", "a..b", "-a", &"a".repeat(250)] {
            assert!(!is_name(wrong), "{wrong}");
        }
    }
}
