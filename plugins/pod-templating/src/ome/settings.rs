//! Settings of pods from annotations. The host has already validated the values and resolved conflicts.

use super::{adapter, benchmark, model, security::Standard};
use crate::{
    engine::{self, Engine},
    node::{By, Node},
    pod::{Pod, add_arguments, set_variable},
};
use pointsman_plugin::{Failure, Reason, pod_templating::Request, reason};
use std::collections::BTreeMap;

const MAX_TOKENS: &str = "model.ome.io/max-tokens";
const CONTEXT_LENGTH: &str = "model.ome.io/context-length";
const QUANTIZATION: &str = "model.ome.io/quantization";
const MEMORY: &str = "performance.ome.io/gpu-memory-fraction";
const BATCH_SIZE: &str = "performance.ome.io/batch-size";
const BATCH_DELAY: &str = "performance.ome.io/max-batch-delay";

/// The variables for annotations about the engine, which are used if there is no flag.
const OF_ENGINE: [(&str, &str); 6] = [
    (MAX_TOKENS, "MODEL_MAX_TOKENS"),
    (CONTEXT_LENGTH, "MODEL_CONTEXT_LENGTH"),
    (QUANTIZATION, "MODEL_QUANTIZATION"),
    (MEMORY, "GPU_MEMORY_FRACTION"),
    (BATCH_SIZE, "BATCH_SIZE"),
    (BATCH_DELAY, "MAX_BATCH_DELAY"),
];

/// The variables for annotations about Oracle's cloud.
const OF_CLOUD: [(&str, &str); 3] = [
    ("oci.ome.io/compartment-id", "OCI_COMPARTMENT_ID"),
    ("oci.ome.io/region", "OCI_REGION"),
    ("oci.ome.io/availability-domain", "OCI_AVAILABILITY_DOMAIN"),
];

/// The variables for annotations about a training run.
const OF_TRAINING: [(&str, &str); 3] = [
    ("training.ome.io/distributed-backend", "TRAINING_DISTRIBUTED_BACKEND"),
    ("training.ome.io/checkpoint-strategy", "TRAINING_CHECKPOINT_STRATEGY"),
    ("training.ome.io/resume-from", "TRAINING_RESUME_FROM"),
];

const SECRET: &str = "security.ome.io/secret-ref";
const POD_SECURITY: &str = "security.ome.io/pod-security-policy";

const BY: By<'static> = By { layer: "settings", ..By::PLUGIN };

/// The layer `settings`: values by their annotations.
#[derive(Debug, Default)]
pub(super) struct Settings(BTreeMap<String, String>);

/// A setting of an engine that has a flag.
#[derive(Clone, Copy, Debug)]
enum Knob {
    Length,
    Dtype,
    Quantization,
    Memory,
    BatchSize,
}

/// A flag for the engine, and the annotations that request it.
struct Wish {
    annotations: String,
    knob: Knob,
    value: String,
}

impl Settings {
    pub(super) fn from_request(request: &Request) -> Result<Self, Failure> {
        Ok(Self(request.layer::<Option<_>>("settings")?.flatten().unwrap_or_default()))
    }

