//! Checks the order of the modules of `host/`, as docs/architecture.md states it: a module may use only those above it in its crate's list.
//! Cargo enforces the order of the crates, and `purity` limits the dependencies of the lower crates.

use crate::build;
use anyhow::{Context, Result, bail};
use pointsman_harness::workspace;
use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use std::{
    fs,
    path::{Path, PathBuf},
};

const PAGE: &str = "docs/architecture.md";

/// A crate and its modules: the first uses no other module, and the last may use all.
struct Layers {
    krate: String,
    modules: Vec<String>,
}

/// A module's use of a module that comes after it.
#[derive(Debug, PartialEq, Eq)]
struct Upward {
    line: usize,
    from: String,
    to: String,
}

/// Fails if a module uses a later one, or if the page and a crate have different modules.
pub(crate) fn check() -> Result<()> {
    let page = fs::read_to_string(workspace().join(PAGE)).with_context(|| format!("reading {PAGE}"))?;
    let mut wrong = Vec::new();
    for layers in read(&page)? {
        let source = workspace().join(&layers.krate).join("src");
        wrong.extend(unlisted(&layers, &source)?);
        for module in &layers.modules {
            for file in files(&source, module)? {
                let text = fs::read_to_string(&file).with_context(|| format!("reading {}", file.display()))?;
                let shown = file.strip_prefix(workspace()).unwrap_or(&file).display();
                let upward = upward(&layers.modules, &path_of(&source, &file), &text).with_context(|| format!("parsing {shown}"))?;
                wrong.extend(upward.into_iter().map(|Upward { line, from, to }| {
                    format!("{shown}:{line}: `{from}` uses `{to}`, which comes after it in {PAGE}: move the code, or the line on the page")
                }));
            }
        }
    }
    wrong.extend(purity()?);
    if wrong.is_empty() { Ok(()) } else { bail!("{}", wrong.join("\n")) }
}

/// Reads the lists on the page: fenced blocks that start with "layers" and the folder of a crate.
fn read(page: &str) -> Result<Vec<Layers>> {
    let mut all: Vec<Layers> = Vec::new();
    let mut open = false;
    for line in page.lines() {
        if let Some(krate) = line.strip_prefix("```layers ") {
            all.push(Layers { krate: krate.trim().to_owned(), modules: Vec::new() });
            open = true;
        } else if line.starts_with("```") {
            open = false;
        } else if let (true, Some(layers)) = (open, all.last_mut()) {
            layers.modules.push(line.trim().to_owned());
        }
    }
    if all.len() < 3 {
        bail!("{PAGE} lists the modules of only {} of the 3 crates below host/: add a block that begins with ```layers FOLDER", all.len());
    }
    Ok(all)
}

/// Finds the crate's modules that the page lacks, and the page's modules that the crate lacks.
fn unlisted(layers: &Layers, source: &Path) -> Result<Vec<String>> {
    let mut there = Vec::new();
    for entry in fs::read_dir(source).with_context(|| format!("reading {}", source.display()))? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let module = name.strip_suffix(".rs").unwrap_or(&name).to_owned();
        if !["lib", "main"].contains(&module.as_str()) && !there.contains(&module) {
            there.push(module);
        }
    }
    let krate = &layers.krate;
    let lacking = there.iter().filter(|module| !layers.modules.contains(module));
    let lacking = lacking.map(|module| format!("{krate}/src/{module} is missing in {PAGE}: add it to the list of {krate}"));
    let gone = layers.modules.iter().filter(|module| !there.contains(module));
    let gone = gone.map(|module| format!("{PAGE} lists the module `{module}` of {krate}, which doesn't exist: remove the line"));
    Ok(lacking.chain(gone).collect())
}

/// The source files of a module without its tests, which may use later modules.
fn files(source: &Path, module: &str) -> Result<Vec<PathBuf>> {
    let single = source.join(module).with_extension("rs");
    let mut files: Vec<PathBuf> = single.exists().then_some(single).into_iter().collect();
    let folder = source.join(module);
    if folder.exists() {
        files.extend(build::files(&folder)?);
    }
    files.retain(|file| {
        file.extension().is_some_and(|extension| extension == "rs") && !file.components().any(|part| is_tests(part.as_os_str()))
    });
    Ok(files)
}

