//! Turns bytes and a binding into a plugin that can be called, or into a sentence with the reason why not.

use pointsman_core::{
    decide::{
        member::{Conditions, Member},
        scoring,
    },
    placement::settings,
    point::{answered, name},
    rules::{
        fields,
        rule::{Rule, RuleError, conditions},
    },
    selector,
};
use pointsman_crds::policy::{
    plugin::{PluginInstances, PluginLimits, PolicyPoint},
    set::{PolicySetPlugin, PolicySetRule},
};
use pointsman_sandbox::{
    binary::Version,
    call::CallError,
    compile::{CompileError, Compiled, Compilers},
    engine::{Engines, Use},
    evaluator::Evaluator,
    limits::{HOT_DEADLINE, LARGEST_BOUND_CONFIG, Limits, RequestedLimits},
    plugin::{Instances, Plugin},
    point::{
        Question,
        describe::{Description, flaw},
    },
    schema::{ConfigError, check_config},
};
use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

/// Why a plugin can't be part of a policy set.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The bytes are no plugin, or can't be compiled.
    #[error("{0}")]
    Compile(#[from] CompileError),
    /// The plugin can't describe itself.
    #[error("call of `describe`: {0}")]
    Describe(CallError),
    /// The plugin's description of itself is wrong.
    #[error("{0}")]
    Description(String),
    /// The plugin supports no version of the interfaces that this host supports.
    #[error("{0}")]
    Version(CallError),
    /// It is bound to a point at which it doesn't answer.
    #[error("spec.points: the plugin doesn't answer at {}; it supports {}", name(*.0), names(.1))]
    Points(PolicyPoint, Vec<PolicyPoint>),
    /// The binding is invalid.
    #[error("{0}")]
    Binding(String),
    /// Its conditions can't be evaluated.
    #[error("{0}")]
    Conditions(RuleError),
    /// Its configuration doesn't fit.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// It can't be instantiated with its configuration.
    #[error("call of `configure`: {0}")]
    Configure(CallError),
}

impl LoadError {
    /// A CamelCase reason for the error.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Compile(error) => error.reason(),
            Self::Version(_) => "NoPlugin",
            Self::Describe(error) | Self::Configure(error) => error.reason(),
            Self::Description(_) => "InvalidDescription",
            Self::Points(..) => "PointNotAnswered",
            Self::Binding(_) | Self::Conditions(_) => "InvalidSpec",
            Self::Config(error) => error.reason(),
        }
    }
}

impl LoadError {
    /// Whether the same bytes may load at another time: the failure is this machine's at this moment.
    pub fn passing(&self) -> bool {
        match self {
            Self::Compile(error) => matches!(error, CompileError::Process(_) | CompileError::TooLong(_)),
            Self::Config(error) => matches!(error, ConfigError::Process(_) | ConfigError::TooLong(_)),
            Self::Describe(error) | Self::Version(error) | Self::Configure(error) => {
                matches!(error, CallError::Busy | CallError::Deadline(_))
            }
            Self::Conditions(error) => error.passing(),
            Self::Description(_) | Self::Points(..) | Self::Binding(_) => false,
        }
    }
}

fn limits(asked: &PluginLimits) -> Result<Limits, String> {
    let PluginLimits { memory, output, fuel, deadline } = asked;
    Limits::from_requested(RequestedLimits {
        memory: memory.as_deref(),
        output: output.as_deref(),
        fuel: *fuel,
        deadline: deadline.as_deref(),
    })
}

fn names(points: &[PolicyPoint]) -> String {
    points.iter().map(|point| name(*point)).collect::<Vec<_>>().join(", ")
}

/// Loads plugins and rules.
#[derive(Debug)]
pub struct Loader {
    engines: Arc<Engines>,
    compilers: Compilers,
    /// The deadline of a call at a hot point, unless the binding has one.
    hot_deadline: Duration,
    /// Loaded with the first rule.
    evaluator: OnceLock<Result<Arc<Evaluator>, String>>,
}

/// A plugin's code, before it is bound to anything.
#[derive(Debug)]
pub struct Described {
    /// The plugin's description of itself.
    pub description: Description,
    /// The version of the interfaces by which it is called.
    pub version: Version,
    /// The policy points whose interfaces its binary exports.
    pub exports: Vec<String>,
}

impl Loader {
    /// Creates a loader with engines and compilers.
    pub fn new(engines: Arc<Engines>, compilers: Compilers) -> Self {
        Self { engines, compilers, hot_deadline: HOT_DEADLINE, evaluator: OnceLock::new() }
    }

    /// Sets another deadline for calls at hot points whose binding has none.
    #[must_use]
    pub fn with_hot_deadline(self, hot_deadline: Duration) -> Self {
        Self { hot_deadline, ..self }
    }

    /// The deadline of calls at hot points whose binding has none.
    pub fn hot_deadline(&self) -> Duration {
        self.hot_deadline
    }

    /// The evaluator of rules. Blocks while it is compiled.
    pub fn evaluator(&self) -> Result<Arc<Evaluator>, String> {
        let made = || Evaluator::new(&self.engines, &self.compilers).map(Arc::new);
        self.evaluator.get_or_init(made).clone().map_err(|why| format!("the CEL evaluator can't be loaded: {why}"))
    }

    /// The engines that the loader's plugins run in.
    pub fn engines(&self) -> &Arc<Engines> {
        &self.engines
    }

