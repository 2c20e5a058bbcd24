//! The pools that a picker serves, and the tasks for each.

use crate::{
    cli::gateway::Tasks,
    endpoint_picker::{
        Policies, Probes,
        cluster::{self, PoolGroup, PoolName, PoolView},
        counts::PickerCounts,
        decisions::Decisions,
        latency::Latency,
        pool::Pool,
        scrape::Scraper,
        threads::Threads,
    },
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use kube::Client;
use opentelemetry_sdk::trace::SdkTracer;
use pointsman_picker::config::PickerConfig;
use std::{collections::BTreeSet, str::FromStr, sync::Arc, time::Duration};
use tokio::time::{Instant, MissedTickBehavior, interval};

/// The maximum number of pools per process.
const MAX_POOLS: usize = 64;

/// The interval at which remembered prefixes are adjusted to the engines' caches.
const TUNE_INTERVAL: Duration = Duration::from_secs(1);

/// The maximum length of an object's name.
const MAX_NAME_BYTES: usize = 253;

#[derive(Args, Debug)]
pub(super) struct PoolArgs {
    /// InferencePool whose endpoints are picked
    #[arg(long, value_name = "NAME", required_unless_present = "pools")]
    pool_name: Option<String>,
    /// Namespace of the InferencePool. With --pool: namespace of pools without one, and of the ConfigMaps of --policy-config-map
    #[arg(long, value_name = "NAME", env = "NAMESPACE", default_value = "default")]
    pool_namespace: String,
    /// API group of the InferencePool; default: inference.networking.k8s.io, or inference.networking.x-k8s.io if only that has a pool of
    /// this name
    #[arg(long, value_name = "GROUP")]
    pool_group: Option<PoolGroup>,
    /// InferencePool and the port for its proxies, instead of --pool-name and --grpc-port; may be repeated, up to 64 times. The pools share
    /// all other flags
    #[arg(long = "pool", value_name = "[NAMESPACE/]NAME:PORT", conflicts_with_all = ["pool_name", "grpc_port"])]
    pools: Vec<PoolPort>,
}

/// A pool, and the port for its proxies.
#[derive(Clone, Debug, PartialEq, Eq)]
struct PoolPort {
    namespace: Option<String>,
    name: String,
    port: u16,
}

impl FromStr for PoolPort {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = || {
            let (pool, port) = text.rsplit_once(':')?;
            let (namespace, name) = match pool.split_once('/') {
                Some((namespace, name)) => (Some(namespace), name),
                None => (None, pool),
            };
            let is_named = is_name(name) && namespace.is_none_or(is_name);
            let (namespace, name, port) = (namespace.map(str::to_owned), name.to_owned(), port.parse().ok()?);
            is_named.then_some(Self { namespace, name, port })
        };
        parse().ok_or_else(|| "expected a pool and a port, such as models/llama:9002".to_owned())
    }
}

fn is_name(name: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(is_known)
}

impl PoolArgs {
    /// The namespace of objects that are specified without one.
    pub(super) fn namespace(&self) -> &str {
        &self.pool_namespace
    }

    /// The pools with their ports. A pool of `--pool-name` gets `grpc_port`.
    pub(super) fn pools(&self, grpc_port: u16) -> Result<Vec<PoolOnPort>> {
        let named = |namespace: Option<&String>, name: &str| PoolName {
            group: self.pool_group.unwrap_or_default(),
            namespace: namespace.unwrap_or(&self.pool_namespace).clone(),
            name: name.to_owned(),
        };
        if let Some(name) = &self.pool_name {
            return Ok(vec![PoolOnPort { name: named(None, name), port: grpc_port, flag: "grpc-port".to_owned() }]);
        }
        if self.pools.len() > MAX_POOLS {
            bail!("--pool: {} pools are too many: a process serves up to {MAX_POOLS}; start another process", self.pools.len());
        }
        let (mut names, mut ports) = (BTreeSet::new(), BTreeSet::new());
        let mut pools = Vec::new();
        for PoolPort { namespace, name, port } in &self.pools {
            let name = named(namespace.as_ref(), name);
            if !names.insert(name.to_string()) {
                bail!("--pool: {name} is specified twice: remove one");
            }
            // 0 means any free port.
            if *port != 0 && !ports.insert(*port) {
                bail!("--pool: the port {port} is specified twice: each pool needs its own port, because proxies don't specify the pool");
            }
            let flag = format!("pool {name}:{port}");
            pools.push(PoolOnPort { name, port: *port, flag });
        }
        Ok(pools)
    }

    /// The readiness of the pools, for probes.
    pub(super) fn probes(&self, pools: &[ServedPool]) -> Probes {
        match pools {
            [served] if self.pool_name.is_some() => Probes::One(Arc::clone(&served.pool)),
            _ => Probes::Several(pools.iter().map(|served| Arc::clone(&served.pool)).collect()),
        }
    }
}

/// A pool, and the port for its proxies.
#[derive(Debug)]
pub(super) struct PoolOnPort {
    name: PoolName,
    port: u16,
    /// The flag that specifies the port.
    flag: String,
}

