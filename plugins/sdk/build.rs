//! Describes each world of ../../wit for the section of a core module that tells what component it is to become.
//!
//! wit-bindgen writes such a section, but for one world a crate, together with types of its own. All policies shall share one set
//! of types and yet export no more than they answer, so the sections are made here, and `export!` takes the one that fits.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};
use wit_component::{StringEncoding, metadata};
use wit_parser::Resolve;

const WIT: &str = "../../wit";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={WIT}");
    println!("cargo:rerun-if-changed=build.rs");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);

    let mut resolve = Resolve::default();
    let (package, _) = resolve.push_path(manifest.join(WIT))?;
    let mut code = String::new();
    for (name, world) in &resolve.packages[package].worlds {
        let section = metadata::encode(&resolve, *world, StringEncoding::UTF8, None, false)?;
        let constant = name.replace('-', "_").to_uppercase();
        writeln!(code, "/// The world `{name}`, as the component's encoder wants it.")?;
        writeln!(code, "pub const {constant}: [u8; {}] = *include_bytes!(\"{name}.bin\");", section.len())?;
        fs::write(out.join(format!("{name}.bin")), section)?;
    }
    fs::write(out.join("worlds.rs"), code)?;
    Ok(())
}
