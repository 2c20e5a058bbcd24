//! Adapters that are loaded in addition to a model.

use crate::{
    engine::{self, Engine},
    node::{By, Node},
    pod::add_arguments,
};

/// Whether the adapter's name is also valid as the name of a folder. The name is also a part of an argument, so it must not contain spaces
/// or `=`.
pub(crate) fn is_folder(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    name.split('/').all(|part| !part.is_empty() && !part.starts_with('.') && part.chars().all(plain))
}

/// Adds the adapters, each with a name and a path, to the engine's arguments, unless its command line already has them.
pub(crate) fn tell<'a, 'n>(engine: Engine, adapters: impl Iterator<Item = (&'n str, &'n str)>, main: &mut Node<'a>, by: By<'a>) {
    let given = engine::given(main);
    let is_given = |flag: &str| given.iter().any(|given| given == flag);
    let mut words = Vec::new();
    if !is_given("--enable-lora") {
        words.push("--enable-lora".to_owned());
    }
    if !is_given(engine.adapters()) {
        words.push(engine.adapters().to_owned());
        words.extend(adapters.map(|(name, path)| format!("{name}={path}")));
    }
    add_arguments(main, words, by);
}
