//! The plugins of a Pointsman controller's active policy set that score a pool's endpoints, together with the profile's own scorers or
//! without them.

pub mod follow;
#[cfg(test)]
mod tests;

use super::{policy::ScoringPolicy, pool::Pool};
use crate::{keeper::record::Recorded, metrics::family};
use pointsman_core::{
    point::name,
    selector::{NAMESPACE_NAME, fits},
};
use pointsman_crds::policy::{
    plugin::{PluginFailurePolicy, PluginMode, PolicyPoint},
    selection::Selection,
    set::PolicySetPlugin,
};
use pointsman_sandbox::point::Subject;
use prometheus_client::{collector::Collector, encoding::DescriptorEncoder, metrics::gauge::ConstGauge};
use std::{collections::BTreeSet, fmt, sync::Arc};

/// The maximum number of plugins that score a pool's endpoints: a request waits for each.
const MAX_PLUGINS_PER_POOL: usize = 16;

/// The plugins of a policy set that score the endpoints of a pool.
#[derive(Debug)]
pub struct SetScorers {
    digest: Arc<str>,
    /// The weight of the profile's own scorers, if they are used: they replace the built-in policy.
    own: Option<f64>,
    plugins: Vec<SetPlugin>,
}

/// A plugin that scores.
#[derive(Debug)]
struct SetPlugin {
    policy: Arc<ScoringPolicy>,
    weight: f64,
    stand_in: StandIn,
}

/// The fallback for a failed plugin.
#[derive(Debug)]
enum StandIn {
    /// None: the whole set fails.
    None,
    /// Only the other plugins are used.
    Skip,
    /// The profile's own scorers, with this weight.
    Own(f64),
    /// The plugin's previous version.
    Previous(Arc<ScoringPolicy>),
}

impl SetScorers {
    /// The digest of the whole set.
    pub fn digest(&self) -> &Arc<str> {
        &self.digest
    }

    /// The plugins that score, by their names.
    pub fn plugins(&self) -> impl Iterator<Item = &str> {
        self.plugins.iter().map(|plugin| plugin.policy.name())
    }

    /// Calls the plugins, and the profile's own scorers if they are used. Returns whether this succeeded.
    pub(super) fn ask<A>(
        &self,
        own: &ScoringPolicy,
        mut score: impl FnMut(&ScoringPolicy, f64) -> Option<A>,
        answers: &mut Vec<A>,
    ) -> bool {
        let mut own_weight = self.own;
        for SetPlugin { policy, weight, stand_in } in &self.plugins {
            let answer = score(policy, *weight).or_else(|| match stand_in {
                StandIn::Previous(previous) => score(previous, *weight),
                StandIn::None | StandIn::Skip | StandIn::Own(_) => None,
            });
            match (answer, stand_in) {
                (Some(answer), _) => answers.push(answer),
                (None, StandIn::Skip) => {}
                (None, StandIn::Own(weight)) => own_weight = own_weight.or(Some(*weight)),
                (None, StandIn::None | StandIn::Previous(_)) => return false,
            }
        }
        // The caller itself falls back to only the profile's own scorers.
        if answers.is_empty() {
            return false;
        }
        answers.extend(own_weight.and_then(|weight| score(own, weight)));
        true
    }

    /// Whether the same plugins score in the same way.
    fn is_same(&self, other: &Self) -> bool {
        let plugins = |set: &Self| -> Vec<_> {
            let bound = |plugin: &SetPlugin| (Arc::as_ptr(&plugin.policy), plugin.weight.to_bits());
            set.plugins.iter().map(bound).collect()
        };
        self.digest == other.digest && self.own.map(f64::to_bits) == other.own.map(f64::to_bits) && plugins(self) == plugins(other)
    }
}

/// The plugins at scheduling-scoring of a recorded policy set.
#[derive(Debug)]
pub struct LoadedSet {
    digest: Arc<str>,
    /// In the order of their calls.
    plugins: Vec<LoadedPlugin>,
}

/// A plugin of the set.
#[derive(Debug)]
pub struct LoadedPlugin {
    /// Its entry in the record.
    pub recorded: Recorded,
    /// The plugin; none if it scores no endpoints. Or why it can't be loaded.
    pub policy: Result<Option<Arc<ScoringPolicy>>, String>,
    /// Its previous version, if that is its fallback.
    pub previous: Option<Arc<ScoringPolicy>>,
}

