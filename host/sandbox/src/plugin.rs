//! A loaded plugin of any form, and the calls to it.

use super::{
    binary::Version,
    call::{CallError, Sandbox, Spent},
    command::Command,
    compile::Code,
    component::Linked,
    engine::{Engines, Use},
    limits::Limits,
    point::{
        describe::Description,
        propagation,
        scoring::{self, Term},
        selection, templating,
    },
};
use std::sync::Arc;

/// A plugin, ready to be called. It is cheap to clone, because clones share everything.
#[derive(Clone, Debug)]
pub struct Plugin(Arc<PluginForm>);

#[derive(Debug)]
enum PluginForm {
    Component(Linked),
    Command(Command),
}

/// What happens to an instance after its call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Instances {
    /// It is dropped, so that nothing from one question remains for the next.
    #[default]
    Fresh,
    /// It is reused until it traps or has answered `WARM_CALLS` questions.
    Warm,
}

impl Plugin {
    /// Links code that the engine for `use_` compiled, for calls with a version that the plugin supports. Instances of a command are never
    /// reused: each answers one question.
    pub fn new(
        engines: &Arc<Engines>,
        use_: Use,
        (code, version): (&Code, Version),
        config: &str,
        limits: Limits,
        instances: Instances,
    ) -> Result<Self, CallError> {
        let sandbox = Sandbox { engines: Arc::clone(engines), use_, limits };
        let kind = match code {
            Code::Component(component) => {
                PluginForm::Component(Linked::new(sandbox, component, version, config, instances == Instances::Warm)?)
            }
            Code::Command(module) => PluginForm::Command(Command::new(sandbox, module, version, config)?),
        };
        Ok(Self(Arc::new(kind)))
    }

    /// The plugin's description of itself. This needs no configuration.
    pub fn describe(&self) -> Result<(Description, Spent), CallError> {
        match &*self.0 {
            PluginForm::Component(component) => component.describe(),
            PluginForm::Command(command) => command.describe(),
        }
    }

    /// The version for calls: for a component, the version that it was linked for; for a command, the newest that it reports and that the
    /// host may use.
    pub fn version(&self, drafts: bool) -> Result<Version, CallError> {
        match &*self.0 {
            PluginForm::Component(component) => Ok(component.version()),
            PluginForm::Command(command) => command.newest(drafts),
        }
    }

    /// Checks that the plugin accepts its configuration.
    pub fn takes_config(&self) -> Result<Spent, CallError> {
        match &*self.0 {
            PluginForm::Component(component) => component.takes_config(),
            PluginForm::Command(command) => command.takes_config(),
        }
    }

    /// Returns a verdict for every candidate.
    pub fn judge(&self, request: selection::RequestRef<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        let (verdicts, spent) = match &*self.0 {
            PluginForm::Component(component) => component.judge(request),
            PluginForm::Command(command) => command.judge(request),
        }?;
        let (given, asked) = (verdicts.len(), request.candidates.len());
        if given != asked {
            return Err(CallError::Nonsense(format!("{given} verdicts for {asked} candidates")));
        }
        let finite = |number: &f64| number.is_finite();
        for (verdict, candidate) in verdicts.iter().zip(request.candidates) {
            if let selection::Verdict::Eligible(eligible) = verdict
                && !(finite(&eligible.score) && eligible.tie_break.iter().all(finite))
            {
                return Err(CallError::Nonsense(format!("the score of {} isn't a finite number", candidate.name)));
            }
        }
        Ok((verdicts, spent))
    }

    /// Returns the operations that complete a pod's template.
    pub fn template(&self, request: templating::RequestRef<'_>) -> Result<(templating::Answer, Spent), CallError> {
        match &*self.0 {
            PluginForm::Component(component) => component.template(request),
            PluginForm::Command(command) => command.template(request),
        }
    }

    /// Returns the labels and annotations of a target.
    pub fn propagate(&self, request: propagation::RequestRef<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        match &*self.0 {
            PluginForm::Component(component) => component.propagate(request),
            PluginForm::Command(command) => command.propagate(request),
        }
    }

    /// Returns a score for every row.
    pub fn score(&self, request: scoring::RequestRef<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        let (scores, spent) = match &*self.0 {
            PluginForm::Component(component) => component.score(request),
            PluginForm::Command(command) => command.score(request),
        }?;
        let (given, asked) = (scores.len(), request.rows());
        if given != asked {
            return Err(CallError::Nonsense(format!("{given} scores for {asked} candidates")));
        }
        Ok((scores, spent))
    }

    /// Explains the score of a row.
    pub fn explain(&self, request: scoring::RequestRef<'_>, row: u32) -> Result<(Vec<Term>, Spent), CallError> {
        match &*self.0 {
            PluginForm::Component(component) => component.explain(request, row),
            PluginForm::Command(command) => command.explain(request, row),
        }
    }
}
