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
    /// Builds only for this platform. The image then has a different digest.
    #[arg(long, value_name = "PLATFORM", value_parser = Platform::parse)]
    platform: Option<&'static Platform>,
    /// Builds for all platforms and tries the images, as `cargo xtask test --full` does.
    #[arg(long, conflicts_with = "platform")]
    trial: bool,
}

/// A platform that images are built for.
#[derive(PartialEq, Eq)]
pub(crate) struct Platform {
    /// OCI's name of the processor.
    architecture: &'static str,
    /// Rust's name of the processor, which is also QEMU's.
    cpu: &'static str,
    /// The processor's number in an ELF file, as binfmt_misc expects it.
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
        known.ok_or_else(|| format!("specify one of {}", PLATFORMS.iter().map(Self::name).collect::<Vec<_>>().join(", ")))
    }

    fn name(&self) -> String {
        format!("linux/{}", self.architecture)
    }
}

/// The commit that an image is built from.
pub(crate) struct Commit {
    /// With `-dirty` if the tree has uncommitted changes.
    revision: String,
    /// Since 1970; `created` is the same time as text.
    seconds: i64,
    created: String,
    dirty: bool,
}

impl Commit {
    fn head() -> Result<Self> {
        let described = git(&["log", "-1", "--format=%H %ct %cd", "--date=format-local:%Y-%m-%dT%H:%M:%SZ"])?;
        let mut words = described.split_whitespace();
        let (Some(hash), Some(seconds), Some(created)) = (words.next(), words.next(), words.next()) else {
            bail!("git prints no commit: {described}");
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

/// The version of the whole workspace, which is also the image's tag.
const VERSION: &str = env!("CARGO_PKG_VERSION");

const PASSWD: &[u8] = b"root:x:0:0:root:/:/sbin/nologin\npointsman:x:65532:65532:pointsman:/:/sbin/nologin\n";
const GROUP: &[u8] = b"root:x:0:\npointsman:x:65532:\n";

/// Built images.
pub(crate) struct Image {
    /// The layout; `archive` is the same layout, packed.
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
    println!("\nThe image is in {folder}, and packed in {archive}. Push it, then set it in Helm or kustomize (docs/install.md):");
    println!("  skopeo copy --all oci:{folder}:{VERSION} docker://registry.example.com/pointsman:{VERSION}");
    Ok(())
}

/// Builds the images for these platforms, and returns them with the toolchain.
fn build(platforms: &[&'static Platform], commit: &Commit) -> Result<(Toolchain, Image)> {
    let home = std::path::absolute(target_dir().join("image"))?;
    let _lock = build::lock(&home, "the image")?;
    if commit.dirty {
        eprintln!("warning: the tree has uncommitted changes: the image is marked as dirty, and nobody can reproduce it");
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
            // For users who run the image manually. In a cluster the root is read-only, and the cache is a volume.
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

/// The files that git tracks, if they exist in the tree.
fn tracked_files() -> Result<Vec<PathBuf>> {
    let listed = git(&["ls-files", "-z"])?;
    Ok(listed.split('\0').filter(|file| !file.is_empty()).map(PathBuf::from).filter(|file| workspace().join(file).exists()).collect())
}

fn git(args: &[&str]) -> Result<String> {
    let advice = "git and a clone are needed: the image is labelled with the commit";
    let output = Command::new("git").args(args).env("TZ", "UTC").current_dir(workspace()).output().context(advice)?;
    if !output.status.success() {
        bail!("{advice} (`git {}`: {})", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim_end_matches('\n').to_owned())
}

/// In decimal megabytes, as registries show sizes.
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
