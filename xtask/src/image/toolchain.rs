//! Builds for musl: with a C compiler for the crates that contain C, and without any path of this machine in the outcome.

use crate::{build, guard::Guarded, tools};
use anyhow::{Context, Result, anyhow, bail};
use pointsman_harness::{target_dir, workspace};
use std::{
    env, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

/// Zig at a fixed version, from PyPI: a C compiler for all targets with musl's headers, whose output is the same everywhere.
const ZIG: &str = "xtask/src/image/requirements.txt";

/// The linker, which Rust includes for its own targets.
const LINKER: &str = "rust-lld";

/// The memory that mimalloc reserves at once, in KiB. The default is 1 GiB, which a process would hold even if it limits its own address
/// space to less.
const RESERVED: &str = "-DMI_DEFAULT_ARENA_RESERVE=65536L";

/// The tools that build for musl.
pub(crate) struct Toolchain {
    folder: PathBuf,
    zig: PathBuf,
    /// Folders of this machine, and their names in the built files. If several match, rustc uses the last.
    renamed: Vec<(PathBuf, String)>,
}

impl Toolchain {
    /// Adds the targets to Rust, and installs Zig below `folder` unless it is already there.
    pub(crate) fn install(folder: &Path, targets: &[&str]) -> Result<Self> {
        tools::targets(targets)?;
        let zig = folder.join("zig/ziglang/zig");
        let requirements = workspace().join(ZIG);
        let also = fs::read_to_string(&requirements).with_context(|| format!("reading {}", requirements.display()))?;
        build::Sources { folders: &[], also: &also }.unless_built(&folder.join("zig-stamp"), &[&zig], || {
            tools::python()?;
            println!("installing Zig, which compiles the C code");
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

    /// `cargo` with the settings for a target.
    pub(crate) fn cargo(&self, target: &str, args: &[&str]) -> Result<Guarded> {
        let (lower, upper) = (target.replace('-', "_"), target.replace('-', "_").to_uppercase());
        let cache = self.folder.join("zig-cache");
        let cargo = build::cargo(args)?
            .args(["--locked", "--target", target])
            // Even empty variables take precedence over a configuration file.
            .env("CARGO_ENCODED_RUSTFLAGS", "")
            .env("RUSTC_WORKSPACE_WRAPPER", "")
            .env("RUSTC_WRAPPER", self.rustc())
            .env(&format!("CARGO_TARGET_{upper}_LINKER"), LINKER)
            .env(&format!("CC_{lower}"), self.wrapper("cc", target))
            .env(&format!("AR_{lower}"), self.wrapper("ar", target))
            .env(&format!("CFLAGS_{lower}"), RESERVED)
            .env("ZIG_GLOBAL_CACHE_DIR", &cache)
            .env("ZIG_LOCAL_CACHE_DIR", &cache)
            // mimalloc contains the time of its compilation. With the commit's time, the result would depend on earlier builds: neither
            // cargo nor Zig compiles it again when the time changes.
            .env("SOURCE_DATE_EPOCH", "0");
        Ok(cargo)
    }

    /// Builds the host for a target, and returns the content of the file.
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

    /// Writes a wrapper of rustc that renames the folders of this machine. Cargo must not see these flags: it would put a digest of them
    /// into the names of the build scripts' folders, some of which are in the binary.
    fn write_rustc(&self) -> Result<()> {
        let flags: Vec<_> = self.renamed.iter().map(|(from, to)| format!("'--remap-path-prefix={}={to}'", from.display())).collect();
        write_program(&self.rustc(), &format!("#!/bin/sh\nexec \"$@\" {}\n", flags.join(" ")))
    }

    /// Writes the programs that crates call. Crates specify the target for clang in a flag, with Rust's name of it. Zig has other names, so
    /// the wrapper replaces the flag.
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

/// The more specific folders come after the others, as in `host/sandbox/build.rs`.
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
        // The name of a registry's folder is different if a mirror replaces crates.io.
        let registries = fs::read_dir(home.join("registry/src")).into_iter().flatten().flatten();
        renamed.push((home, "/cargo".to_owned()));
        renamed.extend(registries.map(|registry| (registry.path(), "/crates".to_owned())));
    }
    Ok(renamed)
}

/// The path that occurs first in the binary.
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
