//! A component that is linked and can be asked, through the types of `point`.

use super::{
    binary::{LOG, PACKAGE, VERSION},
    call::{CallError, Sandbox, Spent, State},
    limits::WARM_CALLS,
    point::{
        Failure, Reason,
        describe::{Description, Point},
        propagation, scoring, selection, templating,
    },
    wasi::preview2,
};
use crate::{sync::locked, text::told};
use std::{fmt, sync::Mutex};
use wasmtime::{
    Store, StoreContextMut,
    component::{Component, ComponentExportIndex, ComponentType, Instance, InstancePre, Lift, Linker},
};

/// How much a line of the log matters.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, unsafe_code)] // They come from plugins only; wasmtime's derive implements its own unsafe traits.
enum Level {
    #[component(name = "debug")]
    Debug,
    #[component(name = "info")]
    Info,
    #[component(name = "warn")]
    Warn,
}

impl From<Level> for tracing::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::Debug => Self::DEBUG,
            Level::Info => Self::INFO,
            Level::Warn => Self::WARN,
        }
    }
}

/// A component in its sandbox.
pub(super) struct Linked {
    sandbox: Sandbox,
    pre: InstancePre<State>,
    functions: Functions,
    config: String,
    /// Where instances are kept between calls, if they are.
    warm: Option<Mutex<Vec<Warm>>>,
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").field("sandbox", &self.sandbox).field("warm", &self.warm.is_some()).finish_non_exhaustive()
    }
}

/// An instance that has answered without a fault.
struct Warm {
    store: Store<State>,
    instance: Instance,
    calls: u32,
}

/// Where its functions are: looked up once.
struct Functions {
    describe: Option<ComponentExportIndex>,
    configure: Option<ComponentExportIndex>,
    judge: Option<ComponentExportIndex>,
    template: Option<ComponentExportIndex>,
    propagate: Option<ComponentExportIndex>,
    score: Option<ComponentExportIndex>,
    explain: Option<ComponentExportIndex>,
}

impl Functions {
    fn of(component: &Component) -> Self {
        let find = |interface: &str, function: &str| {
            let interface = component.get_export_index(None, format!("{PACKAGE}/{interface}@{VERSION}"))?;
            component.get_export_index(Some(&interface), function)
        };
        Self {
            describe: find("plugin", "describe"),
            configure: find("plugin", "configure"),
            judge: find(Point::RuntimeSelection.name(), "judge"),
            template: find(Point::PodTemplating.name(), "template"),
            propagate: find(Point::MetadataPropagation.name(), "propagate"),
            score: find(Point::SchedulingScoring.name(), "score"),
            explain: find(Point::SchedulingScoring.name(), "explain"),
        }
    }
}

fn found(index: Option<&ComponentExportIndex>, interface: &'static str) -> Result<ComponentExportIndex, CallError> {
    index.copied().ok_or(CallError::NotAnswered(interface))
}

impl Drop for Linked {
    fn drop(&mut self) {
        let kept = self.warm.as_ref().map_or(0, |warm| locked(warm).len());
        self.sandbox.engines.cooled(u32::try_from(kept).unwrap_or(u32::MAX));
    }
}

impl Linked {
    /// Links a component that was compiled by the sandbox's engine.
    pub(super) fn new(sandbox: Sandbox, component: &Component, config: &str, warm: bool) -> Result<Self, CallError> {
        let pre = link(&sandbox, component).map_err(|error| CallError::Instantiate(told(&format!("{error:#}"))))?;
        let functions = Functions::of(component);
        Ok(Self { sandbox, pre, functions, config: config.to_owned(), warm: warm.then(Mutex::default) })
    }

    /// Asks an instance: a fresh one, so that nothing of one question is left for the next, unless they are kept warm.
    fn ask<Answer>(
        &self,
        configured: bool,
        question: impl FnOnce(&mut Store<State>, &Instance) -> wasmtime::Result<Answer>,
    ) -> Result<(Answer, Spent), CallError> {
        let entered = self.sandbox.enter()?;
        let warm = self.warm.as_ref().filter(|_| configured);
        let kept = warm.and_then(|warm| locked(warm).pop());
        self.sandbox.engines.cooled(u32::from(kept.is_some()));
        let (mut store, mut instance, calls) = match kept {
            Some(Warm { store, instance, calls }) => (store, Some(instance), calls),
            None => (self.sandbox.store(), None, 0),
        };
        let answer = self.sandbox.run(&entered, &mut store, |store| {
            let instance = if let Some(instance) = instance {
                instance
            } else {
                let made = self.pre.instantiate(&mut *store)?;
                if configured && let Err(refusal) = self.configure(store, &made)? {
                    return Ok(Err(refusal));
                }
                *instance.insert(made)
            };
            question(store, &instance).map(Ok)
        })?;
        // Here it has neither trapped nor failed otherwise.
        if let (Some(warm), Some(instance)) = (warm, instance)
            && calls + 1 < WARM_CALLS
            && self.sandbox.engines.warmed()
        {
            locked(warm).push(Warm { store, instance, calls: calls + 1 });
        }
        Ok(answer)
    }

