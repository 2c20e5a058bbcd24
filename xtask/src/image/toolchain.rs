//! Builds for musl: a C compiler for the crates that contain C, and no path of this machine in the outcome.

use crate::{build, guard::Guarded, tools};
use anyhow::{Context, Result, anyhow, bail};
use pointsman_harness::{target_dir, workspace};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Zig at a fixed version, as PyPI has it: a C compiler for all targets with musl's headers, whose output is the same everywhere.
const ZIG: &str = "xtask/src/image/requirements.txt";

/// The linker, which Rust brings for its own targets.
const LINKER: &str = "rust-lld";

/// In KiB: what mimalloc reserves at once. By default it is 1 GiB, which a process that limits its own address space to less would have
/// in spite of that.
const RESERVED: &str = "-DMI_DEFAULT_ARENA_RESERVE=65536L";

/// What builds for musl.
pub(crate) struct Toolchain {
    folder: PathBuf,
    zig: PathBuf,
    /// Folders of this machine, and their names in what is built. Of those that fit rustc takes the last.
    renamed: Vec<(PathBuf, String)>,
}

impl Toolchain {
    /// Adds the targets to Rust, and installs Zig below `folder` unless it is there.
    pub(crate) fn install(folder: &Path, targets: &[&str]) -> Result<Self> {
        tools::targets(targets)?;
        let zig = folder.join("zig/ziglang/zig");
        let requirements = workspace().join(ZIG);
        let also = fs::read_to_string(&requirements).with_context(|| format!("reading {}", requirements.display()))?;
        build::Sources { folders: &[], also: &also }.unless_built(&folder.join("zig-stamp"), &[&zig], || {
            tools::python()?;
            println!("installing Zig, which compiles what is C");
            let (venv, packages) = (folder.join("venv"), folder.join("zig"));
            let create = Guarded::new("python3")?.args(["-m", "venv", "--clear"]).args([&venv]);
            build::logged(folder, "a virtual environment for pip", create)?;
            let install = Guarded::new(venv.join("bin/pip"))?
                .args(["--disable-pip-version-check", "install", "--require-hashes", "--upgrade", "--target"])
                .args([&packages, Path::new("--requirement"), &requirements]);
            build::logged(folder, "Zig", install)
        })?;
        let toolchain = Self { folder: folder.to_owned(), zig, renamed: renamed()? };
        toolchain.write_rustc()?;
        targets.iter().try_for_each(|target| toolchain.write_wrappers(target))?;
        Ok(toolchain)
    }