    /// Configures a known engine with flags, and any other container with variables.
    pub(super) fn tell_engine(&self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        let Some(main) = pod.main_mut() else { return Ok(()) };
        let name = main.text_at("name").unwrap_or_default().to_owned();
        let Some(engine) = Engine::detect(main) else {
            let told: Vec<_> = OF_ENGINE.into_iter().filter(|pair| self.set(*pair, main)).map(|(_, variable)| variable).collect();
            if !told.is_empty() {
                let variables = told.join(", ");
                let message = format!("The command line of {name} is unknown, so it must read these variables itself: {variables}.");
                reasons.push(reason("SettingsUntold", message));
            }
            return Ok(());
        };
        let given = engine::given(main);
        let (kept, wanted): (Vec<_>, Vec<_>) =
            self.wishes()?.into_iter().partition(|wish| wish.knob.flags(engine).iter().any(|flag| given.iter().any(|given| given == flag)));
        for Wish { annotations, knob, .. } in kept {
            let flag = knob.flags(engine)[0];
            let message = format!("The command line of {name} has {flag} already, which overrides {annotations}.");
            reasons.push(reason("FlagKept", message));
        }
        let words: Vec<_> = wanted.into_iter().flat_map(|wish| [wish.knob.flags(engine)[0].to_owned(), wish.value]).collect();
        if !words.is_empty() {
            let message = format!("The annotations set flags of {}: {}.", engine.name(), words.join(" "));
            reasons.push(reason("SettingsTold", message));
            add_arguments(main, words, BY);
        }
        if let Some(width) = self.get(QUANTIZATION).filter(|word| matches!(Quantization::parse(word), Quantization::Width)) {
            self.set((QUANTIZATION, "MODEL_QUANTIZATION"), main);
            let message = format!("{width} is a width, not a method, so {} reads the method from the model's own files.", engine.name());
            reasons.push(reason("QuantizationByModel", message));
        }
        if self.set((BATCH_DELAY, "MAX_BATCH_DELAY"), main) {
            let message = format!("{} batches continuously and has no delay, so {BATCH_DELAY} is only a variable.", engine.name());
            reasons.push(reason("BatchDelayUntold", message));
        }
        Ok(())
    }

    /// The settings that become flags.
    fn wishes(&self) -> Result<Vec<Wish>, Failure> {
        let mut wishes = Vec::new();
        let mut wish = |annotations: String, knob, value: String| wishes.push(Wish { annotations, knob, value });
        let mut lengths = Vec::new();
        for annotation in [MAX_TOKENS, CONTEXT_LENGTH] {
            lengths.extend(self.number(annotation)?.map(|length| (length, annotation)));
        }
        if let Some((length, _)) = lengths.iter().min() {
            let annotations: Vec<_> = lengths.iter().map(|(_, annotation)| *annotation).collect();
            wish(annotations.join(" and "), Knob::Length, length.to_string());
        }
        match self.get(QUANTIZATION).map(Quantization::parse) {
            Some(Quantization::Dtype(dtype)) => wish(QUANTIZATION.to_owned(), Knob::Dtype, dtype.to_owned()),
            Some(Quantization::Method(method)) => wish(QUANTIZATION.to_owned(), Knob::Quantization, method.to_owned()),
            Some(Quantization::Width) | None => {}
        }
        for (annotation, knob) in [(MEMORY, Knob::Memory), (BATCH_SIZE, Knob::BatchSize)] {
            if let Some(value) = self.get(annotation) {
                wish(annotation.to_owned(), knob, value.to_owned());
            }
        }
        Ok(wishes)
    }

    /// Sets the variables about Oracle's cloud in the main container.
    pub(super) fn tell_cloud(&self, pod: &mut Pod<'_>) {
        let Some(main) = pod.main_mut() else { return };
        for pair in OF_CLOUD {
            self.set(pair, main);
        }
    }

    /// Sets the variables about training in the main container of a training job.
    pub(super) fn tell_trainer(&self, pod: &mut Pod<'_>) {
        let Some(main) = pod.main_mut() else { return };
        for pair in OF_TRAINING {
            self.set(pair, main);
        }
    }

    /// Adds the Secret to the main container, and to the init containers, which need it for downloads.
    pub(super) fn give_secret(&self, pod: &mut Pod<'_>) {
        let Some(secret) = self.get(SECRET) else { return };
        if let Some(main) = pod.main_mut() {
            take_from(main, secret, BY);
        }
        let containers = pod.spec.fields_mut().and_then(|spec| spec.get_mut("initContainers")?.items_mut());
        for container in containers.into_iter().flatten() {
            if container
                .text_at("name")
                .is_some_and(|name| name == model::INITIALIZER || name == benchmark::INITIALIZER || adapter::is_initializer(name))
            {
                take_from(container, secret, BY);
            }
        }
    }

