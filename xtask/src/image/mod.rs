//! The container image of the host, for each platform, built without a daemon: the same commit gives the same digest everywhere.

mod layout;
mod sbom;
mod toolchain;
mod trial;

pub(crate) use trial::{require_tools, trial};

use crate::{build, tools};
use anyhow::{Context, Result, bail};
use layout::{Descriptor, Entry, Layer, Layout};
use pointsman_harness::{target_dir, workspace};
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};
use toolchain::Toolchain;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Builds only for this platform. The image's digest is then another one.
    #[arg(long, value_name = "PLATFORM", value_parser = Platform::parse)]
    platform: Option<&'static Platform>,
    /// Builds for all platforms and tries the images, as `cargo xtask test --full` does.
    #[arg(long, conflicts_with = "platform")]
    trial: bool,
}

/// What an image is built for.
#[derive(PartialEq, Eq)]
pub(crate) struct Platform {
    /// In the words of OCI.
    architecture: &'static str,
    /// In Rust's words, which are also QEMU's.
    cpu: &'static str,
    /// The number of the processor in an ELF file, as binfmt_misc has it.
    elf_machine: &'static str,
    target: &'static str,
}

const PLATFORMS: [Platform; 2] = [
    Platform { architecture: "amd64", cpu: "x86_64", elf_machine: r"\x3e\x00", target: "x86_64-unknown-linux-musl" },
    Platform { architecture: "arm64", cpu: "aarch64", elf_machine: r"\xb7\x00", target: "aarch64-unknown-linux-musl" },
];

impl Platform {
    fn parse(name: &str) -> Result<&'static Self, String> {
        let known = PLATFORMS.iter().find(|platform| name == platform.name());
        known.ok_or_else(|| format!("it is one of {}", PLATFORMS.iter().map(Self::name).collect::<Vec<_>>().join(", ")))
    }

    fn name(&self) -> String {
        format!("linux/{}", self.architecture)
    }
}

/// What an image is built from.
pub(crate) struct Commit {
    /// With `-dirty` if the tree has changes that aren't committed.
    revision: String,
    /// Since 1970, and in words.
    seconds: i64,
    created: String,
    dirty: bool,
}

impl Commit {
    fn head() -> Result<Self> {
        let described = git(&["log", "-1", "--format=%H %ct %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"])?;
        let mut words = described.split_whitespace();
        let (Some(hash), Some(seconds), Some(created)) = (words.next(), words.next(), words.next()) else {
            bail!("git doesn't tell the commit: {described}");
        };
        let dirty = !git(&["status", "--porcelain"])?.is_empty();
        let revision = if dirty { format!("{hash}-dirty") } else { hash.to_owned() };
        Ok(Self { revision, seconds: seconds.parse()?, created: created.to_owned(), dirty })
    }

    fn labels(&self) -> Value {
        json!({
            "org.opencontainers.image.created": self.created,
            "org.opencontainers.image.description": "A Kubernetes controller for serving AI models, with pluggable decisions",
            "org.opencontainers.image.licenses": "Apache-2.0",
            "org.opencontainers.image.revision": self.revision,
            "org.opencontainers.image.title": "Pointsman",
            "org.opencontainers.image.version": VERSION,
        })
    }
}

/// That of the whole workspace; also the image's tag.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const PASSWD: &[u8] = b"root:x:0:0:root:/:/sbin/nologin\npointsman:x:65532:65532:pointsman:/:/sbin/nologin\n";
const GROUP: &[u8] = b"root:x:0:\npointsman:x:65532:\n";