    /// `cargo` with what it needs for a target.
    pub(crate) fn cargo(&self, target: &str, args: &[&str]) -> Result<Guarded> {
        let (lower, upper) = (target.replace('-', "_"), target.replace('-', "_").to_uppercase());
        let cache = self.folder.join("zig-cache");
        let cargo = build::cargo(args)?
            .args(["--locked", "--target", target])
            // Empty, they win over those of a configuration file.
            .env("CARGO_ENCODED_RUSTFLAGS", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("RUSTC_WRAPPER", self.rustc())
            .env(&format!("CARGO_TARGET_{upper}_LINKER"), LINKER)
            .env(&format!("CC_{lower}"), self.wrapper("cc", target))
            .env(&format!("AR_{lower}"), self.wrapper("ar", target))
            .env(&format!("CFLAGS_{lower}"), RESERVED)
            .env("ZIG_GLOBAL_CACHE_DIR", &cache)
            .env("ZIG_LOCAL_CACHE_DIR", &cache)
            // mimalloc contains the time of its compilation. The commit's would depend on what was built before: neither cargo nor Zig compiles
            // it again for another time.
            .env("SOURCE_DATE_EPOCH", "0");
        Ok(cargo)
    }

    /// Builds the host for a target, and tells what is in the file.
    pub(crate) fn host(&self, target: &str) -> Result<Vec<u8>> {
        self.cargo(target, &["build", "--profile", "dist", "--package", "pointsman", "--bin", "pointsman"])?
            .succeed(&format!("building the host for {target}"))?;
        let file = target_dir().join(target).join("dist/pointsman");
        let binary = fs::read(&file).with_context(|| format!("reading {}", file.display()))?;
        if let Some(path) = find_path(&binary, self.renamed.iter().map(|(from, _)| from.as_path())) {
            bail!("{} contains {}, a path of this machine, and would differ on another one", file.display(), path.display());
        }
        Ok(binary)
    }

    fn wrapper(&self, program: &str, target: &str) -> PathBuf {
        self.folder.join(format!("zig-{program}-{target}"))
    }

    fn rustc(&self) -> PathBuf {
        self.folder.join("rustc-without-paths")
    }

    /// The compiler, with names of its own for the folders of this machine. Cargo doesn't know: it would name the folders of build scripts,
    /// some of which are in the binary, by a digest of the flags.
    fn write_rustc(&self) -> Result<()> {
        let flags: Vec<_> = self.renamed.iter().map(|(from, to)| format!("'--remap-path-prefix={}={to}'", from.display())).collect();
        write_program(&self.rustc(), &format!("#!/bin/sh\nexec \"$@\" {}\n", flags.join(" ")))
    }

    /// Programs as crates call them. The flag by which they name the target to clang is in Rust's words; Zig has others.
    fn write_wrappers(&self, target: &str) -> Result<()> {
        let architecture = target.split('-').next().unwrap_or(target);
        let zig = self.zig.display();
        let without_target = "for argument do shift; case \"$argument\" in --target=*) ;; *) set -- \"$@\" \"$argument\" ;; esac; done\n";
        let compiler = format!("#!/bin/sh\n{without_target}exec '{zig}' cc -target {architecture}-linux-musl \"$@\"\n");
        let archiver = format!("#!/bin/sh\nexec '{zig}' ar \"$@\"\n");
        for (program, script) in [("cc", compiler), ("ar", archiver)] {
            write_program(&self.wrapper(program, target), &script)?;
        }
        Ok(())
    }
}

pub(crate) fn write_program(file: &Path, script: &str) -> Result<()> {
    fs::write(file, script).with_context(|| format!("writing {}", file.display()))?;
    fs::set_permissions(file, fs::Permissions::from_mode(0o755)).with_context(|| format!("making {} a program", file.display()))
}

/// The more special ones come after the others, as in `host/sandbox/build.rs`.
fn renamed() -> Result<Vec<(PathBuf, String)>> {
    let ask = |args: &[&str]| tools::output("rustc", args).ok_or_else(|| anyhow!("`rustc {}` fails", args.join(" ")));
    let sources = Path::new(ask(&["--print", "sysroot"])?.trim()).join("lib/rustlib/src/rust");
    let version = ask(&["--version", "--verbose"])?;
    let commit = version.lines().find_map(|line| line.strip_prefix("commit-hash: ")).unwrap_or("unknown").to_owned();
    let mut renamed = vec![
        (workspace(), "/pointsman".to_owned()),
        (std::path::absolute(target_dir())?, "/pointsman/target".to_owned()),
        (sources, format!("/rustc/{commit}")),
    ];
    let home = env::var_os("CARGO_HOME").map(PathBuf::from).or_else(|| env::home_dir().map(|home| home.join(".cargo")));
    if let Some(home) = home {
        // Their names differ where a mirror stands in for crates.io.
        let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
        renamed.push((home, "/cargo".to_owned()));
        renamed.extend(registries.map(|registry| (registry.path(), "/crates".to_owned())));
    }
    Ok(renamed)
}

/// The first of the paths that is in there.
fn find_path<'p>(binary: &[u8], mut paths: impl Iterator<Item = &'p Path> + Clone) -> Option<&'p Path> {
    let known: Vec<&[u8]> = paths.clone().map(|path| path.as_os_str().as_encoded_bytes()).collect();
    let slashes = binary.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    let found = slashes.map(|(at, _)| &binary[at..]).find_map(|rest| known.iter().position(|path| rest.starts_with(path)))?;
    paths.nth(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_of_this_machine_is_found() {
        let paths = || [Path::new("/home/user/.cargo"), Path::new("/work/tree")].into_iter();
        assert_eq!(find_path(b"\0at /work/tree/host/src/main.rs", paths()), Some(Path::new("/work/tree")));
        assert_eq!(find_path(b"\0at /crates/serde/src/lib.rs /work/", paths()), None);
    }
}
