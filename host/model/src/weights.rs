//! The weights in a folder: the files that belong to the model, and the number of their parameters.

use crate::{
    files::{FileEntry, FilesError, Listing, ModelFiles, base, folder, join},
    index::{self, Index},
    limits::{MAX_INDEX_BYTES, MAX_TENSORS},
    packing::{Tally, tally},
    quantization::Quantization,
    safetensors::{self, Dtype, HeaderError, Tensor},
};
use std::{
    collections::{BTreeMap, HashSet},
    hash::{BuildHasher, RandomState},
};

/// The data from the weights in a folder.
#[derive(Debug, Default)]
pub(crate) struct Weights {
    /// The format, and its version if it has one.
    pub format: Option<(&'static str, Option<&'static str>)>,
    /// The parameters according to the shapes of all tensors.
    pub counted: Option<u64>,
    /// The parameters of layers that only draft tokens. Published counts don't include them.
    pub drafting: u64,
    /// The parameters according to the index.
    pub stated: Option<u64>,
    /// The bytes of all tensors.
    pub bytes: Option<u64>,
    /// The type of most numbers.
    pub dtype: Option<&'static str>,
    /// Notes for the reader: the file, and the end of a sentence that begins with its name.
    pub notes: Vec<(Option<String>, String)>,
}

/// The properties of a config that change how tensors are counted.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Context<'a> {
    pub quantization: Option<&'a Quantization>,
    pub tied: bool,
    /// The number of layers that generate tokens; later ones draft.
    pub layers: Option<u64>,
}

/// Stems of the model's files in a folder that also has others.
const USUAL: [&str; 2] = ["model", "diffusion_pytorch_model"];

/// Prefixes of files that aren't weights of the model.
const OTHERS: [&str; 6] = ["adapter_", "optimizer", "training_args", "scheduler", "rng_state", "random_states"];

/// Reads the weights in a folder.
pub(crate) fn read(files: &dyn ModelFiles, listing: &Listing, at: &str, context: Context<'_>) -> Result<Weights, FilesError> {
    let here: Vec<&FileEntry> = listing.files.iter().filter(|file| folder(&file.path) == at).collect();
    let with_end = |end: &str| -> Vec<&FileEntry> {
        here.iter()
            .copied()
            .filter(|file| file.path.ends_with(end) && !OTHERS.iter().any(|begin| base(&file.path).starts_with(begin)))
            .collect()
    };
    let mut weights = Weights::default();
    let found = with_end(".safetensors");
    let index = find_index(files, &with_end(".safetensors.index.json"), &mut weights)?;
    if found.is_empty() && index.is_none() {
        for (end, name) in
            [(".bin", "PyTorch"), (".pth", "PyTorch"), (".pt", "PyTorch"), (".gguf", "GGUF"), (".onnx", "ONNX"), (".h5", "HDF5")]
        {
            let mut others = with_end(end);
            // Many programs use the extension .bin.
            others.retain(|file| end != ".bin" || base(&file.path).contains("pytorch_model"));
            if let Some(first) = others.first() {
                weights.format = Some((name, None));
                if name == "PyTorch" {
                    weights.bytes = Some(sum(&complete(&others, end, &mut weights.notes)));
                }
                weights.notes.push((Some(first.path.clone()), format!("is {name}, whose tensors aren't read")));
                return Ok(weights);
            }
        }
        return Ok(weights);
    }
    weights.format = Some(("safetensors", Some("1.0.0")));
    let selected = match &index {
        Some((path, index)) => {
            weights.stated = index.total_parameters.filter(|count| *count > 0);
            weights.bytes = index.total_size.filter(|bytes| *bytes > 0);
            let by_name: BTreeMap<&str, &FileEntry> = here.iter().map(|file| (base(&file.path), *file)).collect();
            let missing: Vec<&str> = index.files.iter().map(String::as_str).filter(|name| !by_name.contains_key(name)).collect();
            if let Some(first) = missing.first() {
                let text = format!("lists {} files that don't exist, such as {first}: download them", missing.len());
                weights.notes.push((Some(path.clone()), text));
                return Ok(weights);
            }
            index.files.iter().filter_map(|name| by_name.get(name.as_str()).copied()).collect()
        }
        None => select(&found, &mut weights.notes),
    };
    if selected.is_empty() {
        return Ok(weights);
    }
    if weights.bytes.is_none() {
        weights.bytes = Some(sum(&selected));
    }
    count(files, &selected, context, &mut weights)?;
    Ok(weights)
}

