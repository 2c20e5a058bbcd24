//! The metrics that pods report on /metrics.

use super::{Measured, ModelPod, whole_bytes};
use crate::{
    allocator::some_at_once,
    outbound::{self, OutboundError},
};
use http::{Request, Uri};
use hyper::body::Bytes;
use pointsman_core::kinds::eh_ops::PORT;
use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};
use tokio::time::timeout;

/// The timeout of a response.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of a response.
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// Queries all pods. A pod that doesn't respond is left out; if none responds, the first failure is returned.
pub(super) async fn measure(pods: &[ModelPod], metric: &str) -> Result<Measured, OutboundError> {
    let mut asked = Vec::new();
    for pod in pods {
        if let Some(ip) = pod.ip.as_ref().and_then(|ip| ip.parse().ok()) {
            asked.push(ask(pod.name.clone(), ip, metric.to_owned()));
        }
    }
    let (mut measured, mut failed) = (Measured::new(), None);
    for (name, answer) in some_at_once(asked).await {
        match answer {
            Ok(bytes) => _ = measured.insert(name, bytes),
            Err(error) => {
                tracing::debug!(namespace = name.0, pod = name.1, "its /metrics can't be read: {error}");
                failed.get_or_insert_with(|| format!("the pod {}/{}: {error}", name.0, name.1));
            }
        }
    }
    match failed {
        Some(error) if measured.is_empty() => Err(error.into()),
        _ => Ok(measured),
    }
}

async fn ask(name: (String, String), ip: IpAddr, metric: String) -> ((String, String), Result<i64, OutboundError>) {
    let answer = async {
        let server: Uri = format!("http://{}/", SocketAddr::new(ip, PORT)).parse()?;
        let client = outbound::client(&server)?;
        let answer = outbound::send(&client, Request::get("/metrics").body(Bytes::new())?, MAX_ANSWER_BYTES).await?;
        if !answer.status().is_success() {
            return Err(format!("/metrics answers with status {}", answer.status()).into());
        }
        let page = String::from_utf8_lossy(answer.body());
        sum(&page, &metric).ok_or_else(|| format!("/metrics has no {metric}").into())
    };
    let late = || Err(format!("/metrics takes longer than {} s", ANSWER_TIMEOUT.as_secs()).into());
    (name, timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| late()))
}

/// The sum of a metric's samples: a server may have several processes.
fn sum(page: &str, metric: &str) -> Option<i64> {
    let samples = page.lines().filter_map(|line| {
        let rest = line.strip_prefix(metric)?;
        let rest = if rest.starts_with('{') { rest.rsplit_once('}')?.1 } else { rest.strip_prefix(' ')? };
        rest.split_ascii_whitespace().next()?.parse().ok().and_then(whole_bytes)
    });
    samples.reduce(i64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_of_a_metric_are_added_up() {
        let page = "# TYPE rss gauge\nrss{worker=\"a } b\"} 5e3 1764000000\nrss{worker=\"b\"} 7\nrss_total 100\nrss 1\nrss NaN\n";
        assert_eq!(sum(page, "rss"), Some(5008));
        assert_eq!(sum(page, "rs"), None);
        assert_eq!(sum("", "rss"), None);
    }
}