impl LoadedSet {
    /// Creates a set, with the plugins in the order of their calls.
    pub fn new(digest: &str, mut plugins: Vec<LoadedPlugin>) -> Self {
        plugins.sort_by(|one, other| {
            let (one, other) = (&one.recorded.active, &other.recorded.active);
            (one.order, &one.name).cmp(&(other.order, &other.name))
        });
        Self { digest: digest.into(), plugins }
    }

    /// Whether a plugin can't be loaded.
    fn is_incomplete(&self) -> bool {
        self.plugins.iter().any(|plugin| plugin.policy.is_err())
    }

    /// The plugin with the same entry in the record, if it could be loaded.
    fn find(&self, recorded: &Recorded) -> Option<&LoadedPlugin> {
        let is_same = |known: &&LoadedPlugin| known.recorded.active == recorded.active && known.recorded.previous == recorded.previous;
        self.plugins.iter().find(is_same).filter(|known| known.policy.is_ok())
    }

    /// The scorers of a pool's endpoints, or the problem with them.
    pub fn for_pool(&self, pool: &Subject) -> Result<SetScorers, String> {
        let (mut own, mut line): (_, Vec<&LoadedPlugin>) = (None, Vec::new());
        let builtin = self.plugins.iter().find(|plugin| is_builtin(&plugin.recorded.active));
        for plugin in &self.plugins {
            let bound = &plugin.recorded.active;
            if !bound.selection.as_ref().is_none_or(|selection| fits(selection, pool)) {
                continue;
            }
            let is_builtin = is_builtin(bound);
            if !is_builtin && matches!(plugin.policy, Ok(None)) {
                continue;
            }
            if bound.mode == PluginMode::Replace {
                own = None;
                line.clear();
            }
            if is_builtin {
                own = Some(f64::from(bound.weight));
            } else {
                line.push(plugin);
            }
        }
        if line.len() > MAX_PLUGINS_PER_POOL {
            let number = line.len();
            return Err(format!("{number} plugins select the pool; the limit is {MAX_PLUGINS_PER_POOL}: narrow their match"));
        }
        let default_weight = builtin.map_or(1.0, |builtin| f64::from(builtin.recorded.active.weight));
        let scorer = |plugin: &LoadedPlugin| {
            let LoadedPlugin { recorded, policy, previous } = plugin;
            let bound = &recorded.active;
            let policy = policy.as_ref().map_err(|why| format!("the plugin {} can't be loaded: {why}", bound.name))?;
            let stand_in = match bound.failure_policy {
                PluginFailurePolicy::Fail => StandIn::None,
                PluginFailurePolicy::Skip => StandIn::Skip,
                PluginFailurePolicy::Default => StandIn::Own(default_weight),
                PluginFailurePolicy::Previous => previous.clone().map_or(StandIn::None, StandIn::Previous),
            };
            Ok(policy.clone().map(|policy| SetPlugin { policy, weight: f64::from(bound.weight), stand_in }))
        };
        let plugins = line.into_iter().filter_map(|plugin| scorer(plugin).transpose()).collect::<Result<_, String>>()?;
        Ok(SetScorers { digest: Arc::clone(&self.digest), own, plugins })
    }
}

/// Whether it is the built-in policy, which the profile's own scorers replace.
fn is_builtin(bound: &PolicySetPlugin) -> bool {
    bound.name == name(PolicyPoint::SchedulingScoring)
}

/// Whether a selection depends on labels of namespaces, which a picker doesn't know because it reads no Namespaces.
fn needs_namespace(selection: &Selection) -> bool {
    let mut keys = selection.namespace_selector.iter().flat_map(|selector| {
        let expressions = selector.match_expressions.iter().flatten().map(|requirement| &requirement.key);
        selector.match_labels.iter().flat_map(|labels| labels.keys()).chain(expressions)
    });
    keys.any(|key| key != NAMESPACE_NAME)
}

/// The policy sets that score pools' endpoints, for the page of metrics.
#[derive(Debug)]
pub struct SetInfo(pub Vec<Arc<Pool>>);

impl Collector for SetInfo {
    fn encode(&self, mut page: DescriptorEncoder<'_>) -> fmt::Result {
        let digest = |pool: &Arc<Pool>| pool.policies().set.as_ref().map(|set| Arc::clone(set.digest()));
        let digests: BTreeSet<Arc<str>> = self.0.iter().filter_map(digest).collect();
        let info = digests.iter().map(|digest| ([("digest", &**digest)], ConstGauge::new(1_u64)));
        family(&mut page, "pointsman_policy_set_info", "The digest of the policy set whose plugins score endpoints.", info)
    }
}