/// Built images.
pub(crate) struct Image {
    /// The layout as a folder, and packed.
    folder: PathBuf,
    archive: PathBuf,
    whole: Descriptor,
    platforms: Vec<(&'static Platform, Descriptor)>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    tools::rust()?;
    if args.trial {
        require_tools()?;
        return trial();
    }
    let platforms: Vec<_> = PLATFORMS.iter().filter(|platform| args.platform.is_none_or(|only| only == *platform)).collect();
    let commit = Commit::head()?;
    let (_, image) = build(&platforms, &commit)?;
    let place = |path: &Path| path.strip_prefix(workspace()).unwrap_or(path).display().to_string();
    println!();
    for (platform, manifest) in &image.platforms {
        println!("{}  {}  {}", platform.name(), manifest.digest, megabytes(manifest.total));
    }
    println!("image        {}  revision {}", image.whole.digest, commit.revision);
    let (folder, archive) = (place(&image.folder), place(&image.archive));
    println!("\nIt is in {folder}, and packed in {archive}. Push it, then name it to Helm or to kustomize (docs/install.md):");
    println!("  skopeo copy --all oci:{folder}:{VERSION} docker://registry.example.com/pointsman:{VERSION}");
    Ok(())
}

/// Builds the images of these platforms, and tells by what.
fn build(platforms: &[&'static Platform], commit: &Commit) -> Result<(Toolchain, Image)> {
    let home = std::path::absolute(target_dir().join("image"))?;
    let _lock = build::lock(&home, "the image")?;
    if commit.dirty {
        eprintln!("warning: the tree has changes that aren't committed: the image is marked as dirty, and nobody can build it again");
    }
    let targets: Vec<_> = platforms.iter().map(|platform| platform.target).collect();
    let toolchain = Toolchain::install(&home.join("tools"), &targets)?;
    let sboms = sbom::Generator::install(&home.join("tools"))?;

    let license = fs::read(workspace().join("LICENSE")).context("reading LICENSE")?;
    let base = Layer::new(
        "users and licence",
        vec![
            Entry::folder("etc/", 0o755),
            Entry::file("etc/group", 0o644, GROUP),
            Entry::file("etc/passwd", 0o644, PASSWD),
            Entry::file("usr/share/doc/pointsman/LICENSE", 0o644, &license),
            // For who runs the image by hand. In a cluster the root is read-only, and the cache is a volume.
            Entry::folder("tmp/", 0o1777),
        ],
    )?;
    let folder = home.join("oci");
    let layout = Layout::new(&folder)?;
    let mut built = Vec::new();
    for &platform in platforms {
        println!("building for {}", platform.name());
        let binary = toolchain.host(platform.target)?;
        let sbom = sboms.list(platform.target, commit)?;
        fs::write(home.join(format!("pointsman-{}.cdx.json", platform.architecture)), &sbom)?;
        let host = vec![Entry::file("pointsman", 0o755, &binary), Entry::file("usr/share/sbom/pointsman.cdx.json", 0o644, &sbom)];
        built.push((platform, layout.add(platform, &[&base, &Layer::new("the host, and what it contains", host)?], commit)?));
    }
    let manifests: Vec<_> = built.iter().map(|(_, manifest)| manifest.clone()).collect();
    let whole = layout.finish(&manifests, VERSION, commit)?;
    let archive = home.join("pointsman.tar");
    layout.pack(&archive)?;
    Ok((toolchain, Image { folder, archive, whole, platforms: built }))
}

/// The files that git knows, as they are in the tree.
fn tracked_files() -> Result<Vec<PathBuf>> {
    let listed = git(&["ls-files", "-z"])?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(PathBuf::from).filter(|file| workspace().join(file).exists()).collect())
}

fn git(args: &[&str]) -> Result<String> {
    let advice = "git is needed, and a clone: the commit is what the image is named by";
    let output = Command::new("git").args(args).env("TZ", "UTC").current_dir(workspace()).output().context(advice)?;
    if !output.status.success() {
        bail!("{advice} (`git {}`: {})", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// In the megabytes of registries.
fn megabytes(bytes: usize) -> String {
    format!("{}.{} MB", bytes / 1_000_000, bytes / 100_000 % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_platform_is_named_as_containers_are() {
        assert!(Platform::parse("linux/arm64").is_ok_and(|platform| platform.cpu == "aarch64"));
        assert!(Platform::parse("arm64").is_err());
    }

    #[test]
    fn a_size_has_one_digit_after_the_point() {
        assert_eq!(megabytes(23_456_789), "23.4 MB");
        assert_eq!(megabytes(99_999), "0.0 MB");
    }
}
