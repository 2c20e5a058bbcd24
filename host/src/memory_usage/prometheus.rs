//! Queries to Prometheus.

use super::{Measured, whole_bytes};
use crate::outbound::{self, OutboundError};
use http::{Request, Uri};
use hyper::body::Bytes;
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};
use tokio::time::timeout;

/// The timeout of a response.
const QUERY_TIMEOUT: Duration = Duration::from_secs(20);

/// The maximum size of a response.
const MAX_ANSWER_BYTES: usize = 16 << 20;

#[derive(Deserialize)]
struct Answer {
    #[serde(default)]
    error: Option<String>,
    #[serde(default)]
    data: Option<Data>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: serde_json::Value,
}

#[derive(Deserialize)]
struct Sample {
    metric: BTreeMap<String, String>,
    /// The time, and the number as text.
    value: (f64, String),
}

pub(super) async fn measure(url: &Uri, query: &str) -> Result<Measured, OutboundError> {
    let client = outbound::client(url)?;
    let query = form_urlencoded::Serializer::new(String::new()).append_pair("query", query).finish();
    let path = format!("{}/api/v1/query?{query}", url.path().trim_end_matches('/'));
    let request = Request::get(path).body(Bytes::new())?;
    let answer = timeout(QUERY_TIMEOUT, outbound::send(&client, request, MAX_ANSWER_BYTES));
    let answer = answer.await.map_err(|_| format!("Prometheus takes longer than {} s", QUERY_TIMEOUT.as_secs()))??;
    let status = answer.status();
    read(answer.body()).map_err(|error| format!("Prometheus answers with status {status}: {error}").into())
}

/// Parses a response. Of several samples of one pod, the largest is used.
fn read(text: &[u8]) -> Result<Measured, String> {
    let Answer { error, data } = serde_json::from_slice(text).map_err(|_| "the answer isn't one of its query API".to_owned())?;
    if let Some(error) = error {
        return Err(error);
    }
    let vector = data.filter(|data| data.result_type == "vector").and_then(|data| serde_json::from_value(data.result).ok());
    let samples: Vec<Sample> = vector.ok_or("the query must give an instant vector")?;
    let mut measured = Measured::new();
    for Sample { mut metric, value: (_, number) } in samples {
        let [Some(namespace), Some(pod)] = ["namespace", "pod"].map(|label| metric.remove(label)) else {
            return Err("the samples of the query must have the labels namespace and pod".to_owned());
        };
        let Some(bytes) = number.parse().ok().and_then(whole_bytes) else { continue };
        let known = measured.entry((namespace, pod)).or_default();
        *known = bytes.max(*known);
    }
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn answer(data: &serde_json::Value) -> Result<Measured, String> {
        read(json!({"status": "success", "data": data}).to_string().as_bytes())
    }

    #[test]
    fn of_several_samples_of_a_pod_the_largest_counts() {
        let sample = |pod: &str, value: &str| json!({"metric": {"namespace": "ml", "pod": pod}, "value": [1_764_000_000.5, value]});
        let samples = [sample("a", "5e9"), sample("a", "7e9"), sample("a", "6e9"), sample("b", "NaN"), sample("c", "+Inf")];
        let measured = answer(&json!({"resultType": "vector", "result": samples})).unwrap();
        assert_eq!(measured, Measured::from([(("ml".to_owned(), "a".to_owned()), 7_000_000_000)]));
    }

    #[test]
    fn what_is_wrong_with_a_query_is_reported() {
        let vector = |result: serde_json::Value| answer(&json!({"resultType": "vector", "result": result})).unwrap_err();
        assert!(vector(json!([{"metric": {"pod": "a"}, "value": [1, "1"]}])).contains("the labels namespace and pod"));
        let matrix = answer(&json!({"resultType": "matrix", "result": []})).unwrap_err();
        assert_eq!(matrix, "the query must give an instant vector");
        assert_eq!(answer(&json!({"resultType": "scalar", "result": [1, "2"]})).unwrap_err(), matrix);
        let refused = json!({"status": "error", "errorType": "bad_data", "error": "parse error"});
        assert_eq!(read(refused.to_string().as_bytes()).unwrap_err(), "parse error");
        assert_eq!(read(b"<html>").unwrap_err(), "the answer isn't one of its query API");
    }
}
