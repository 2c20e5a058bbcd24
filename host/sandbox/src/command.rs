//! A command: a program that reads one question as JSON from stdin, and writes the answer as JSON to stdout. That is how
//! languages join in that make no components.

use super::{
    call::{CallError, Sandbox, Spent, State},
    point::{
        Failure, Reason,
        describe::Description,
        image::Answer,
        propagation,
        scoring::{self, Scores},
        selection, templating,
    },
    wasi::preview1::{self, Exited},
};
use crate::text::told;
use serde::{Serialize, de::DeserializeOwned, de::IgnoredAny};
use serde_json::Value;
use std::fmt;
use wasmtime::{InstancePre, Linker, Module, Store};

/// A command in its sandbox. Every question is a process of its own.
pub(super) struct Command {
    sandbox: Sandbox,
    pre: InstancePre<State>,
    config: Value,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("sandbox", &self.sandbox).field("config", &self.config).finish_non_exhaustive()
    }
}

/// What a command reads.
#[derive(Serialize)]
struct Asked<'a, Request> {
    call: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
}

impl Command {
    /// Links a module that was compiled by the sandbox's engine.
    pub(super) fn new(sandbox: Sandbox, module: &Module, config: &str) -> Result<Self, CallError> {
        let config = serde_json::from_str(config).map_err(|error| CallError::Config(told(&format!("it is no JSON: {error}"))))?;
        let mut linker = Linker::new(sandbox.engines.of(sandbox.use_));
        let pre = preview1::define(&mut linker, module).and_then(|()| linker.instantiate_pre(module));
        let pre = pre.map_err(|error| CallError::Instantiate(told(&format!("{error:#}"))))?;
        Ok(Self { sandbox, pre, config })
    }

    pub(super) fn describe(&self) -> Result<(Description, Spent), CallError> {
        failing(self.run(&Asked { call: "describe", config: None, request: None::<()> })?)
    }

    pub(super) fn takes_config(&self) -> Result<Spent, CallError> {
        match self.run::<IgnoredAny, String>(&Asked { call: "configure", config: Some(&self.config), request: None::<()> })? {
            (Answer::Ok(_), spent) => Ok(spent),
            (Answer::Err(refusal), _) => Err(CallError::Config(told(&refusal))),
        }
    }

    pub(super) fn judge(&self, request: selection::Request<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        self.ask("judge", request)
    }

    pub(super) fn template(&self, request: templating::Request<'_>) -> Result<(templating::Answer, Spent), CallError> {
        self.ask("template", request)
    }

    pub(super) fn propagate(&self, request: propagation::Request<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        self.ask("propagate", request)
    }

    pub(super) fn score(&self, request: scoring::Request<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        self.ask::<Scores>("score", request).map(|(scores, spent)| (scores.0, spent))
    }

    pub(super) fn explain(&self, request: scoring::Request<'_>, row: u32) -> Result<(Vec<Reason>, Spent), CallError> {
        self.ask("explain", scoring::Request { row: Some(row), ..request })
    }

    fn ask<Image: DeserializeOwned>(&self, call: &'static str, request: impl Serialize) -> Result<(Image, Spent), CallError> {
        failing(self.run(&Asked { call, config: Some(&self.config), request: Some(request) })?)
    }

    fn run<Image: DeserializeOwned, Excuse: DeserializeOwned>(
        &self,
        asked: &Asked<'_, impl Serialize>,
    ) -> Result<(Answer<Image, Excuse>, Spent), CallError> {
        let stdin = serde_json::to_vec(asked).map_err(|error| CallError::Question(told(&error.to_string())))?;
        let entered = self.sandbox.enter()?;
        let mut store = self.sandbox.store();
        store.data_mut().stdin = stdin;
        let ((), spent) = self.sandbox.run(&entered, &mut store, |store| self.start(store))?;
        drop(entered);
        Ok((answer(&store.data().stdout)?, spent))
    }

    fn start(&self, store: &mut Store<State>) -> wasmtime::Result<Result<(), CallError>> {
        let ended = self
            .pre
            .instantiate(&mut *store)
            .and_then(|instance| instance.get_typed_func::<(), ()>(&mut *store, "_start"))
            .and_then(|start| start.call(&mut *store, ()));
        match ended {
            Ok(()) => Ok(Ok(())),
            Err(error) => match error.downcast_ref::<Exited>() {
                Some(Exited(0)) => Ok(Ok(())),
                Some(Exited(code)) => Ok(Err(store.data_mut().exited(*code))),
                None => Err(error),
            },
        }
    }
}

/// The answer on a command's stdout.
fn answer<Image: DeserializeOwned, Excuse: DeserializeOwned>(stdout: &[u8]) -> Result<Answer<Image, Excuse>, CallError> {
    if stdout.trim_ascii().is_empty() {
        return Err(CallError::Nonsense("there is nothing on its stdout".to_owned()));
    }
    serde_json::from_slice(stdout).map_err(|error| CallError::Nonsense(told(&format!("its stdout isn't the JSON of an answer: {error}"))))
}

fn failing<Image>((answer, spent): (Answer<Image, Failure>, Spent)) -> Result<(Image, Spent), CallError> {
    match answer {
        Answer::Ok(image) => Ok((image, spent)),
        Answer::Err(failure) => Err(CallError::Failed(told(&failure.message))),
    }
}