    /// Applies the requested Pod Security Standard to the pod.
    pub(super) fn secure(&self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
        match self.get(POD_SECURITY) {
            None | Some("privileged") => Ok(()),
            Some("baseline") => Standard::Baseline.keep(pod, BY, reasons),
            Some("restricted") => Standard::Restricted.keep(pod, BY, reasons),
            Some(other) => Err(format!("the annotation {POD_SECURITY} is {other:?}: write privileged, baseline or restricted").into()),
        }
    }

    fn get(&self, annotation: &str) -> Option<&str> {
        self.0.get(annotation).map(String::as_str)
    }

    fn number(&self, annotation: &str) -> Result<Option<u64>, Failure> {
        let read = |text: &str| text.parse().map_err(|_| format!("the annotation {annotation} is {text:?}: write a whole number").into());
        self.get(annotation).map(read).transpose()
    }

    /// Sets the variable unless it is already set. Returns whether the annotation exists.
    fn set(&self, (annotation, variable): (&str, &str), container: &mut Node<'_>) -> bool {
        let value = self.get(annotation);
        if let Some(value) = value {
            set_variable(container, variable, value, BY);
        }
        value.is_some()
    }
}

/// Limits the number of tokens that the model may process at once, unless the command line or an annotation has already set it.
pub(super) fn tell_length(length: u64, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
    let Some(main) = pod.main_mut() else { return };
    let Some(engine) = Engine::detect(main) else { return };
    let flag = Knob::Length.flags(engine)[0];
    if engine::given(main).iter().any(|given| given == flag) {
        return;
    }
    reasons.push(reason("ModelLength", format!("The model's maxTokens sets a flag of {}: {flag} {length}.", engine.name())));
    add_arguments(main, [flag.to_owned(), length.to_string()], By { layer: "model", ..By::PLUGIN });
}

impl Knob {
    /// The flag and its aliases.
    fn flags(self, engine: Engine) -> &'static [&'static str] {
        match (self, engine) {
            (Self::Length, Engine::Vllm) => &["--max-model-len"],
            (Self::Length, Engine::Sglang) => &["--context-length"],
            (Self::Dtype, _) => &["--dtype"],
            (Self::Quantization, Engine::Vllm) => &["--quantization", "-q"],
            (Self::Quantization, Engine::Sglang) => &["--quantization"],
            (Self::Memory, Engine::Vllm) => &["--gpu-memory-utilization"],
            (Self::Memory, Engine::Sglang) => &["--mem-fraction-static"],
            (Self::BatchSize, Engine::Vllm) => &["--max-num-seqs"],
            (Self::BatchSize, Engine::Sglang) => &["--max-running-requests"],
        }
    }
}

/// The meaning of the value for quantization in an engine.
enum Quantization<'s> {
    Dtype(&'static str),
    /// The number of bits of a weight. The model's files specify the method.
    Width,
    Method(&'s str),
}

impl<'s> Quantization<'s> {
    fn parse(word: &'s str) -> Self {
        match &*word.to_ascii_lowercase() {
            "fp16" | "float16" | "half" => Self::Dtype("float16"),
            "bf16" | "bfloat16" => Self::Dtype("bfloat16"),
            "fp32" | "float32" => Self::Dtype("float32"),
            "int8" | "int4" => Self::Width,
            _ => Self::Method(word),
        }
    }
}

/// Adds the Secret's entries as variables of the container. They are first, so that variables from layers take precedence.
fn take_from<'a>(container: &mut Node<'a>, secret: &str, by: By<'a>) {
    let has = |source: &Node<'_>| source.get("secretRef").and_then(|of| of.text_at("name")) == Some(secret);
    let Some(sources) = container.list_at("envFrom", by).filter(|sources| !sources.iter().any(has)) else { return };
    let name = Node::object([("name", Node::text(secret, by))], by);
    sources.insert(0, Node::object([("secretRef", name)], by));
}
