//! Reads a model's files and combines their facts.

use crate::{
    capabilities::{self, Hints},
    config::{self, Config},
    context, diffusion,
    facts::{ModelFacts, Parameters, Source, Versioned},
    family::{Dim, Role},
    files::{FilesError, Listing, ModelFiles, base, folder, join},
    formula,
    limits::MAX_CONFIG_BYTES,
    quantization,
    weights::{self, Weights},
};
use serde_json::{Map, Value};

/// The maximum deviation of an estimate from the tensors, in percent. Beyond it, there is a note.
const MAX_DEVIATION: u64 = 10;

/// Reads a model. Missing, broken and oversized files become notes. An error means that files can't be listed or read.
pub fn inspect(files: &dyn ModelFiles) -> Result<ModelFacts, FilesError> {
    let listing = files.list()?;
    let mut facts = ModelFacts::default();
    if let Some(first) = listing.skipped.first() {
        let number = listing.skipped.len();
        facts.note("files", Some(first), format!("and {} other links lead out of the model or to folders, and aren't read", number - 1));
    }
    let config = find(&listing, "config.json", &["", "safetensors", "pytorch_model", "model"]);
    // A pipeline's components also have config.json files, but deeper than its index.
    let depth = |path: &str| path.matches('/').count();
    let index = find(&listing, "model_index.json", &[""]);
    if let Some(path) = index.filter(|path| config.as_deref().is_none_or(|config| depth(path) <= depth(config))) {
        match read_object(files, &path)? {
            Ok(index) if Config::new(&index).text("_class_name").is_some() => {
                pipeline(files, &listing, &path, index, &mut facts)?;
                return Ok(facts);
            }
            Ok(_) => {
                let text = "has no `_class_name`, so it describes no pipeline: download it again, or remove it";
                facts.note("configFile", Some(&path), text);
            }
            Err(message) => facts.note("configFile", Some(&path), message),
        }
    }
    let Some(path) = config else {
        facts.note("configFile", None, "config.json is missing: add it, or set the model's fields by hand");
        weights_alone(files, &listing, "", &mut facts)?;
        return Ok(facts);
    };
    let at = folder(&path).to_owned();
    facts.config_file = Some(path.clone());
    match read_object(files, &path)? {
        Ok(config) => model(files, &listing, &at, config, &mut facts)?,
        Err(message) => {
            facts.note("configFile", Some(&path), message);
            weights_alone(files, &listing, &at, &mut facts)?;
        }
    }
    Ok(facts)
}

/// The facts from a config.json alone, without the weights and without other files.
pub fn inspect_config(config: Map<String, Value>) -> ModelFacts {
    let mut facts = ModelFacts::default();
    let estimate = describe(Config::new(&config), Hints::default(), None, &mut facts);
    settle(&mut facts, &Weights::default(), Some(estimate));
    facts.configuration = Some(config);
    facts
}

/// A file by its name: in the first of these folders that has it, otherwise at the least depth.
fn find(listing: &Listing, name: &str, folders: &[&str]) -> Option<String> {
    let found = || listing.files.iter().map(|file| file.path.as_str()).filter(|path| base(path) == name);
    let usual = folders.iter().find_map(|at| found().find(|path| folder(path) == *at));
    usual.or_else(|| found().min_by_key(|path| (path.matches('/').count(), *path))).map(str::to_owned)
}

/// An object in a file, or the reason why it can't be read.
fn read_object(files: &dyn ModelFiles, path: &str) -> Result<Result<Map<String, Value>, String>, FilesError> {
    match files.read_whole(path, MAX_CONFIG_BYTES) {
        Ok(bytes) => Ok(config::parse_object(&bytes)),
        Err(FilesError::TooLarge { limit, .. }) => {
            Ok(Err(format!("has more than {limit} bytes: check whether it is the file that it should be")))
        }
        Err(FilesError::Outside { .. }) => {
            Ok(Err("is a link that leads out of the model's folder: replace the link with the file".to_owned()))
        }
        Err(error) => Err(error),
    }
}

/// The facts from weights without a config.
fn weights_alone(files: &dyn ModelFiles, listing: &Listing, at: &str, facts: &mut ModelFacts) -> Result<(), FilesError> {
    let weights = weights::read(files, listing, &weights::nearest(listing, at), weights::Context::default())?;
    settle(facts, &weights, None);
    Ok(())
}