fn is_tests(name: &std::ffi::OsStr) -> bool {
    name == "tests" || name == "tests.rs"
}

/// The path of a file's module within its crate.
fn path_of(source: &Path, file: &Path) -> Vec<String> {
    let below = file.strip_prefix(source).unwrap_or(file).with_extension("");
    let mut path: Vec<String> = below.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    if path.last().is_some_and(|last| last == "mod") {
        path.pop();
    }
    path
}

/// Finds where a file's text uses a module of its crate that comes after its own.
fn upward(modules: &[String], path: &[String], text: &str) -> Result<Vec<Upward>> {
    let tokens: TokenStream = text.parse().map_err(|error| anyhow::anyhow!("{error}"))?;
    let mut used = Vec::new();
    walk(tokens, &mut path.to_vec(), &mut used);
    let place = |module: &str| modules.iter().position(|listed| listed == module);
    let from = path.first().map_or("", String::as_str);
    let upward = used.into_iter().filter(|(_, to)| place(to) > place(from));
    Ok(upward.map(|(line, to)| Upward { line, from: from.to_owned(), to }).collect())
}

/// Collects the names directly below the crate's root from paths that start with `crate` or with enough `super`s.
fn walk(tokens: TokenStream, path: &mut Vec<String>, used: &mut Vec<(usize, String)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        match token {
            TokenTree::Ident(ident) if ident == "mod" => {
                if let (Some(TokenTree::Ident(name)), Some(TokenTree::Group(body))) = (tokens.get(at + 1), tokens.get(at + 2)) {
                    if name != "tests" {
                        path.push(name.to_string());
                        walk(body.stream(), path, used);
                        path.pop();
                    }
                    at += 2;
                }
            }
            TokenTree::Ident(ident) if (ident == "crate" || ident == "super") && !continues(&tokens, at) => {
                at = follow(&tokens, at, path, used);
            }
            TokenTree::Group(group) => walk(group.stream(), path, used),
            _ => {}
        }
        at += 1;
    }
}