    /// Loads a rule. Blocks for some milliseconds, and the first time for longer.
    pub fn rule(&self, bound: PolicySetRule) -> Result<Rule, RuleError> {
        let evaluator = self.evaluator().map_err(RuleError::Evaluator)?;
        Rule::load(bound, &evaluator, fields::shapes())
    }

    /// A plugin's description of itself. Blocks while it is compiled.
    pub fn describe(&self, bytes: &[u8], limits: Limits) -> Result<Described, LoadError> {
        let compiled = self.compilers.load(&self.engines, Use::ControlPlane, bytes)?;
        let Compiled { code, version, drafts, points, .. } = &compiled;
        let plugin = Plugin::new(&self.engines, Use::ControlPlane, (code, *version), "{}", limits, Instances::Fresh);
        let plugin = plugin.map_err(LoadError::Describe)?;
        let (description, _) = plugin.describe().map_err(LoadError::Describe)?;
        let version = plugin.version(*drafts).map_err(LoadError::Version)?;
        if let Some(wrong) = flaw(&description, points) {
            return Err(LoadError::Description(wrong));
        }
        for set in &description.features {
            let known = scoring::features(set.question);
            // The features that administrators define are known only when a scheduler's extender runs with them; elsewhere they are NaN.
            let is_known =
                |feature: &str| known.contains(&feature) || set.question == Question::NodePlacement && settings::is_feature_name(feature);
            if let Some(unknown) = set.features.iter().find(|feature| !is_known(feature)) {
                let sentence = format!("it needs the feature {unknown:?}, which this host doesn't have; it has {}", known.join(", "));
                return Err(LoadError::Description(pointsman_sandbox::text::printable_line(&sentence)));
            }
        }
        Ok(Described { description, version, exports: compiled.points })
    }

    /// Loads a plugin as it is bound. The binding may leave out its points; the member lists the points at which it is called. Blocks while
    /// it is compiled.
    pub fn load(&self, mut bound: PolicySetPlugin, bytes: &[u8]) -> Result<Member, LoadError> {
        let limits = bound.limits.as_ref().map_or(Ok(Limits::DEFAULT), limits);
        let limits = limits.map_err(|why| LoadError::Binding(format!("spec.{why}")))?;
        if let Some((field, message)) = bound.selection.as_ref().and_then(selector::flaw) {
            return Err(LoadError::Binding(format!("{field}: {message}")));
        }
        let size = bound.config.as_ref().map_or(0, String::len);
        if size > LARGEST_BOUND_CONFIG {
            return Err(LoadError::Binding(format!("spec.config: it has {size} bytes; the limit is {LARGEST_BOUND_CONFIG}")));
        }
        let Described { description, version, .. } = self.describe(bytes, limits)?;
        let answered = answered(&description);
        if bound.points.is_empty() {
            bound.points.clone_from(&answered);
        }
        if let Some(other) = bound.points.iter().find(|point| !answered.contains(point)) {
            return Err(LoadError::Points(*other, answered));
        }
        bound.version = Some(pointsman_sandbox::text::printable_line(&description.version));

        let config = bound.config.as_deref().unwrap_or("{}");
        check_config(self.compilers.program(), &description.config_schema, config)?;
        let hot_limits = match bound.limits.as_ref().and_then(|limits| limits.deadline.as_ref()) {
            Some(_) => limits,
            None => Limits { deadline: self.hot_deadline, ..limits },
        };
        let plugin = |use_, limits, instances| -> Result<Plugin, LoadError> {
            let compiled = self.compilers.load(&self.engines, use_, bytes)?;
            let plugin = Plugin::new(&self.engines, use_, (&compiled.code, version), config, limits, instances);
            // Check its configuration here rather than at the first call.
            plugin.and_then(|plugin| plugin.takes_config().map(|_| plugin)).map_err(LoadError::Configure)
        };
        let (mut control_plane, mut hot) = (None, None);
        for point in &bound.points {
            if *point == PolicyPoint::SchedulingScoring {
                let instances = match bound.instances {
                    PluginInstances::Fresh => Instances::Fresh,
                    PluginInstances::Warm => Instances::Warm,
                };
                hot = Some(plugin(Use::Hot, hot_limits, instances)?);
            } else if control_plane.is_none() {
                control_plane = Some(plugin(Use::ControlPlane, limits, Instances::Fresh)?);
            }
        }
        let conditions = self.conditions(&bound)?;
        let member = Member::new(bound, description, control_plane, hot).map_err(|error| LoadError::Binding(error.to_string()))?;
        Ok(member.under(conditions))
    }

    /// A member whose bytes are missing. Its conditions still exclude subjects. Blocks as `load` does.
    pub fn absent(&self, bound: PolicySetPlugin, why: String) -> Member {
        let conditions = self.conditions(&bound).unwrap_or_default();
        Member::unloadable(bound, why).under(conditions)
    }

    /// Compiles a binding's matchConditions.
    fn conditions(&self, bound: &PolicySetPlugin) -> Result<Option<Conditions>, LoadError> {
        if bound.match_conditions.is_empty() {
            return Ok(None);
        }
        // A request waits at this point.
        if bound.points.contains(&PolicyPoint::SchedulingScoring) {
            let sentence = "spec.matchConditions: they aren't evaluated at scheduling-scoring; bind the plugin by match alone there";
            return Err(LoadError::Binding(sentence.to_owned()));
        }
        let evaluator = self.evaluator().map_err(LoadError::Binding)?;
        let program = conditions(bound, &evaluator, fields::shapes()).map_err(LoadError::Conditions)?;
        Ok(Some(Conditions { program, evaluator }))
    }
}
