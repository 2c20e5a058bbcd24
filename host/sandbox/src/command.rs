//! Commands: programs that read a question as JSON from stdin and write the answer as JSON to stdout. Languages that can't build components
//! use this form.

use super::{
    binary::{Refused, Version},
    call::{CallError, CallState, Sandbox, Spent},
    engine::Lane,
    point::{
        Failure, Reason,
        describe::Description,
        image::Answer,
        propagation,
        scoring::{self, Scores, Term},
        selection, templating, v0_1,
    },
    wasi::preview1::{self, Exited},
};
use crate::text::printable_line;
use serde::{Serialize, de::DeserializeOwned, de::IgnoredAny};
use serde_json::Value;
use std::fmt;
use wasmtime::{InstancePre, Linker, Module, Store};

/// A command in its sandbox. Each question starts a new process.
pub(super) struct Command {
    sandbox: Sandbox,
    pre: InstancePre<CallState>,
    version: Version,
    config: Value,
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Command").field("sandbox", &self.sandbox).field("config", &self.config).finish_non_exhaustive()
    }
}

/// The input of a command.
#[derive(Serialize)]
struct CommandQuestion<'a, Request> {
    call: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    config: Option<&'a Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    request: Option<Request>,
}

/// A question about one row.
#[derive(Serialize)]
struct Row<Request> {
    #[serde(flatten)]
    request: Request,
    row: u32,
}

impl Command {
    /// Links a module that the sandbox's engine compiled.
    pub(super) fn new(sandbox: Sandbox, module: &Module, version: Version, config: &str) -> Result<Self, CallError> {
        let config =
            serde_json::from_str(config).map_err(|error| CallError::Config(printable_line(&format!("it is not JSON: {error}"))))?;
        let mut linker = Linker::new(sandbox.engines.for_use(sandbox.use_));
        let pre = preview1::define(&mut linker, module).and_then(|()| linker.instantiate_pre(module));
        let pre = pre.map_err(|error| CallError::Instantiate(printable_line(&format!("{error:#}"))))?;
        Ok(Self { sandbox, pre, version, config })
    }

    /// The command's description, and the versions that it reports. Without a report, it is 0.1.0.
    fn described(&self) -> Result<(Description, Vec<String>, Spent), CallError> {
        let (mut image, spent): (Value, Spent) =
            failing::<_, Failure>(self.run(&CommandQuestion { call: "describe", interface: None, config: None, request: None::<()> })?)?;
        let spoken = image.as_object_mut().and_then(|fields| fields.remove("interfaces"));
        let spoken = spoken.map_or_else(|| Ok(vec![Version::V0_1.number().to_owned()]), serde_json::from_value).map_err(nonsense)?;
        Ok((serde_json::from_value(image).map_err(nonsense)?, spoken, spent))
    }

    pub(super) fn describe(&self) -> Result<(Description, Spent), CallError> {
        self.described().map(|(description, _, spent)| (description, spent))
    }

    /// The newest version that the command supports and that the host may use.
    pub(super) fn newest(&self, drafts: bool) -> Result<Version, CallError> {
        let (_, spoken, _) = self.described()?;
        let known = |number: &String| Version::parse(number);
        if let Some(newest) = spoken.iter().filter_map(known).filter(|version| drafts || !version.is_draft()).max() {
            return Ok(newest);
        }
        let refused = match spoken.iter().find_map(known) {
            Some(draft) => Refused::Draft(draft.number()),
            None => Refused::OtherVersion(spoken.join(", ")),
        };
        Err(CallError::Version(printable_line(&refused.to_string())))
    }

    pub(super) fn takes_config(&self) -> Result<Spent, CallError> {
        let asked = CommandQuestion { call: "configure", interface: self.interface(), config: Some(&self.config), request: None::<()> };
        match self.run::<IgnoredAny, String>(&asked)? {
            (Answer::Ok(_), spent) => Ok(spent),
            (Answer::Err(refusal), _) => Err(CallError::Config(printable_line(&refusal))),
        }
    }

    pub(super) fn judge(&self, request: selection::RequestRef<'_>) -> Result<(Vec<selection::Verdict>, Spent), CallError> {
        match self.version {
            Version::Draft => self.ask::<_, Failure>("judge", request),
            Version::V0_1 => {
                let (verdicts, spent) = self.ask::<Vec<v0_1::Verdict>, v0_1::Failure>("judge", v0_1::Selecting::from(request))?;
                Ok((verdicts.into_iter().map(Into::into).collect(), spent))
            }
        }
    }

