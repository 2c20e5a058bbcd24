//! A linked component, and calls to it with the types of `point`.

use super::{
    binary::{LOG, PACKAGE, TYPES, Version},
    call::{CallError, CallState, Sandbox, Spent},
    engine::Lane,
    limits::WARM_CALLS,
    point::{
        Failure, Question, Reason,
        describe::{Description, Point},
        propagation,
        scoring::{self, Term},
        selection, templating, v0_1,
    },
    wasi::preview2,
};
use crate::{sync::locked, text::printable_line};
use std::{fmt, sync::Mutex};
use wasmtime::{
    Store, StoreContextMut,
    component::{Component, ComponentExportIndex, ComponentNamedList, ComponentType, Instance, InstancePre, Lift, Linker, Lower},
};

/// The severity of a log line.
#[derive(Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[allow(dead_code, unsafe_code)] // Only plugins create its values; wasmtime's derive implements its own unsafe traits.
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
    pre: InstancePre<CallState>,
    version: Version,
    functions: PointExports,
    config: String,
    /// The warm instances, if the plugin's instances are reused.
    warm: Option<Mutex<Vec<WarmInstance>>>,
}

impl fmt::Debug for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Linked").field("sandbox", &self.sandbox).field("warm", &self.warm.is_some()).finish_non_exhaustive()
    }
}

/// An instance that has answered without a fault.
struct WarmInstance {
    store: Store<CallState>,
    instance: Instance,
    calls: u32,
}

/// The indices of the functions, looked up once.
struct PointExports {
    describe: Option<ComponentExportIndex>,
    configure: Option<ComponentExportIndex>,
    judge: Option<ComponentExportIndex>,
    template: Option<ComponentExportIndex>,
    propagate: Option<ComponentExportIndex>,
    score: Option<ComponentExportIndex>,
    explain: Option<ComponentExportIndex>,
}

