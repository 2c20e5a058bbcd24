//! Whether a runtime supports a model's kind.

use crate::version::{Incompatible, compatible};
use pointsman_plugin::{
    Reason, reason,
    runtime_selection::{Comparison, Model, Supported, SupportedModel, Versioned},
};

/// The first mismatch in the order of the checks: the later it is, the closer the two are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mismatch {
    /// The implementation.
    Architecture,
    /// The quantisation.
    Quantization,
    /// The format's name.
    Format,
    /// The format's version.
    FormatVersion,
    /// The framework's name.
    Framework,
    /// The framework's version.
    FrameworkVersion,
}

impl Mismatch {
    fn code(self) -> &'static str {
        match self {
            Self::Architecture => "ArchitectureMismatch",
            Self::Quantization => "QuantizationMismatch",
            Self::Format => "FormatMismatch",
            Self::Framework => "FrameworkMismatch",
            Self::FormatVersion | Self::FrameworkVersion => "VersionMismatch",
        }
    }

    fn sentence(self, model: &Model, entry: &SupportedModel) -> String {
        match self {
            Self::Architecture => unequal("architecture", entry.architecture.as_deref(), model.architecture.as_deref()),
            Self::Quantization => unequal("quantization", entry.quantization.as_deref(), model.quantization.as_deref()),
            Self::Format if entry.format.is_none() => "The runtime has no modelFormat, so it matches no model.".to_owned(),
            Self::Format => unequal("format", name_of(entry.format.as_ref()), model.format.as_ref().map(|format| format.name.as_str())),
            Self::Framework => {
                unequal("framework", name_of(entry.framework.as_ref()), model.framework.as_ref().map(|framework| framework.name.as_str()))
            }
            Self::FormatVersion => versions("format", entry.format.as_ref(), model.format.as_ref()),
            Self::FrameworkVersion => versions("framework", entry.framework.as_ref(), model.framework.as_ref()),
        }
    }
}

/// The entries that match the model, or the reason why the closest one doesn't.
pub fn matching<'a>(model: &Model, entries: &'a [SupportedModel]) -> Result<Vec<&'a SupportedModel>, Reason> {
    let mut matching = Vec::new();
    let mut closest: Option<(Mismatch, &SupportedModel)> = None;
    for entry in entries {
        match compare(model, entry) {
            Ok(()) => matching.push(entry),
            Err(mismatch) if closest.is_none_or(|(other, _)| mismatch > other) => closest = Some((mismatch, entry)),
            Err(_) => {}
        }
    }
    if !matching.is_empty() {
        return Ok(matching);
    }
    let Some((mismatch, entry)) = closest else {
        return Err(reason("FormatMismatch", "The runtime declares no supported model formats."));
    };
    let sentence = mismatch.sentence(model, entry);
    let message = match entries.len() {
        1 => sentence,
        several => format!("None of the runtime's {several} supportedModelFormats matches. The closest: {sentence}"),
    };
    Err(reason(mismatch.code(), message))
}

/// Compares the model with an entry. Returns the first mismatch.
pub fn compare(model: &Model, entry: &SupportedModel) -> Result<(), Mismatch> {
    if entry.architecture != model.architecture {
        return Err(Mismatch::Architecture);
    }
    if entry.quantization != model.quantization {
        return Err(Mismatch::Quantization);
    }
    let format = entry.format.as_ref().zip(model.format.as_ref()).ok_or(Mismatch::Format)?;
    both(format, Mismatch::Format, Mismatch::FormatVersion)?;
    match (&entry.framework, &model.framework) {
        (None, None) => Ok(()),
        (Some(supported), Some(framework)) => both((supported, framework), Mismatch::Framework, Mismatch::FrameworkVersion),
        _ => Err(Mismatch::Framework),
    }
}

fn both((supported, of_model): (&Supported, &Versioned), name: Mismatch, version: Mismatch) -> Result<(), Mismatch> {
    if supported.name != of_model.name {
        return Err(name);
    }
    match (&supported.version, &of_model.version) {
        (None, None) => Ok(()),
        (Some(runtime), Some(model)) => compatible(runtime, supported.comparison, model).map_err(|_| version),
        _ => Err(version),
    }
}

fn name_of(supported: Option<&Supported>) -> Option<&str> {
    supported.map(|supported| supported.name.as_str())
}

fn unequal(what: &str, runtime: Option<&str>, model: Option<&str>) -> String {
    match (runtime, model) {
        (Some(runtime), Some(model)) => format!("The runtime is for the {what} {runtime}, but the model's is {model}."),
        (Some(runtime), None) => format!("The runtime is for the {what} {runtime}, but the model doesn't specify its own."),
        (None, Some(model)) => format!("The model's {what} is {model}, but the runtime specifies none."),
        (None, None) => format!("Neither the runtime nor the model specifies its {what}."),
    }
}

fn versions(what: &str, supported: Option<&Supported>, model: Option<&Versioned>) -> String {
    let name = name_of(supported).unwrap_or_default();
    let runtime = supported.and_then(|supported| supported.version.as_deref());
    let of_model = model.and_then(|model| model.version.as_deref());
    let (Some(supported), Some(runtime), Some(model)) = (supported, runtime, of_model) else {
        return unequal(&format!("version of the {what} {name}"), runtime, of_model);
    };
    let subject = format!("The runtime's version {runtime} of the {what} {name}");
    match compatible(runtime, supported.comparison, model) {
        Err(Incompatible::RuntimeUnreadable) => format!("{subject} can't be read: it must look like 4, 4.43 or 4.43.0."),
        Err(Incompatible::ModelUnreadable) => {
            format!("The model's version {model} of the {what} {name} can't be read: it must look like 4, 4.43 or 4.43.0.")
        }
        Err(Incompatible::Unofficial) => {
            format!("{subject} must equal the model's {model}: pre-releases, builds and dev versions must match exactly.")
        }
        Err(Incompatible::Form) => {
            format!("{subject} can't be compared with the model's {model}: write both with as many parts, and both with a v or without.")
        }
        Err(Incompatible::Value) | Ok(()) => {
            let relation = match supported.comparison {
                Comparison::Equal => "equal",
                Comparison::GreaterThan => "be greater than",
                Comparison::GreaterThanOrEqual => "be at least",
            };
            format!("{subject} must {relation} the model's {model}.")
        }
    }
}