fn sum(files: &[&FileEntry]) -> u64 {
    files.iter().fold(0, |sum, file| sum.saturating_add(file.size))
}

/// The index of the model: the usual one, otherwise one that isn't for a variant.
fn find_index(files: &dyn ModelFiles, found: &[&FileEntry], weights: &mut Weights) -> Result<Option<(String, Index)>, FilesError> {
    let stem = |file: &FileEntry| base(&file.path).trim_end_matches(".safetensors.index.json").to_owned();
    let rank = |file: &&&FileEntry| {
        let stem = stem(file);
        (!USUAL.contains(&stem.as_str()), stem.starts_with("consolidated"), stem.contains('.'), stem)
    };
    let Some(file) = found.iter().min_by_key(rank) else { return Ok(None) };
    let bytes = match files.read_whole(&file.path, MAX_INDEX_BYTES) {
        Ok(bytes) => bytes,
        Err(error @ FilesError::TooLarge { .. }) => {
            weights.notes.push((None, error.to_string()));
            return Ok(None);
        }
        Err(error) => return Err(error),
    };
    match index::parse(&bytes) {
        Ok(index) if index.files.is_empty() => {
            weights.notes.push((Some(file.path.clone()), "lists no files".to_owned()));
            Ok(None)
        }
        Ok(index) => Ok(Some((file.path.clone(), index))),
        Err(message) => {
            weights.notes.push((Some(file.path.clone()), message));
            Ok(None)
        }
    }
}

/// The files of the model, if no index lists them. Tensors that occur in several files are counted once. A second form of all tensors isn't
/// read.
fn select<'a>(found: &[&'a FileEntry], notes: &mut Vec<(Option<String>, String)>) -> Vec<&'a FileEntry> {
    let is_consolidated = |file: &&&FileEntry| base(&file.path).starts_with("consolidated");
    let (second, mut first): (Vec<&FileEntry>, Vec<&FileEntry>) = found.iter().partition(is_consolidated);
    if first.is_empty() {
        first = second;
    }
    let mut complete = complete(&first, ".safetensors", notes);
    // The usual files come first, and variants such as model.fp16.safetensors last: the first form of a tensor is counted.
    complete.sort_by_key(|file| {
        let stem = stem(base(&file.path), ".safetensors").0;
        (!USUAL.contains(&stem), stem.contains('.'), file.path.clone())
    });
    complete
}

/// A file's name without its extension and shard number, and the number of shards.
fn stem<'a>(name: &'a str, end: &str) -> (&'a str, Option<u64>) {
    let name = name.strip_suffix(end).unwrap_or(name);
    let parts = || {
        let (rest, total) = name.rsplit_once("-of-")?;
        let (stem, number) = rest.rsplit_once('-')?;
        let is_number = |text: &str| !text.is_empty() && text.len() <= 9 && text.bytes().all(|byte| byte.is_ascii_digit());
        (is_number(number) && is_number(total)).then(|| (stem, total.parse().ok()))
    };
    parts().unwrap_or((name, None))
}

/// The files, without those of incomplete sets of shards. If no file is left, a note lists the shards that exist.
fn complete<'a>(found: &[&'a FileEntry], end: &str, notes: &mut Vec<(Option<String>, String)>) -> Vec<&'a FileEntry> {
    let set = |file: &FileEntry| {
        let (stem, total) = stem(base(&file.path), end);
        (stem.to_owned(), total)
    };
    let mut sets: BTreeMap<(String, Option<u64>), u64> = BTreeMap::new();
    for file in found {
        *sets.entry(set(file)).or_default() += 1;
    }
    let kept: Vec<&FileEntry> = found
        .iter()
        .copied()
        .filter(|file| {
            let set = set(file);
            set.1.is_none_or(|total| sets.get(&set) == Some(&total))
        })
        .collect();
    if kept.is_empty()
        && let Some(((stem, Some(total)), number)) = sets.iter().next()
    {
        notes.push((None, format!("{stem}: {number} of {total} shards exist: download the others")));
    }
    kept
}

