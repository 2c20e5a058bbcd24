//! Compilation runs in another process, with limits, and only once.

use crate::text::{Module, endpoints, plugin};
use pointsman_sandbox::{
    compile::{CompileError, Compilers},
    engine::{Engines, Use},
    limits::Limits,
    plugin::{Instances, Plugin},
};
use proptest::prelude::*;
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

fn program() -> PathBuf {
    env!("CARGO_BIN_EXE_pointsman").into()
}

/// A folder that is deleted with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        fs::read_dir(self.0.join("cache")).unwrap().map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

fn any() -> Vec<u8> {
    plugin(&Module::default())
}

fn answers(compilers: &Compilers, engines: &Arc<Engines>, use_: Use) {
    let compiled = compilers.load(engines, use_, &any()).unwrap();
    assert_eq!(compiled.points, ["scheduling-scoring"]);
    let plugin = Plugin::new(engines, use_, (&compiled.code, compiled.version), "{}", Limits::DEFAULT, Instances::Fresh).unwrap();
    assert_eq!(plugin.score(endpoints(&[])).unwrap().0, Vec::<f64>::new());
}

#[test]
fn a_component_is_compiled_once_a_use_and_a_damaged_or_deleted_cache_is_made_anew() {
    let folder = Folder::new("cache");
    let engines = Arc::new(Engines::with_slots(4).unwrap());
    let compilers = Compilers::new(program(), &folder.0.join("cache")).unwrap();
    answers(&compilers, &engines, Use::ControlPlane);
    answers(&compilers, &engines, Use::Hot);
    assert_eq!(folder.files().len(), 2, "{:?}", folder.files());

    // Without a compiler, only the cache works.
    let idle = Compilers::new("/nowhere/pointsman".into(), &folder.0.join("cache")).unwrap();
    answers(&idle, &engines, Use::ControlPlane);
    answers(&idle, &engines, Use::Hot);

    for file in folder.files() {
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(&file, bytes).unwrap();
    }
    assert!(idle.load(&engines, Use::Hot, &any()).is_err(), "a damaged file was used");
    answers(&compilers, &engines, Use::Hot);
    answers(&idle, &engines, Use::Hot);

    fs::remove_dir_all(folder.0.join("cache")).unwrap();
    answers(&compilers, &engines, Use::Hot);
}

#[test]
fn a_cache_that_others_can_write_to_is_refused() {
    let folder = Folder::new("shared");
    fs::set_permissions(&folder.0, fs::Permissions::from_mode(0o777)).unwrap();
    let refused = Compilers::new(program(), &folder.0).unwrap_err().to_string();
    assert!(refused.contains("writable by no other user"), "{refused}");
}

#[test]
fn compiling_is_bounded_in_time_and_memory() {
    let folder = Folder::new("bounds");
    let engines = Engines::with_slots(4).unwrap();
    let compilers = || Compilers::new(program(), &folder.0.join("cache")).unwrap();
    let late = compilers().bounded(Duration::ZERO, 4 << 30).load(&engines, Use::Hot, &any()).err().unwrap();
    assert_eq!(late.to_string(), "compiling it takes longer than 0 s");
    let poor = compilers().bounded(Duration::from_mins(1), 16 << 20).load(&engines, Use::Hot, &any()).err().unwrap();
    assert!(matches!(poor, CompileError::Crash(_) | CompileError::Refused(_)), "{poor}");
    assert_eq!(folder.files(), Vec::<PathBuf>::new());
}

#[test]
fn what_is_no_plugin_is_refused_with_a_sentence() {
    let folder = Folder::new("refused");
    let engines = Engines::with_slots(4).unwrap();
    let compilers = Compilers::new(program(), &folder.0.join("cache")).unwrap();
    let refused = compilers.load(&engines, Use::Hot, b"nonsense").err().unwrap();
    assert_eq!(refused.to_string(), "it is not WebAssembly: it must begin with the bytes 00 61 73 6d");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if std::env::var_os("POINTSMAN_TEST_FULL").is_some() { 5_000 } else { 100 }))]

    /// A single changed byte once overflowed the stack of the parser of a module's interfaces: that is why it runs in another process.
    #[test]
    fn no_change_of_a_plugin_s_bytes_harms_the_host(at: prop::sample::Index, byte: u8, end: prop::sample::Index, cut: bool) {
        let folder = Folder::new("mutated");
        let engines = Arc::new(Engines::with_slots(4).unwrap());
        let compilers = Compilers::new(program(), &folder.0.join("cache")).unwrap();
        let mut bytes = any();
        let place = at.index(bytes.len());
        bytes[place] = byte;
        if cut {
            bytes.truncate(end.index(bytes.len()));
        }
        match compilers.load(&engines, Use::ControlPlane, &bytes) {
            Ok(compiled) => {
                if let Ok(plugin) = Plugin::new(&engines, Use::ControlPlane, (&compiled.code, compiled.version), "{}", Limits::DEFAULT, Instances::Fresh) {
                    plugin.describe().ok();
                    plugin.score(endpoints(&[0.5, 1.0])).ok();
                }
            }
            Err(refused) => prop_assert!(!refused.to_string().is_empty() && !refused.to_string().contains('\n'), "{refused}"),
        }
    }
}
