//! Checks the tables of docs/models.md against the code and the corpus. `cargo xtask generate` runs this test to write them.

#[path = "../../tests/corpus_files/mod.rs"]
mod corpus_files;

use super::inspect_config;
use crate::{
    capabilities::{PIPELINES, RULES},
    config::{Config, TEXT_PARTS, VISION_PARTS},
    families, formula, limits,
    quantization::{METHODS, Rule},
};
use corpus_files::{Model, models};
use std::{collections::BTreeMap, env, fmt::Write as _, fs, path::Path};

/// Set by xtask (`xtask/src/build.rs`).
const UPDATE: &str = "POINTSMAN_UPDATE_MODELS_PAGE";

fn code<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ")
}

/// A model's name without its publisher.
fn short(name: &str) -> String {
    name.rsplit('/').next().unwrap().to_owned()
}

/// The families, and for each the models that were compared with published facts.
fn family_table() -> String {
    let mut by_family: BTreeMap<&str, Vec<Model>> = BTreeMap::new();
    let mut as_part: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for model in models() {
        let config = Config::new(&model.config);
        for part in [TEXT_PARTS.as_slice(), &VISION_PARTS].into_iter().filter_map(|names| config.first_part(names)) {
            if let Some(family) = formula::family(part) {
                as_part.entry(family.title).or_default().push(short(&model.name));
            }
        }
        by_family.entry(formula::family(config).unwrap().title).or_default().push(model);
    }
    let mut table = "| family | `model_type` | compared models | largest deviation |\n|---|---|---|---|\n".to_owned();
    for family in families::all() {
        // Families of parts have names that no config contains.
        if family.types.iter().all(|name| name.contains(' ')) {
            continue;
        }
        let compared = by_family.remove(family.title).unwrap_or_default();
        let mut largest = 0.0_f64;
        let shown: Vec<String> = compared
            .iter()
            .map(|model| {
                let parameters = inspect_config(model.config.clone()).parameters.unwrap();
                #[allow(clippy::cast_precision_loss)]
                let deviation = (parameters.count as f64 - model.parameters).abs() / model.parameters * 100.0;
                largest = largest.max(deviation);
                format!("{} {}", short(&model.name), parameters.size)
            })
            .collect();
        let shown = if shown.is_empty() {
            as_part.remove(family.title).map(|parts| format!("part of {}", parts.join(", "))).into_iter().collect()
        } else {
            shown
        };
        assert!(!shown.is_empty(), "no model of `corpus` is of the family {}", family.title);
        let largest = if compared.is_empty() { String::new() } else { format!("{largest:.1} %") };
        writeln!(table, "| {} | {} | {} | {largest} |", family.title, code(family.types.iter().copied()), shown.join(", ")).unwrap();
    }
    assert!(by_family.is_empty());
    table
}

fn quantization_table() -> String {
    let mut rows: Vec<(String, Vec<&str>)> = Vec::new();
    for (method, rule) in METHODS {
        let name = match rule {
            Rule::Type(name, _) => format!("`{name}`"),
            Rule::Integers(field, default) => format!("`int` and the bits, from `{field}`; without it `int{default}`"),
            Rule::BitsAndBytes => "`load_in_4bit`: `bnb_4bit_quant_type`, so `nf4` or `fp4`; `load_in_8bit`: `int8`".to_owned(),
            Rule::CompressedTensors => {
                "by the first group: `type: float` is `fp` and the bits, `int` is `int` and the bits; `format` nvfp4-pack-quantized is `nvfp4`, \
                 mxfp4-pack-quantized `mxfp4`"
                    .to_owned()
            }
            Rule::ModelOpt => "by `quant_algo`: FP8 `fp8`, NVFP4 `nvfp4`, MXFP4 `mxfp4`, W4A16_AWQ `int4`, INT8_SQ `int8`".to_owned(),
            Rule::TypeName(fields) => format!("`int8`, `int4`, `int2` or `fp8`, by the type in {}", code(fields.iter().copied())),
            Rule::Method => "the method itself".to_owned(),
        };
        match rows.iter_mut().find(|(other, _)| *other == name) {
            Some((_, methods)) => methods.push(method),
            None => rows.push((name, vec![method])),
        }
    }
    let mut table = "| `quant_method` | `quantization` |\n|---|---|\n".to_owned();
    for (name, methods) in rows {
        writeln!(table, "| {} | {name} |", code(methods)).unwrap();
    }
    table
}

fn capability_table() -> String {
    let mut table = "| the first that holds | `modelCapabilities` |\n|---|---|\n".to_owned();
    for rule in RULES {
        let gives = match rule.gives {
            Ok(capabilities) => code(capabilities.iter().map(|capability| capability.as_str())),
            Err(why) => format!("unset: {why}"),
        };
        writeln!(table, "| {} | {gives} |", rule.about).unwrap();
    }
    for (parts, capability) in PIPELINES {
        let parts = code(parts.iter().copied());
        writeln!(table, "| class of a pipeline with {parts} | `{}` |", capability.as_str()).unwrap();
    }
    table
}

fn limit_table() -> String {
    let mut table = "| what | at most |\n|---|---|\n".to_owned();
    let megabytes = |bytes: usize| format!("{} MiB", bytes >> 20);
    let number = |number: u64| {
        let digits = number.to_string();
        let groups: Vec<&str> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
        groups.join(",")
    };
    for (what, limit) in [
        ("config.json, model_index.json and their like", megabytes(limits::MAX_CONFIG_BYTES)),
        ("values in one of them", number(limits::MAX_CONFIG_VALUES as u64)),
        ("an index of shards", megabytes(limits::MAX_INDEX_BYTES)),
        ("the header of a safetensors file", megabytes(limits::MAX_HEADER_BYTES)),
        ("tensors of a model", number(limits::MAX_TENSORS as u64)),
        ("dimensions of a tensor", number(limits::MAX_DIMENSIONS as u64)),
        ("files and folders of a model", number(limits::MAX_FILES as u64)),
        ("folders within each other", number(limits::MAX_DEPTH as u64)),
        ("a number that a size is computed from", number(limits::MAX_DIMENSION)),
        ("layers", number(limits::MAX_LAYERS)),
        ("parameters that a config describes", number(limits::MAX_PARAMETERS)),
        ("notes of a model; later ones are counted", number(limits::MAX_NOTES as u64)),
    ] {
        writeln!(table, "| {what} | {limit} |").unwrap();
    }
    table
}

/// The page with a new table between its markers.
fn with_table(page: &str, name: &str, table: &str) -> String {
    let begin = format!("<!-- {name}: written by `cargo xtask generate` -->\n");
    let (before, rest) = page.split_once(&begin).unwrap_or_else(|| panic!("the page has no {begin}"));
    let (_, after) = rest.split_once("<!-- end -->\n").unwrap_or_else(|| panic!("the table of {name} has no end"));
    format!("{before}{begin}\n{table}\n<!-- end -->\n{after}")
}

#[test]
fn the_page_has_the_tables_of_the_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let page = fs::read_to_string(&path).unwrap();
    let tables = [
        ("families", family_table()),
        ("quantization", quantization_table()),
        ("capabilities", capability_table()),
        ("limits", limit_table()),
    ];
    let expected = tables.into_iter().fold(page.clone(), |page, (name, table)| with_table(&page, name, &table));
    if env::var_os(UPDATE).is_some() {
        fs::write(&path, expected).unwrap();
        return;
    }
    assert!(page == expected, "docs/models.md isn't that of the code: run `cargo xtask generate`");
}