    fn configure(&self, store: &mut Store<State>, instance: &Instance) -> wasmtime::Result<Result<(), CallError>> {
        let Some(index) = self.functions.configure else { return Ok(Err(CallError::NotAnswered("plugin"))) };
        let configure = instance.get_typed_func::<(&str,), (Result<(), String>,)>(&mut *store, index)?;
        let (taken,) = configure.call(store, (&self.config,))?;
        Ok(taken.map_err(|refusal| CallError::Config(told(&refusal))))
    }

    /// What it says of itself. It isn't configured for that.
    pub(super) fn describe(&self) -> Result<(Description, Spent), CallError> {
        let index = found(self.functions.describe.as_ref(), "plugin")?;
        self.ask(false, |store, instance| {
            let ((description,),) = (instance.get_typed_func::<(), (Description,)>(&mut *store, index)?.call(&mut *store, ())?,);
            // Whether the functions have the types that we know shows here and not at the first question.
            let functions = &self.functions;
            if let Some(judge) = functions.judge {
                instance.get_typed_func::<(selection::Request<'_>,), (Result<Vec<selection::Verdict>, Failure>,)>(&mut *store, judge)?;
            }
            if let Some(template) = functions.template {
                instance.get_typed_func::<(templating::Request<'_>,), (Result<templating::Answer, Failure>,)>(&mut *store, template)?;
            }
            if let Some(propagate) = functions.propagate {
                instance.get_typed_func::<(propagation::Request<'_>,), (Result<propagation::Answer, Failure>,)>(&mut *store, propagate)?;
            }
            if let Some(score) = functions.score {
                instance.get_typed_func::<Scored<'_>, (Result<Vec<f64>, Failure>,)>(&mut *store, score)?;
            }
            if let Some(explain) = functions.explain {
                instance.get_typed_func::<Explained<'_>, (Vec<Reason>,)>(&mut *store, explain)?;
            }
            Ok(description)
        })
    }

    /// Whether it takes its configuration.
    pub(super) fn takes_config(&self) -> Result<Spent, CallError> {
        self.ask(true, |_, _| Ok(())).map(|((), spent)| spent)
    }

    pub(super) fn judge(&self, request: selection::Request<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        let index = found(self.functions.judge.as_ref(), "runtime-selection")?;
        answered(self.ask(true, |store, instance| {
            let judge = instance.get_typed_func::<_, (Result<_, Failure>,)>(&mut *store, index)?;
            judge.call(store, (request,)).map(|(answer,)| answer)
        })?)
    }

    pub(super) fn template(&self, request: templating::Request<'_>) -> Result<(templating::Answer, Spent), CallError> {
        let index = found(self.functions.template.as_ref(), "pod-templating")?;
        answered(self.ask(true, |store, instance| {
            let template = instance.get_typed_func::<_, (Result<_, Failure>,)>(&mut *store, index)?;
            template.call(store, (request,)).map(|(answer,)| answer)
        })?)
    }

    pub(super) fn propagate(&self, request: propagation::Request<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        let index = found(self.functions.propagate.as_ref(), "metadata-propagation")?;
        answered(self.ask(true, |store, instance| {
            let propagate = instance.get_typed_func::<_, (Result<_, Failure>,)>(&mut *store, index)?;
            propagate.call(store, (request,)).map(|(answer,)| answer)
        })?)
    }

    pub(super) fn score(&self, request: scoring::Request<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        let index = found(self.functions.score.as_ref(), "scheduling-scoring")?;
        answered(self.ask(true, |store, instance| {
            let score = instance.get_typed_func::<Scored<'_>, (Result<_, Failure>,)>(&mut *store, index)?;
            score.call(store, (request.question, request.columns, request.matrix)).map(|(answer,)| answer)
        })?)
    }

    pub(super) fn explain(&self, request: scoring::Request<'_>, row: u32) -> Result<(Vec<Reason>, Spent), CallError> {
        let index = found(self.functions.explain.as_ref(), "scheduling-scoring")?;
        self.ask(true, |store, instance| {
            let explain = instance.get_typed_func::<Explained<'_>, (Vec<Reason>,)>(&mut *store, index)?;
            explain.call(store, (request.question, request.columns, request.matrix, row)).map(|(reasons,)| reasons)
        })
    }
}

type Scored<'a> = (super::point::Question, u32, &'a [f64]);
type Explained<'a> = (super::point::Question, u32, &'a [f64], u32);

fn answered<Answer>((answer, spent): (Result<Answer, Failure>, Spent)) -> Result<(Answer, Spent), CallError> {
    Ok((answer.map_err(|failure| CallError::Failed(told(&failure.message)))?, spent))
}

fn link(sandbox: &Sandbox, component: &Component) -> wasmtime::Result<InstancePre<State>> {
    let mut linker = Linker::<State>::new(sandbox.engines.of(sandbox.use_));
    linker.instance(&format!("{PACKAGE}/types@{VERSION}"))?;
    linker.instance(&format!("{PACKAGE}/{LOG}@{VERSION}"))?.func_wrap(
        "write",
        |mut store: StoreContextMut<'_, State>, (level, message): (Level, String)| {
            store.data_mut().count_host_call()?;
            store.data_mut().keep_line(level.into(), message);
            Ok(())
        },
    )?;
    preview2::define(&mut linker, component)?;
    linker.instantiate_pre(component)
}