impl PointExports {
    fn find_exports(component: &Component, version: Version) -> Self {
        let find = |interface: &str, function: &str| {
            let interface = component.get_export_index(None, version.interface(interface))?;
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
    /// Links a component that the sandbox's engine compiled, for calls with a version that it exports.
    pub(super) fn new(sandbox: Sandbox, component: &Component, version: Version, config: &str, warm: bool) -> Result<Self, CallError> {
        let pre = link(&sandbox, component).map_err(|error| CallError::Instantiate(printable_line(&format!("{error:#}"))))?;
        let functions = PointExports::find_exports(component, version);
        Ok(Self { sandbox, pre, version, functions, config: config.to_owned(), warm: warm.then(Mutex::default) })
    }

    /// Calls an instance: a warm one if instances are reused; otherwise a new one, so that nothing from one question remains for the next.
    fn ask<Answer>(
        &self,
        configured: bool,
        question: impl FnOnce(&mut Store<CallState>, &Instance) -> wasmtime::Result<Answer>,
    ) -> Result<(Answer, Spent), CallError> {
        let entered = self.sandbox.enter(Lane::Work)?;
        let warm = self.warm.as_ref().filter(|_| configured);
        let kept = warm.and_then(|warm| locked(warm).pop());
        self.sandbox.engines.cooled(u32::from(kept.is_some()));
        let (mut store, mut instance, calls) = match kept {
            Some(WarmInstance { store, instance, calls }) => (store, Some(instance), calls),
            None => (self.sandbox.store(), None, 0),
        };
        let starting = (warm.is_some() && instance.is_none()).then(|| self.sandbox.starting());
        let answer = starting.as_ref().unwrap_or(&self.sandbox).run(&entered, &mut store, |store| {
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
        // At this point, the instance has neither trapped nor failed.
        if let (Some(warm), Some(instance)) = (warm, instance)
            && calls + 1 < WARM_CALLS
            && self.sandbox.engines.warmed()
        {
            locked(warm).push(WarmInstance { store, instance, calls: calls + 1 });
        }
        Ok(answer)
    }

    fn configure(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<Result<(), CallError>> {
        let Some(index) = self.functions.configure else { return Ok(Err(CallError::NotAnswered("plugin"))) };
        let configure = instance.get_typed_func::<(&str,), (Result<(), String>,)>(&mut *store, index)?;
        let (taken,) = configure.call(store, (&self.config,))?;
        Ok(taken.map_err(|refusal| CallError::Config(printable_line(&refusal))))
    }

    /// The component's description of itself. This needs no configuration.
    pub(super) fn describe(&self) -> Result<(Description, Spent), CallError> {
        let index = found(self.functions.describe.as_ref(), "plugin")?;
        self.ask(false, |store, instance| {
            let ((description,),) = (instance.get_typed_func::<(), (Description,)>(&mut *store, index)?.call(&mut *store, ())?,);
            // Detects functions with unexpected types here, not only at the first question.
            self.check_types(store, instance).map_err(|error| self.unlike(error))?;
            Ok(description)
        })
    }

    /// Checks that the component accepts its configuration.
    pub(super) fn takes_config(&self) -> Result<Spent, CallError> {
        self.ask(true, |_, _| Ok(())).map(|((), spent)| spent)
    }

    /// Checks that the exported functions have the types of the version.
    fn check_types(&self, store: &mut Store<CallState>, instance: &Instance) -> wasmtime::Result<()> {
        let mut functions = Checked { store, instance };
        let PointExports { judge, template, propagate, score, explain, .. } = &self.functions;
        match self.version {
            Version::Draft => {
                functions.check::<(selection::RequestRef<'_>,), Answer<Vec<selection::Verdict>, Failure>>(judge.as_ref())?;
                functions.check::<(templating::RequestRef<'_>,), Answer<templating::Answer, Failure>>(template.as_ref())?;
                functions.check::<(propagation::RequestRef<'_>,), Answer<propagation::Answer, Failure>>(propagate.as_ref())?;
                functions.check::<(scoring::RequestRef<'_>,), Answer<Vec<f64>, Failure>>(score.as_ref())?;
                functions.check::<(scoring::RequestRef<'_>, u32), Answer<Vec<Term>, Failure>>(explain.as_ref())
            }
            Version::V0_1 => {
                functions.check::<(v0_1::Selecting<'_>,), Answer<Vec<v0_1::Verdict>, v0_1::Failure>>(judge.as_ref())?;
                functions.check::<(v0_1::Templating<'_>,), Answer<v0_1::Templated, v0_1::Failure>>(template.as_ref())?;
                functions.check::<(v0_1::Propagating<'_>,), Answer<propagation::Answer, v0_1::Failure>>(propagate.as_ref())?;
                functions.check::<(Question, u32, &[f64]), Answer<Vec<f64>, v0_1::Failure>>(score.as_ref())?;
                functions.check::<(Question, u32, &[f64], u32), (Vec<Reason>,)>(explain.as_ref())
            }
        }
    }

    /// Explains a type that differs from ours: a draft may have changed since the plugin was built.
    fn unlike(&self, error: wasmtime::Error) -> wasmtime::Error {
        if !self.version.is_draft() {
            return error;
        }
        let number = self.version.number();
        let sentence =
            format!("it is built for another state of the draft {number}: build it again with the interfaces of this release ({error:#})");
        wasmtime::Error::new(CallError::Version(printable_line(&sentence)))
    }

    /// Calls one of its functions.
    fn call<Asked, Given, Excuse>(
        &self,
        (function, interface): (Option<&ComponentExportIndex>, Point),
        asked: Asked,
    ) -> Result<(Given, Spent), CallError>
    where
        Asked: ComponentNamedList + Lower,
        Given: ComponentType + Lift + 'static,
        Excuse: ComponentType + Lift + Into<Failure> + 'static,
    {
        let index = found(function, interface.name())?;
        let (answer, spent) = self.ask(true, |store, instance| {
            let function = instance.get_typed_func::<Asked, Answer<Given, Excuse>>(&mut *store, index)?;
            function.call(store, asked).map(|(answer,)| answer)
        })?;
        Ok((answer.map_err(|excuse| CallError::from(excuse.into()))?, spent))
    }

    pub(super) fn judge(&self, request: selection::RequestRef<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        let function = (self.functions.judge.as_ref(), Point::RuntimeSelection);
        match self.version {
            Version::Draft => self.call::<_, _, Failure>(function, (request,)),
            Version::V0_1 => {
                let (verdicts, spent) = self.call::<_, Vec<v0_1::Verdict>, v0_1::Failure>(function, (v0_1::Selecting::from(request),))?;
                Ok((verdicts.into_iter().map(Into::into).collect(), spent))
            }
        }
    }

    pub(super) fn template(&self, request: templating::RequestRef<'_>) -> Result<(templating::Answer, Spent), CallError> {
        let function = (self.functions.template.as_ref(), Point::PodTemplating);
        match self.version {
            Version::Draft => self.call::<_, _, Failure>(function, (request,)),
            Version::V0_1 => {
                let (answer, spent) = self.call::<_, v0_1::Templated, v0_1::Failure>(function, (v0_1::Templating::from(request),))?;
                Ok((answer.into(), spent))
            }
        }
    }

    pub(super) fn propagate(&self, request: propagation::RequestRef<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        let function = (self.functions.propagate.as_ref(), Point::MetadataPropagation);
        match self.version {
            Version::Draft => self.call::<_, _, Failure>(function, (request,)),
            Version::V0_1 => self.call::<_, _, v0_1::Failure>(function, (v0_1::Propagating::from(request),)),
        }
    }

    pub(super) fn score(&self, request: scoring::RequestRef<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        let function = (self.functions.score.as_ref(), Point::SchedulingScoring);
        match self.version {
            Version::Draft => self.call::<_, _, Failure>(function, (request,)),
            Version::V0_1 => self.call::<_, _, v0_1::Failure>(function, v0_1::Scoring::from(request).arguments()),
        }
    }

    pub(super) fn explain(&self, request: scoring::RequestRef<'_>, row: u32) -> Result<(Vec<Term>, Spent), CallError> {
        let function = self.functions.explain.as_ref();
        match self.version {
            Version::Draft => self.call::<_, _, Failure>((function, Point::SchedulingScoring), (request, row)),
            Version::V0_1 => {
                let index = found(function, Point::SchedulingScoring.name())?;
                let (question, columns, matrix) = v0_1::Scoring::from(request).arguments();
                let (reasons, spent) = self.ask(true, |store, instance| {
                    let explain = instance.get_typed_func::<(Question, u32, &[f64], u32), (Vec<Reason>,)>(&mut *store, index)?;
                    explain.call(store, (question, columns, matrix, row)).map(|(reasons,)| reasons)
                })?;
                Ok((reasons.into_iter().map(Into::into).collect(), spent))
            }
        }
    }

    /// The version for calls.
    pub(super) fn version(&self) -> Version {
        self.version
    }
}

/// The result of an interface's function.
type Answer<Given, Excuse> = (Result<Given, Excuse>,);

/// An instance whose functions are checked.
struct Checked<'a> {
    store: &'a mut Store<CallState>,
    instance: &'a Instance,
}

impl Checked<'_> {
    /// Checks that a function, if it exists, has these types.
    fn check<Asked, Given>(&mut self, function: Option<&ComponentExportIndex>) -> wasmtime::Result<()>
    where
        Asked: ComponentNamedList + Lower,
        Given: ComponentNamedList + Lift,
    {
        match function {
            Some(function) => self.instance.get_typed_func::<Asked, Given>(&mut *self.store, function).map(|_| ()),
            None => Ok(()),
        }
    }
}

fn link(sandbox: &Sandbox, component: &Component) -> wasmtime::Result<InstancePre<CallState>> {
    let mut linker = Linker::<CallState>::new(sandbox.engines.for_use(sandbox.use_));
    // This includes versions that we don't support: types are harmless.
    let types = format!("{PACKAGE}/{TYPES}@");
    for (name, _) in component.component_type().imports(sandbox.engines.for_use(sandbox.use_)).filter(|(name, _)| name.starts_with(&types))
    {
        linker.instance(name)?;
    }
    for version in Version::ALL {
        linker.instance(&version.interface(LOG))?.func_wrap(
            "write",
            |mut store: StoreContextMut<'_, CallState>, (level, message): (Level, String)| {
                store.data_mut().count_host_call()?;
                store.data_mut().log(level.into(), message);
                Ok(())
            },
        )?;
    }
    preview2::define(&mut linker, component)?;
    linker.instantiate_pre(component)
}