/// A served pool.
#[derive(Debug)]
pub(super) struct ServedPool {
    pub(super) pool: Arc<Pool>,
    /// The port for its proxies.
    pub(super) port: u16,
    /// The flag that specifies the port.
    pub(super) flag: String,
}

/// The parts that all pools share.
#[derive(Debug)]
pub(super) struct SharedParts {
    pub(super) config: PickerConfig,
    pub(super) policies: Policies,
    pub(super) counts: Arc<PickerCounts>,
    pub(super) decisions: Arc<Decisions>,
    pub(super) tracer: Option<SdkTracer>,
    pub(super) clock: Instant,
}

impl SharedParts {
    /// Starts the tasks of all pools.
    pub(super) fn start_all(&self, pools: Vec<PoolOnPort>, client: &Client, tasks: &mut Tasks) -> Result<Vec<ServedPool>> {
        // Metrics are read continuously, and requests shouldn't wait for that on their threads.
        let readers = Threads::start("metrics").context("starting the threads that read metrics")?;
        let start = |PoolOnPort { name, port, flag }| Ok(ServedPool { pool: self.start(name, client, &readers, tasks)?, port, flag });
        pools.into_iter().map(start).collect()
    }

    /// Creates a pool, and starts its watches and other tasks.
    fn start(&self, name: PoolName, client: &Client, readers: &Threads, tasks: &mut Tasks) -> Result<Arc<Pool>> {
        let Self { config, policies, counts, decisions, tracer, clock } = self;
        let view = Arc::new(PoolView::new(&name));
        let (latency, learning) = Latency::new();
        let scraper = Scraper::new(Arc::clone(&view.fleet), config.scrape.clone(), *clock).map_err(|error| anyhow!(error))?;
        let pool = Pool::new(name.to_string(), Arc::clone(&view), config.clone(), policies.clone(), latency, Arc::clone(counts), *clock);
        let pool = Arc::new(pool.recording(Arc::clone(decisions)).tracing(tracer.clone()));
        tasks.spawn(async { (learning.await, "learning what answers take").1 });
        readers.spawn(tasks, async { (scraper.run().await, "reading metrics").1 });
        let watching = cluster::keep(client.clone(), name, view);
        tasks.spawn(async { (watching.await, "the watch of the cluster").1 });
        let kept = Arc::clone(&pool);
        tasks.spawn(async move { (kept.keep().await, "letting requests go on").1 });
        let tuned = Arc::clone(&pool);
        tasks.spawn(async move {
            let mut beat = interval(TUNE_INTERVAL);
            beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                beat.tick().await;
                tuned.tune();
            }
        });
        Ok(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        pools: PoolArgs,
        #[arg(long, default_value_t = 9002)]
        grpc_port: u16,
    }

    fn pools(flags: &str) -> Result<Vec<String>, String> {
        let line = Line::try_parse_from(["picker"].into_iter().chain(flags.split_whitespace())).map_err(|error| error.to_string())?;
        let pools = line.pools.pools(line.grpc_port).map_err(|error| error.to_string())?;
        Ok(pools.into_iter().map(|pool| format!("{}:{}", pool.name, pool.port)).collect())
    }

    #[test]
    fn a_pool_is_named_alone_or_each_with_its_port() {
        let named = |names: &[&str]| Ok(names.iter().map(ToString::to_string).collect());
        assert_eq!(pools("--pool-name llama --pool-namespace models"), named(&["models/llama:9002"]));
        assert_eq!(pools("--pool-name llama --pool-namespace models --grpc-port 1"), named(&["models/llama:1"]));
        let several = "--pool llama:9002 --pool other/llama:9003 --pool-namespace models";
        assert_eq!(pools(several), named(&["models/llama:9002", "other/llama:9003"]));
        let most = (0..MAX_POOLS).map(|number| format!("--pool p{number}:0")).collect::<Vec<_>>().join(" ");
        assert_eq!(pools(&most).map(|pools| pools.len()), Ok(MAX_POOLS));
        for (flags, says) in [
            ("", "--pool-name"),
            ("--pool a:1 --pool-name a", "cannot be used with"),
            ("--pool a:1 --grpc-port 1", "cannot be used with"),
            ("--pool a:1 --pool default/a:2 --pool-namespace default", "default/a is specified twice: remove one"),
            ("--pool a:1 --pool b:1", "the port 1 is specified twice"),
            ("--pool a", "expected a pool and a port, such as models/llama:9002"),
            ("--pool :1", "expected a pool and a port"),
            ("--pool /a:1", "expected a pool and a port"),
            ("--pool a/b/c:1", "expected a pool and a port"),
            ("--pool A:1", "expected a pool and a port"),
            ("--pool a:65536", "expected a pool and a port"),
            (&*format!("{most} --pool more:0"), "65 pools are too many: a process serves up to 64"),
        ] {
            let error = pools(flags).unwrap_err();
            assert!(error.contains(says), "{flags}: {error}");
        }
    }
}
