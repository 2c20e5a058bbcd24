//! Encodes each world of ../../wit, in each version, for the custom sections that describe the component a core module becomes.
//!
//! wit-bindgen also writes such a section, but only for one world per crate, and together with its own types. Policies share one set of
//! types, and each exports only the points at which it answers. This script therefore generates all sections, and `export!` selects the
//! right one.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};
use wit_component::{StringEncoding, metadata};
use wit_parser::Resolve;

const WIT: &str = "../../wit";

/// A folder of WIT, and the module for its constants.
const VERSIONS: [(&str, &str); 2] = [("0.1.0", "v0_1"), ("0.2.0-draft", "draft")];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed={WIT}");
    println!("cargo:rerun-if-changed=build.rs");
    let manifest = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("cargo sets CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);

    let mut code = String::new();
    for (version, module) in VERSIONS {
        let mut resolve = Resolve::default();
        let (package, _) = resolve.push_path(manifest.join(WIT).join(version))?;
        writeln!(code, "/// The worlds of {version}, as the component's encoder wants them.\npub mod {module} {{")?;
        for (name, world) in &resolve.packages[package].worlds {
            let section = metadata::encode(&resolve, *world, StringEncoding::UTF8, None, false)?;
            let constant = name.replace('-', "_").to_uppercase();
            writeln!(code, "/// The world `{name}`.")?;
            writeln!(code, "pub const {constant}: [u8; {}] = *include_bytes!(\"{module}-{name}.bin\");", section.len())?;
            fs::write(out.join(format!("{module}-{name}.bin")), section)?;
        }
        writeln!(code, "}}")?;
    }
    fs::write(out.join("worlds.rs"), code)?;
    Ok(())
}