/// Whether the token continues a path rather than starts one.
fn continues(tokens: &[TokenTree], at: usize) -> bool {
    matches!(at.checked_sub(1).and_then(|before| tokens.get(before)), Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
        && matches!(at.checked_sub(2).and_then(|before| tokens.get(before)), Some(TokenTree::Punct(punct)) if punct.as_char() == ':')
}

/// Follows a path from its `crate` or `super` to the first name below the root, if it gets that far. Returns the index of the last token
/// that it has read.
fn follow(tokens: &[TokenTree], mut at: usize, path: &[String], used: &mut Vec<(usize, String)>) -> usize {
    let mut depth = path.len();
    loop {
        match tokens.get(at) {
            Some(TokenTree::Ident(ident)) if ident == "crate" => depth = 0,
            Some(TokenTree::Ident(ident)) if ident == "super" => depth = depth.saturating_sub(1),
            _ => return at,
        }
        let is_colon = |token: Option<&TokenTree>| matches!(token, Some(TokenTree::Punct(punct)) if punct.as_char() == ':');
        if !(is_colon(tokens.get(at + 1)) && is_colon(tokens.get(at + 2))) {
            return at;
        }
        at += 3;
        match tokens.get(at) {
            Some(TokenTree::Ident(ident)) if ident == "super" => {}
            Some(TokenTree::Ident(name)) => {
                if depth == 0 {
                    used.push(first(name));
                }
                return at;
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => {
                if depth == 0 {
                    used.extend(heads(group.stream()));
                }
                return at;
            }
            _ => return at,
        }
    }
}

fn first(name: &Ident) -> (usize, String) {
    (name.span().start().line, name.to_string())
}

/// The first name of each branch of a use tree.
fn heads(tree: TokenStream) -> Vec<(usize, String)> {
    let mut heads = Vec::new();
    let mut begins = true;
    for token in tree {
        match token {
            TokenTree::Ident(name) if begins => {
                heads.push(first(&name));
                begins = false;
            }
            TokenTree::Punct(punct) if punct.as_char() == ',' => begins = true,
            _ => {}
        }
    }
    heads
}

/// The packages that a crate must not depend on, by the start of their names.
const FORBIDDEN: [(&str, &[&str]); 3] = [
    ("pointsman-sandbox", &["pointsman-crds", "k8s-openapi", "kube", "tokio", "hyper", "tower", "axum", "clap", "reqwest"]),
    ("pointsman-core", &["kube-client", "kube-runtime", "tokio", "hyper", "tower", "axum", "clap", "reqwest"]),
    ("pointsman-model", &["pointsman-crds", "k8s-openapi", "kube", "tokio", "hyper", "tower", "axum", "clap", "reqwest"]),
];

/// Finds Kubernetes clients, async runtimes, servers and command-line parsers among the dependencies of the crates below the host.
fn purity() -> Result<Vec<String>> {
    let mut wrong = Vec::new();
    for (package, forbidden) in FORBIDDEN {
        let tree = build::cargo_output(&["tree", "--package", package, "--edges", "normal", "--prefix", "none", "--format", "{p}"])?;
        for dependency in impure(&tree, forbidden) {
            wrong.push(format!(
                "{package} depends on {dependency}: `cargo tree --package {package} --edges normal --invert {dependency}` shows why"
            ));
        }
    }
    Ok(wrong)
}

fn impure(tree: &str, forbidden: &[&str]) -> Vec<String> {
    let names = tree.lines().filter_map(|line| line.split_whitespace().next());
    let mut found: Vec<String> = names
        .filter(|name| forbidden.iter().any(|forbidden| name == forbidden || name.starts_with(&format!("{forbidden}-"))))
        // These contain types and a derive macro, but no client.
        .filter(|name| !["kube-core", "kube-derive"].contains(name))
        .map(str::to_owned)
        .collect();
    found.sort();
    found.dedup();
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn page() -> Vec<Layers> {
        read(&fs::read_to_string(workspace().join(PAGE)).unwrap()).unwrap()
    }

    #[test]
    fn an_import_planted_into_any_layer_is_found() {
        for Layers { krate, modules } in page() {
            let source = workspace().join(&krate).join("src");
            for (at, module) in modules.iter().enumerate() {
                for file in files(&source, module).unwrap() {
                    let path = path_of(&source, &file);
                    let text = fs::read_to_string(&file).unwrap();
                    assert_eq!(upward(&modules, &path, &text).unwrap(), [], "{}", file.display());
                    let Some(after) = modules.get(at + 1) else { continue };
                    let supers = "super::".repeat(path.len());
                    for planted in [
                        format!("use crate::{after};"),
                        format!("use crate::{{{module}, {after}::{{self, A}}}};"),
                        format!("fn planted() {{ crate::{after}::a() }}"),
                        format!("fn planted() {{ if true {{ println!(\"{{}}\", crate::{after}::A) }} }}"),
                        format!("use {supers}{after};"),
                        format!("mod inner {{ use super::{supers}{after}::A; }}"),
                    ] {
                        let found = upward(&modules, &path, &format!("{text}\n{planted}\n")).unwrap();
                        let [Upward { to, .. }] = &found[..] else { panic!("{}: {planted}: {found:?}", file.display()) };
                        assert_eq!(to, after);
                    }
                }
            }
        }
    }

    #[test]
    fn tests_may_look_up() {
        let modules = ["low".to_owned(), "high".to_owned()];
        let text = "#[cfg(test)]\nmod tests {\n    use crate::high;\n}\nuse crate::high::A;\n";
        let found = upward(&modules, &["low".to_owned()], text).unwrap();
        assert_eq!(found, [Upward { line: 5, from: "low".to_owned(), to: "high".to_owned() }]);
    }

    #[test]
    fn a_client_or_a_runtime_among_the_dependencies_is_found() {
        let tree = "pointsman-core v0.1.0 (/a)\nkube v5.0.0\nkube-core v5.0.0\ntokio v1.0.0\nkube-client v5.0.0 (*)\ntokio-util v0.7.0\n";
        assert_eq!(impure(tree, FORBIDDEN[1].1), ["kube-client", "tokio", "tokio-util"]);
        assert_eq!(impure("kube-core v5.0.0\nkube v5.0.0\nserde v1.0.0\n", FORBIDDEN[0].1), ["kube"]);
    }
}