    pub(super) fn template(&self, request: templating::RequestRef<'_>) -> Result<(templating::Answer, Spent), CallError> {
        match self.version {
            Version::Draft => self.ask::<_, Failure>("template", request),
            Version::V0_1 => {
                let (answer, spent) = self.ask::<v0_1::Templated, v0_1::Failure>("template", v0_1::Templating::from(request))?;
                Ok((answer.into(), spent))
            }
        }
    }

    pub(super) fn propagate(&self, request: propagation::RequestRef<'_>) -> Result<(propagation::Answer, Spent), CallError> {
        match self.version {
            Version::Draft => self.ask::<_, Failure>("propagate", request),
            Version::V0_1 => self.ask::<_, v0_1::Failure>("propagate", v0_1::Propagating::from(request)),
        }
    }

    pub(super) fn score(&self, request: scoring::RequestRef<'_>) -> Result<(Vec<f64>, Spent), CallError> {
        let (scores, spent) = match self.version {
            Version::Draft => self.ask::<Scores, Failure>("score", request),
            Version::V0_1 => self.ask::<Scores, v0_1::Failure>("score", v0_1::Scoring::from(request)),
        }?;
        Ok((scores.0, spent))
    }

    pub(super) fn explain(&self, request: scoring::RequestRef<'_>, row: u32) -> Result<(Vec<Term>, Spent), CallError> {
        match self.version {
            Version::Draft => self.ask::<_, Failure>("explain", Row { request, row }),
            Version::V0_1 => {
                let request = Row { request: v0_1::Scoring::from(request), row };
                let (reasons, spent) = self.ask::<Vec<Reason>, v0_1::Failure>("explain", request)?;
                Ok((reasons.into_iter().map(Into::into).collect(), spent))
            }
        }
    }

    /// The version in a question; absent for 0.1.0, because a command for 0.1.0 doesn't know the field.
    fn interface(&self) -> Option<&'static str> {
        (self.version > Version::V0_1).then(|| self.version.number())
    }

    fn ask<Image: DeserializeOwned, Excuse: DeserializeOwned + Into<Failure>>(
        &self,
        call: &'static str,
        request: impl Serialize,
    ) -> Result<(Image, Spent), CallError> {
        failing::<_, Excuse>(self.run(&CommandQuestion {
            call,
            interface: self.interface(),
            config: Some(&self.config),
            request: Some(request),
        })?)
    }

    fn run<Image: DeserializeOwned, Excuse: DeserializeOwned>(
        &self,
        asked: &CommandQuestion<'_, impl Serialize>,
    ) -> Result<(Answer<Image, Excuse>, Spent), CallError> {
        let stdin = serde_json::to_vec(asked).map_err(|error| CallError::Question(printable_line(&error.to_string())))?;
        let entered = self.sandbox.enter(Lane::Work)?;
        let mut store = self.sandbox.store();
        store.data_mut().stdin = stdin;
        let ((), spent) = self.sandbox.run(&entered, &mut store, |store| self.start(store))?;
        drop(entered);
        Ok((answer(&store.data().stdout)?, spent))
    }

    fn start(&self, store: &mut Store<CallState>) -> wasmtime::Result<Result<(), CallError>> {
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

/// Parses the answer from a command's stdout.
fn answer<Image: DeserializeOwned, Excuse: DeserializeOwned>(stdout: &[u8]) -> Result<Answer<Image, Excuse>, CallError> {
    if stdout.trim_ascii().is_empty() {
        return Err(CallError::Nonsense("its stdout is empty".to_owned()));
    }
    serde_json::from_slice(stdout).map_err(nonsense)
}

#[allow(clippy::needless_pass_by_value)] // The signature that `map_err` needs.
fn nonsense(error: serde_json::Error) -> CallError {
    CallError::Nonsense(printable_line(&format!("its stdout isn't the JSON of an answer: {error}")))
}

fn failing<Image, Excuse: Into<Failure>>((answer, spent): (Answer<Image, Excuse>, Spent)) -> Result<(Image, Spent), CallError> {
    match answer {
        Answer::Ok(image) => Ok((image, spent)),
        Answer::Err(excuse) => Err(excuse.into().into()),
    }
}
