//! A plugin's file, and the tools to inspect a plugin without a cluster.

use crate::{
    cli::{cache::CacheArgs, exit::InputResult, progress},
    load::{Described, Loader},
};
use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use flate2::{Compression, read::GzDecoder, write::GzEncoder};
use pointsman_core::decide::member::Member;
use pointsman_crds::policy::{plugin::PluginInstances, set::PolicySetPlugin};
use pointsman_sandbox::{
    digest::Digest,
    engine::Engines,
    limits::{LARGEST_BINARY, Limits},
};
use std::{
    fs,
    io::{Read, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

/// Plugin file to use
#[derive(Args, Debug)]
pub(super) struct FileArgs {
    /// Plugin: a component, or a core module that embeds its interfaces; uncompressed or compressed with gzip
    file: PathBuf,
    #[command(flatten)]
    cache: CacheArgs,
}

/// A plugin's bytes.
#[derive(Debug)]
pub(super) struct PluginFile {
    /// The path of its file.
    pub(super) path: PathBuf,
    /// The WebAssembly.
    pub(super) bytes: Vec<u8>,
    /// Whether the file is compressed.
    pub(super) compressed: bool,
}

impl PluginFile {
    pub(super) fn read(path: &Path) -> Result<Self> {
        let reading = || format!("reading the plugin {}", path.display());
        let found = fs::metadata(path).with_context(reading).readable()?;
        if found.len() > LARGEST_BINARY as u64 {
            bail!("{} has {} bytes, and a plugin at most {LARGEST_BINARY}", path.display(), found.len());
        }
        let raw = fs::read(path).with_context(reading).readable()?;
        let compressed = raw.starts_with(&[0x1f, 0x8b]);
        let bytes = if compressed { unpacked(&raw).with_context(|| path.display().to_string())? } else { raw };
        Ok(Self { path: path.to_owned(), bytes, compressed })
    }

    pub(super) fn digest(&self) -> Digest {
        Digest::hash(&self.bytes)
    }

    /// Its compressed size, in bytes.
    pub(super) fn packed_size(&self) -> Result<usize> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(&self.bytes)?;
        Ok(packer.finish()?.len())
    }
}

/// A few bytes of gzip can expand to any size: no more than the limit is decompressed.
fn unpacked(raw: &[u8]) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(raw)
        .take(LARGEST_BINARY as u64 + 1)
        .read_to_end(&mut bytes)
        .context("it has the header of gzip, but can't be unpacked")?;
    if bytes.len() > LARGEST_BINARY {
        bail!("unpacked it has more than the {LARGEST_BINARY} bytes that a plugin may have");
    }
    Ok(bytes)
}

/// A plugin that can be inspected and loaded.
#[derive(Debug)]
pub(super) struct PluginUnderTest {
    pub(super) plugin: PluginFile,
    pub(super) described: Described,
    loader: Loader,
}

impl PluginUnderTest {
    /// Reads, checks and compiles the plugin, and gets its description.
    pub(super) fn new(args: &FileArgs) -> Result<Self> {
        Self::from_file(PluginFile::read(&args.file)?, &args.cache)
    }

    pub(super) fn from_file(plugin: PluginFile, cache: &CacheArgs) -> Result<Self> {
        progress::set(format!("compiling {}", plugin.path.display()));
        let engines = Engines::with_slots(4).map_err(|error| anyhow!("this machine can't run plugins: {error:#}"))?;
        let loader = Loader::new(Arc::new(engines), cache.compilers()?);
        let described = loader
            .describe(&plugin.bytes, Limits::DEFAULT)
            .map_err(|error| anyhow!("{} is not a plugin: {error}", plugin.path.display()))?;
        Ok(Self { plugin, described, loader })
    }

    /// The plugin with a configuration, bound at all of its points.
    pub(super) fn load(&self, config: &str, instances: PluginInstances) -> Result<Member, String> {
        let name = self.described.description.name.clone();
        let digest = self.plugin.digest().to_string();
        let bound = PolicySetPlugin { name, digest, config: Some(config.to_owned()), instances, ..PolicySetPlugin::default() };
        self.loader.load(bound, &self.plugin.bytes).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unpacked_is_bounded() {
        let packed = |size: usize| {
            let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
            packer.write_all(&vec![0; size]).unwrap();
            packer.finish().unwrap()
        };
        assert_eq!(unpacked(&packed(LARGEST_BINARY)).unwrap().len(), LARGEST_BINARY);
        assert!(unpacked(&packed(LARGEST_BINARY + 1)).unwrap_err().to_string().contains("more than"));
        assert!(unpacked(&[0x1f, 0x8b, 0]).unwrap_err().to_string().contains("can't be unpacked"));
    }
}
