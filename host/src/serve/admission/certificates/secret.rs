//! The Secret with our own certificates. Any host creates it if it is missing; the leader renews it; every host presents its certificate.

use super::{
    CertificateSink, ServedApi,
    made::{self, SelfSignedKeys},
};
use crate::{
    leader::Leadership,
    problem::{is_forbidden, sentence},
};
use futures::StreamExt;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
    runtime::{WatchStreamExt, watcher},
};
use std::{collections::BTreeMap, error::Error, pin::pin, time::Duration};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// The interval of checks for a due renewal, and of retries.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// The timeout of a write.
const WRITE_WITHIN: Duration = Duration::from_secs(4);

/// Keeps the Secret up to date for the server's names, and presents its certificate. Never ends by itself.
pub async fn keep(served: ServedApi, client: Client, namespace: &str, names: Vec<String>, leadership: Leadership, outlet: CertificateSink) {
    let api = Api::<Secret>::namespaced(client, namespace);
    let only = watcher::Config::default().fields(&format!("metadata.name={}", served.secret()));
    let mut events = pin!(watcher::watcher(api.clone(), only).default_backoff());
    let mut looks = interval(POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut keeper = Keeper { served, api, names, leadership, outlet, found: Found::Unknown, shown: None, complaint: String::new() };
    let mut listed = None;
    loop {
        tokio::select! {
            Some(event) = events.next() => match event {
                Ok(watcher::Event::Init) => listed = None,
                Ok(watcher::Event::InitApply(secret)) => listed = Some(secret),
                Ok(watcher::Event::InitDone) => keeper.found = listed.take().map_or(Found::Missing, Found::from_secret),
                Ok(watcher::Event::Apply(secret)) => keeper.found = Found::from_secret(secret),
                Ok(watcher::Event::Delete(_)) => keeper.found = Found::Missing,
                Err(error) => keeper.complain(format!("it can't be read: {}", keeper.advised(&error))),
            },
            _ = looks.tick() => {}
        }
        keeper.show();
        keeper.improve().await;
    }
}

/// The state of the Secret.
enum Found {
    /// It hasn't been read yet.
    Unknown,
    Missing,
    There(Box<Secret>),
}

impl Found {
    fn from_secret(secret: Secret) -> Self {
        Self::There(Box::new(secret))
    }

    fn kept(&self) -> Option<SelfSignedKeys> {
        match self {
            Self::There(secret) => Some(kept(secret)),
            Self::Unknown | Self::Missing => None,
        }
    }
}

struct Keeper {
    served: ServedApi,
    api: Api<Secret>,
    names: Vec<String>,
    leadership: Leadership,
    outlet: CertificateSink,
    found: Found,
    /// The state that is already presented.
    shown: Option<SelfSignedKeys>,
    /// The last logged problem: a lasting problem is logged once.
    complaint: String,
}

impl Keeper {
    /// Presents the Secret's certificate. An unusable one changes nothing: the leader replaces it.
    fn show(&mut self) {
        let Some(kept) = self.found.kept().filter(|kept| self.shown.as_ref() != Some(kept)) else { return };
        let Ok(key) = kept.certified() else { return };
        let leaf = self.shown.as_ref().is_none_or(|shown| shown.leaf != kept.leaf);
        // The bundle comes first: the leader writes it to the API server.
        self.outlet.bundle.send_if_modified(|before| before.replace(kept.bundle.clone()).as_ref() != Some(&kept.bundle));
        if leaf {
            self.outlet.shown.show(key);
            tracing::info!(secret = self.served.secret(), "serving the certificate of the Secret");
        }
        self.shown = Some(kept);
    }

    /// Creates missing certificates, and renews due ones.
    async fn improve(&mut self) {
        let may = match &self.found {
            Found::Unknown => false,
            // Only one of the hosts that try succeeds.
            Found::Missing => true,
            Found::There(_) => self.leadership.held(),
        };
        if !may {
            return;
        }
        let wanted = match made::renewed(self.found.kept().as_ref(), &self.names, made::now()) {
            Ok(Some(wanted)) => wanted,
            Ok(None) => return self.complaint.clear(),
            Err(error) => return self.complain(sentence(&error)),
        };
        match timeout(WRITE_WITHIN, self.write(wanted)).await {
            Ok(Ok(written)) => {
                tracing::info!(secret = self.served.secret(), "certificates of {} have been generated", self.served.called());
                self.found = Found::from_secret(written);
                self.complaint.clear();
                self.show();
            }
            // Another host was first, and the watch reports its write.
            Ok(Err(kube::Error::Api(status))) if status.code == 409 => self.found = Found::Unknown,
            Ok(Err(error)) => self.complain(format!("it can't be written: {}", self.advised(&error))),
            Err(_) => self.complain("it can't be written: the API server doesn't answer".to_owned()),
        }
    }

    async fn write(&self, wanted: SelfSignedKeys) -> kube::Result<Secret> {
        let (data, name) = (Some(data(wanted)), self.served.secret());
        match &self.found {
            // It carries the version that was read.
            Found::There(secret) => self.api.replace(name, &PostParams::default(), &Secret { data, ..(**secret).clone() }).await,
            Found::Unknown | Found::Missing => {
                let labels = BTreeMap::from([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())]);
                let metadata = ObjectMeta { name: Some(name.to_owned()), labels: Some(labels), ..ObjectMeta::default() };
                // Not of the type kubernetes.io/tls, which always requires a leaf.
                let secret = Secret { metadata, data, type_: Some("Opaque".to_owned()), ..Secret::default() };
                self.api.create(&PostParams::default(), &secret).await
            }
        }
    }

    fn complain(&mut self, complaint: String) {
        if complaint != self.complaint {
            let secret = self.served.secret();
            self.outlet.shown.note_failure(&format!("the Secret {secret}: {complaint}"));
            tracing::warn!(secret, error = complaint, "certificates of {} can't be stored; trying again", self.served.called());
            self.complaint = complaint;
        }
    }

    /// An error, with the remedy if a right is missing.
    fn advised(&self, error: &(dyn Error + 'static)) -> String {
        let advice = if is_forbidden(error) { format!(": apply deploy/roles/{}", self.served.feature()) } else { String::new() };
        format!("{}{advice}", sentence(error))
    }
}

fn kept(secret: &Secret) -> SelfSignedKeys {
    let text = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.and_then(|ByteString(bytes)| String::from_utf8(bytes.clone()).ok()).unwrap_or_default()
    };
    SelfSignedKeys {
        bundle: text("ca.crt"),
        ca_key: text("ca.key"),
        made: text("ca.made").trim().parse().unwrap_or_default(),
        leaf: text("tls.crt"),
        leaf_key: text("tls.key"),
    }
}

fn data(kept: SelfSignedKeys) -> BTreeMap<String, ByteString> {
    let SelfSignedKeys { bundle, ca_key, made, leaf, leaf_key } = kept;
    let entries = [("ca.crt", bundle), ("ca.key", ca_key), ("ca.made", made.to_string()), ("tls.crt", leaf), ("tls.key", leaf_key)];
    entries.into_iter().map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_into_the_secret_is_read_out_of_it() {
        let made = made::renewed(None, &["localhost".to_owned()], made::now()).unwrap().unwrap();
        let secret = Secret { data: Some(data(made.clone())), ..Secret::default() };
        assert_eq!(kept(&secret), made);
        assert_eq!(kept(&Secret::default()), SelfSignedKeys::default());
    }
}