/// Counts the parameters in these files.
fn count(files: &dyn ModelFiles, selected: &[&FileEntry], context: Context<'_>, weights: &mut Weights) -> Result<(), FilesError> {
    let mut counter = Counter {
        context,
        hasher: RandomState::new(),
        seen: HashSet::new(),
        total: 0,
        drafting: 0,
        embedding: 0,
        head: 0,
        by_type: BTreeMap::new(),
    };
    let mut problem = None;
    for file in selected {
        match safetensors::read(files, &file.path, file.size, &mut |tensor| counter.take(tensor)) {
            Ok(()) => {}
            Err(HeaderError::Files(error)) => return Err(error),
            Err(HeaderError::Broken(message)) => {
                weights.notes.push((Some(file.path.clone()), message));
                problem = Some(());
                break;
            }
        }
    }
    let largest = counter.by_type.iter().max_by_key(|(_, bits)| **bits).map(|(dtype, _)| *dtype);
    weights.dtype = largest.and_then(Dtype::torch_name);
    if problem.is_none() {
        weights.drafting = counter.drafting;
        weights.counted = Some(counter.total()).filter(|total| *total > 0);
    }
    Ok(())
}

struct Counter<'a> {
    context: Context<'a>,
    hasher: RandomState,
    /// Hashes of the names: 8 bytes each, regardless of their length.
    seen: HashSet<u64>,
    total: u64,
    drafting: u64,
    embedding: u64,
    head: u64,
    by_type: BTreeMap<Dtype, u64>,
}

impl Counter<'_> {
    fn take(&mut self, tensor: &Tensor<'_>) -> Result<(), String> {
        if !self.seen.insert(self.hasher.hash_one(tensor.name)) {
            return Ok(());
        }
        if self.seen.len() > MAX_TENSORS {
            return Err(format!("and the files before it have more than {MAX_TENSORS} tensors, which aren't counted"));
        }
        let parameters = match tally(tensor, self.context.quantization) {
            Tally::Auxiliary => return Ok(()),
            Tally::Unknown => {
                return Err(format!("packs {} in a form whose shape doesn't state how many parameters it has", tensor.name.escape_debug()));
            }
            Tally::Parameters(parameters) => parameters,
        };
        if self.is_draft(tensor.name) {
            self.drafting = self.drafting.saturating_add(parameters);
            return Ok(());
        }
        self.total = self.total.checked_add(parameters).ok_or("has more parameters than 64 bits can count")?;
        let bits = self.by_type.entry(tensor.dtype).or_default();
        *bits = bits.saturating_add(tensor.elements.saturating_mul(tensor.dtype.bits()));
        let is = |ends: &[&str]| ends.iter().any(|end| tensor.name.ends_with(end));
        if is(&["embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight"]) {
            self.embedding = parameters;
        } else if is(&["lm_head.weight"]) {
            self.head = parameters;
        }
        Ok(())
    }

    /// Layers beyond the config's number predict further tokens, for drafting.
    fn is_draft(&self, name: &str) -> bool {
        if name.starts_with("mtp.") || name.starts_with("model.mtp") {
            return true;
        }
        let Some(layers) = self.context.layers.filter(|layers| *layers > 0) else { return false };
        let number = name.strip_prefix("model.layers.").and_then(|rest| rest.split('.').next());
        number.and_then(|number| number.parse::<u64>().ok()).is_some_and(|number| number >= layers)
    }

    /// All parameters. A head that shares the embedding but is stored separately isn't counted again.
    fn total(&self) -> u64 {
        if self.context.tied && self.head == self.embedding { self.total - self.head } else { self.total }
    }
}

/// The folder with the weights for a config in `at`: the same folder, otherwise the nearest with safetensors.
pub(crate) fn nearest(listing: &Listing, at: &str) -> String {
    let is_weights =
        |path: &str| [".safetensors", ".safetensors.index.json", ".bin", ".gguf", ".onnx"].iter().any(|end| path.ends_with(end));
    if listing.files.iter().any(|file| folder(&file.path) == at && is_weights(&file.path)) {
        return at.to_owned();
    }
    let inside = if at.is_empty() { String::new() } else { join(at, "") };
    let weights = listing.files.iter().filter(|file| file.path.starts_with(&inside) && file.path.ends_with(".safetensors"));
    let nearest = weights.map(|file| folder(&file.path)).min_by_key(|folder| (folder.matches('/').count(), folder.to_owned()));
    nearest.unwrap_or(at).to_owned()
}