fn model(
    files: &dyn ModelFiles,
    listing: &Listing,
    at: &str,
    config: Map<String, Value>,
    facts: &mut ModelFacts,
) -> Result<(), FilesError> {
    let has = |name: &str| listing.files.iter().any(|file| file.path == join(at, name));
    let hints = Hints {
        sentence_transformers: ["modules.json", "config_sentence_transformers.json", "1_Pooling/config.json"].iter().any(|name| has(name)),
    };
    let beside = join(at, "hf_quant_config.json");
    let modelopt = if has("hf_quant_config.json") { read_object(files, &beside)? } else { Ok(Map::new()) };
    let modelopt = modelopt.unwrap_or_else(|message| {
        facts.note("quantization", Some(&beside), message);
        Map::new()
    });
    let view = Config::new(&config);
    let estimate = describe(view, hints, Some(Config::new(&modelopt)), facts);
    let context = weights_context(view);
    let read = weights::read(
        files,
        listing,
        &weights::nearest(listing, at),
        weights::Context { quantization: facts.quantization.as_ref(), ..context },
    )?;
    settle(facts, &read, Some(estimate));
    facts.configuration = Some(config);
    Ok(())
}

/// The properties of a config that change how its tensors are counted.
fn weights_context(config: Config<'_>) -> weights::Context<'static> {
    let text = config.first_part(&config::TEXT_PARTS).unwrap_or(config);
    let tied = text.flag("tie_word_embeddings").or_else(|| config.flag("tie_word_embeddings"));
    let tied = tied.unwrap_or_else(|| formula::family(text).is_some_and(|family| family.ends.tied));
    weights::Context { quantization: None, tied, layers: text.first_number(Dim::Layers.names()).ok().flatten() }
}

/// Adds all facts except those from the weights. Returns the estimate of the parameters, or the reason why there is none.
fn describe(config: Config<'_>, hints: Hints, modelopt: Option<Config<'_>>, facts: &mut ModelFacts) -> Result<u64, String> {
    facts.model_type = config.model_type().map(str::to_owned);
    // A component of a pipeline may also be a separate model.
    let component = config.text("_class_name");
    facts.architecture = config.architecture().or(component).map(str::to_owned);
    if facts.architecture.is_none() {
        facts.note("architecture", None, "config.json has no `architectures`: set `modelArchitecture`");
    }
    if component.is_some() {
        facts.framework = Some(Versioned::new("diffusers", config.text("_diffusers_version")));
    } else if facts.model_type.is_some() || facts.architecture.is_some() {
        facts.framework = Some(Versioned::new("transformers", config.text("transformers_version")));
    } else {
        facts.note("framework", None, "config.json has neither `model_type` nor `architectures`: set `modelFramework`");
    }
    let text = config.first_part(&config::TEXT_PARTS).unwrap_or(config);
    let dtype = [config, text].into_iter().find_map(|part| part.text("torch_dtype").or_else(|| part.text("dtype")));
    facts.dtype = dtype.map(|dtype| dtype.trim_start_matches("torch.").to_owned());
    match quantization::find(config) {
        Ok(found) => facts.quantization = found.or_else(|| modelopt.and_then(quantization::for_modelopt)),
        Err(message) => facts.note("quantization", None, message),
    }
    match capabilities::find(config, hints) {
        Ok(found) => facts.capabilities = found.to_vec(),
        Err(message) => facts.note("capabilities", None, message),
    }
    let family = formula::family(config);
    match context::find(config, default_context(config)) {
        Ok(Some(context)) => facts.max_tokens = Some(context),
        Ok(None) => facts.note("maxTokens", None, "config.json doesn't state the context: set `maxTokens`"),
        Err(message) => facts.note("maxTokens", None, format!("{message}: set `maxTokens`")),
    }
    match family {
        Some(family) => {
            formula::count(config, family).map_err(|why| format!("config.json doesn't describe a {} model: {why}", family.title))
        }
        None => Err(match config.model_type() {
            Some(model_type) => format!("no formula is known for `model_type: {model_type}`"),
            None => "config.json has no `model_type`".to_owned(),
        }),
    }
}

/// The default context of the language model's class.
fn default_context(config: Config<'_>) -> Option<u64> {
    let whole = formula::family(config)?;
    let text = whole.parts.iter().find(|part| part.role == Role::Text).and_then(|part| crate::families::find(part.family));
    let family = config.first_part(&config::TEXT_PARTS).and_then(formula::family).or(text).unwrap_or(whole);
    family.defaults.iter().find(|(dim, _)| *dim == Dim::Positions).map(|(_, value)| *value)
}

/// Adds the facts from the weights, and chooses among the counts.
fn settle(facts: &mut ModelFacts, weights: &Weights, estimate: Option<Result<u64, String>>) {
    if let Some((name, version)) = weights.format {
        facts.format = Some(Versioned::new(name, version));
    }
    if facts.dtype.is_none() {
        facts.dtype = weights.dtype.map(str::to_owned);
    }
    for (file, message) in &weights.notes {
        facts.note("parameters", file.as_deref(), message.clone());
    }
    if weights.drafting > 0 {
        let text = format!("{} more parameters are of layers that only draft tokens, and aren't counted", weights.drafting);
        facts.note("parameters", None, text);
    }
    // The count of a library for packed tensors isn't the model's count.
    let is_packed = facts.quantization.as_ref().is_some_and(|quantization| quantization.bits.is_none_or(|bits| bits < 8));
    let by_formula = estimate.as_ref().and_then(|estimate| estimate.as_ref().ok()).copied();
    let exact =
        weights.counted.map(|count| (count, Source::Tensors)).or(weights.stated.filter(|_| !is_packed).map(|count| (count, Source::Index)));
    if let (Some((exact, _)), Some(formula)) = (exact, by_formula)
        && u128::from(exact.abs_diff(formula)) * 100 > u128::from(exact) * u128::from(MAX_DEVIATION)
    {
        let text = format!("the weights have {exact} parameters, and config.json describes {formula}: check that they belong together");
        facts.note("parameters", None, text);
    }
    let by_bytes = || {
        let bits = match (&facts.quantization, facts.dtype.as_deref()) {
            (None, Some("float32")) => Some(32),
            (None, Some("float16" | "bfloat16")) => Some(16),
            _ => None,
        };
        weights.bytes.zip(bits).and_then(|(bytes, bits)| Some(bytes.checked_mul(8)? / bits)).filter(|count| *count > 0)
    };
    let found = exact.or(by_formula.map(|count| (count, Source::Formula))).or_else(|| by_bytes().map(|count| (count, Source::Bytes)));
    facts.parameters = found.map(|(count, source)| Parameters::new(count, source));
    if facts.parameters.is_none() {
        let why = match estimate {
            Some(Err(why)) => format!("{why}, and no weights state it: set `modelParameterSize`"),
            _ => "no weights state it: set `modelParameterSize`".to_owned(),
        };
        facts.note("parameters", None, why);
    }
}

/// A diffusion pipeline: its components, each in its own folder.
fn pipeline(
    files: &dyn ModelFiles,
    listing: &Listing,
    path: &str,
    index: Map<String, Value>,
    facts: &mut ModelFacts,
) -> Result<(), FilesError> {
    let at = folder(path);
    let view = Config::new(&index);
    let (found, folders) = diffusion::parse(&index);
    facts.config_file = Some(path.to_owned());
    facts.architecture.clone_from(&found.class_name);
    let version = view.text("_diffusers_version");
    facts.framework = Some(Versioned::new("diffusers", version));
    facts.format = Some(Versioned::new("diffusers", version));
    let class = found.class_name.as_deref().unwrap_or_default();
    if let Some(capability) = capabilities::for_pipeline(class) {
        facts.capabilities = vec![capability];
    } else {
        let text = format!("the class {class} doesn't state what the pipeline can do: set `modelCapabilities`");
        facts.note("capabilities", None, text);
    }
    if found.transformer.is_none() {
        facts.note("diffusionPipeline", Some(path), "has neither a transformer nor a U-Net");
    }
    facts.diffusion_pipeline = Some(found);
    let (mut total, mut is_exact, mut is_known) = (0_u64, true, true);
    for name in folders {
        let inside = join(at, &name);
        let mut part = ModelFacts::default();
        let config = join(&inside, "config.json");
        let has_config = listing.files.iter().any(|file| file.path == config);
        let has_files = listing.files.iter().any(|file| folder(&file.path) == inside);
        // Schedulers and tokenizers have neither weights nor a config.json.
        if !has_config && has_files {
            continue;
        }
        if !has_files {
            facts.note("parameters", None, format!("the component {name} has no files: download them"));
            is_known = false;
            continue;
        }
        match read_object(files, &config)? {
            Ok(config) => model(files, listing, &inside, config, &mut part)?,
            Err(message) => {
                facts.note("parameters", Some(&config), message);
                weights_alone(files, listing, &inside, &mut part)?;
            }
        }
        if facts.dtype.is_none() || name == "transformer" || name == "unet" {
            facts.dtype = part.dtype.take().or(facts.dtype.take());
            facts.quantization = part.quantization.take().or(facts.quantization.take());
        }
        if let Some(parameters) = part.parameters {
            total = total.saturating_add(parameters.count);
            is_exact &= parameters.is_exact();
            continue;
        }
        is_known = false;
        for note in part.notes.into_iter().filter(|note| note.about == "parameters") {
            facts.note("parameters", note.file.as_deref(), format!("{} (component {name})", note.message));
        }
    }
    if is_known && total > 0 {
        facts.parameters = Some(Parameters::new(total, if is_exact { Source::Tensors } else { Source::Formula }));
    } else {
        facts.note("parameters", None, "not all components could be counted: set `modelParameterSize`");
    }
    facts.configuration = Some(index);
    Ok(())
}

#[cfg(test)]
mod document;
