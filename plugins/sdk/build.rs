//! Describes each world of ../../wit, in each version, for the sections of a core module that tell what component it is to become.
//!
//! wit-bindgen writes such a section, but for one world a crate, together with types of its own. All policies shall share one set
//! of types and yet export no more than they answer, so the sections are made here, and `export!` takes the one that fits.

use std::{env, error::Error, fmt::Write as _, fs, path::PathBuf};
use wit_component::{StringEncoding, metadata};
use wit_parser::Resolve;

const WIT: &str = "../../wit";

/// A folder of WIT, and the module of the constants that it becomes.
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
