//! Full reports, each in a ConfigMap that is deleted with its PolicySet: they are too large for a status.

use super::sets;
use crate::problem::sentence;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::{
    Api, Client, Resource, ResourceExt,
    api::{ObjectMeta, Patch, PatchParams},
};
use pointsman_core::compare::Report;
use pointsman_crds::policy::set::PolicySet;
use std::io::{Read, Write};

const KEY: &str = "report.json.gz";

/// The field manager of reports.
const MANAGER: &str = "pointsman/report";

/// The maximum size of a report in a ConfigMap.
const MAX_REPORT_BYTES: usize = 900 << 10;

/// The maximum size to read: anyone who may write ConfigMaps in the namespace can write any content.
const MAX_READ: u64 = 64 << 20;

fn name(set: &str) -> String {
    format!("pointsman-report-{set}")
}

/// Stores a report. If it is too large, it loses its fields, which only this host uses, and then its last lines, and has their number.
pub(super) async fn keep(client: &Client, namespace: &str, set: &PolicySet, report: Report) -> Result<(), String> {
    let packed = tokio::task::spawn_blocking(move || pack(report)).await.map_err(|error| error.to_string())?;
    let map = ConfigMap {
        metadata: ObjectMeta {
            name: Some(name(&set.name_any())),
            namespace: Some(namespace.to_owned()),
            labels: Some([("app.kubernetes.io/managed-by".to_owned(), "pointsman".to_owned())].into()),
            owner_references: Some(set.owner_ref(&()).into_iter().collect()),
            ..ObjectMeta::default()
        },
        binary_data: Some([(KEY.to_owned(), ByteString(packed.map_err(|error| error.to_string())?))].into()),
        ..ConfigMap::default()
    };
    let api = Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let written = api.patch(&map.name_any(), &PatchParams::apply(MANAGER).force(), &Patch::Apply(&map)).await;
    written.map(|_| ()).map_err(|error| sentence(&error))
}

fn pack(mut report: Report) -> std::io::Result<Vec<u8>> {
    loop {
        let mut packed = GzEncoder::new(Vec::new(), Compression::default());
        packed.write_all(&serde_json::to_vec(&report)?)?;
        let packed = packed.finish()?;
        if packed.len() <= MAX_REPORT_BYTES {
            return Ok(packed);
        }
        if report.fields.take().is_some() {
            continue;
        }
        let left = report.changed.len() * 3 / 4;
        report.omitted += report.changed.len() - left;
        report.changed.truncate(left);
    }
}

/// The report of a set, if there is a readable one.
pub async fn read(client: &Client, namespace: &str, set: &str) -> Option<Report> {
    let map = Api::<ConfigMap>::namespaced(client.clone(), namespace).get_opt(&name(set)).await.ok()??;
    let packed = &map.binary_data?.remove(KEY)?.0;
    let mut text = Vec::new();
    GzDecoder::new(&packed[..]).take(MAX_READ).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// The name of the ConfigMap with a set's report, by the set's digest.
pub fn config_map_name(digest: &str) -> String {
    name(&sets::name(digest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::{apimachinery::pkg::apis::meta::v1::Time, jiff::Timestamp};
    use pointsman_core::compare::{Changed, Effect, FieldSet, report::EffectCounts};

    #[test]
    fn a_report_that_is_too_large_says_how_many_lines_it_lacks() {
        let changed = |number: u64| Changed {
            kind: "InferenceService".to_owned(),
            namespace: "n".to_owned(),
            // Data that can hardly be compressed.
            name: pointsman_sandbox::digest::Digest::hash(&number.to_le_bytes()).hex(),
            effect: Effect::Restarts,
            places: Vec::new(),
        };
        let report = Report {
            set: "a".to_owned(),
            against: "b".to_owned(),
            at: Time(Timestamp::UNIX_EPOCH),
            subjects: 50_000,
            changed: (0..50_000).map(changed).collect(),
            omitted: 0,
            counts: EffectCounts { restarts: 50_000, ..EffectCounts::default() },
            fields: Some(FieldSet::default()),
            replayed: None,
        };
        let packed = pack(report).unwrap();
        assert!(packed.len() <= MAX_REPORT_BYTES);
        let mut text = Vec::new();
        GzDecoder::new(&packed[..]).read_to_end(&mut text).unwrap();
        let read: Report = serde_json::from_slice(&text).unwrap();
        assert_eq!((read.changed.len() + read.omitted, read.counts.restarts), (50_000, 50_000));
        assert!(read.omitted > 0 && read.fields.is_none());
    }
}
