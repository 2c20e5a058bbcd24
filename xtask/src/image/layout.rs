//! Layers, configurations and indexes of an OCI image layout, in bytes that depend only on their content.

use super::{Commit, Platform};
use anyhow::{Context, Result};
use flate2::{Compression, GzBuilder};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
};

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";
const LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The host's user in its container, the same as in `deploy/host/deployment.yaml`.
pub(crate) const USER: &str = "65532:65532";

/// One file or folder of a layer.
pub(crate) struct Entry<'a> {
    /// Without a leading slash.
    pub(crate) path: &'a str,
    pub(crate) mode: u32,
    /// None for a folder.
    pub(crate) content: Option<&'a [u8]>,
}

impl<'a> Entry<'a> {
    pub(crate) fn file(path: &'a str, mode: u32, content: &'a [u8]) -> Self {
        Self { path, mode, content: Some(content) }
    }

    pub(crate) fn folder(path: &'a str, mode: u32) -> Self {
        Self { path, mode, content: None }
    }
}

/// A compressed archive, and the digest of the uncompressed one.
pub(crate) struct Layer {
    what: &'static str,
    compressed: Vec<u8>,
    diff_id: String,
}

impl Layer {
    /// Packs the entries in the order of their paths, without times or owners.
    pub(crate) fn new(what: &'static str, mut entries: Vec<Entry<'_>>) -> Result<Self> {
        entries.sort_by_key(|entry| entry.path);
        let mut archive = tar::Builder::new(Vec::new());
        for entry in &entries {
            let content = entry.content.unwrap_or_default();
            let mut header = tar::Header::new_ustar();
            header.set_entry_type(if entry.content.is_some() { tar::EntryType::Regular } else { tar::EntryType::Directory });
            header.set_mode(entry.mode);
            header.set_uid(0);
            header.set_gid(0);
            header.set_mtime(0);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, entry.path, content).with_context(|| format!("packing {}", entry.path))?;
        }
        let archive = archive.into_inner()?;
        // Write no time and no file name; 255 means an unknown operating system.
        let mut gzip = GzBuilder::new().mtime(0).operating_system(255).write(Vec::new(), Compression::new(9));
        gzip.write_all(&archive)?;
        Ok(Self { what, compressed: gzip.finish()?, diff_id: digest(&archive) })
    }
}

/// The entry of a blob in a manifest or an index.
#[derive(Clone)]
pub(crate) struct Descriptor {
    media_type: &'static str,
    pub(crate) digest: String,
    size: usize,
    /// The size including the blobs that this one refers to.
    pub(crate) total: usize,
    more: Map<String, Value>,
}

impl Descriptor {
    fn json(&self) -> Value {
        let mut json = json!({"mediaType": self.media_type, "digest": self.digest, "size": self.size});
        if let Value::Object(object) = &mut json {
            object.extend(self.more.clone());
        }
        json
    }

    fn with(mut self, name: &str, value: Value) -> Self {
        self.more.insert(name.to_owned(), value);
        self
    }
}

/// A folder that is an OCI image layout.
pub(crate) struct Layout {
    folder: PathBuf,
}

impl Layout {
    /// Creates an empty layout, and deletes an existing one.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder).with_context(|| format!("clearing {}", folder.display()))?;
        }
        fs::create_dir_all(folder.join("blobs/sha256")).with_context(|| format!("making {}", folder.display()))?;
        fs::write(folder.join("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}).to_string())?;
        Ok(Self { folder: folder.to_owned() })
    }

    /// Adds the image of one platform, and returns the entry of its manifest.
    pub(crate) fn add(&self, platform: &Platform, layers: &[&Layer], commit: &Commit) -> Result<Descriptor> {
        let config = json!({
            "created": commit.created,
            "architecture": platform.architecture,
            "os": "linux",
            "config": {"User": USER, "Entrypoint": ["/pointsman"], "WorkingDir": "/", "Labels": commit.labels()},
            "rootfs": {"type": "layers", "diff_ids": layers.iter().map(|layer| layer.diff_id.as_str()).collect::<Vec<_>>()},
            "history": layers
                .iter()
                .map(|layer| json!({"created": commit.created, "created_by": "cargo xtask image", "comment": layer.what}))
                .collect::<Vec<_>>(),
        });
        let config = self.blob(CONFIG, config.to_string().as_bytes())?;
        let layers = layers.iter().map(|layer| self.blob(LAYER, &layer.compressed)).collect::<Result<Vec<_>>>()?;
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": config.json(),
            "layers": layers.iter().map(Descriptor::json).collect::<Vec<_>>(),
            "annotations": commit.labels(),
        });
        let mut manifest = self.blob(MANIFEST, manifest.to_string().as_bytes())?;
        manifest.total += config.total + layers.iter().map(|layer| layer.total).sum::<usize>();
        Ok(manifest.with("platform", json!({"architecture": platform.architecture, "os": "linux"})))
    }

    /// Combines the images of the platforms into one image with a tag, and returns its entry.
    pub(crate) fn finish(&self, manifests: &[Descriptor], tag: &str, commit: &Commit) -> Result<Descriptor> {
        let index = json!({
            "schemaVersion": 2,
            "mediaType": INDEX,
            "manifests": manifests.iter().map(Descriptor::json).collect::<Vec<_>>(),
            "annotations": commit.labels(),
        });
        let index = self.blob(INDEX, index.to_string().as_bytes())?;
        let index = index.with("annotations", json!({"org.opencontainers.image.ref.name": tag}));
        let images = json!({"schemaVersion": 2, "mediaType": INDEX, "manifests": [index.json()]});
        fs::write(self.folder.join("index.json"), images.to_string())?;
        Ok(index)
    }

    /// Packs the whole layout into a tar archive.
    pub(crate) fn pack(&self, to: &Path) -> Result<()> {
        let file = BufWriter::new(File::create(to).with_context(|| format!("writing {}", to.display()))?);
        let mut archive = tar::Builder::new(file);
        let mut blobs = fs::read_dir(self.folder.join("blobs/sha256"))?.collect::<Result<Vec<_>, _>>()?;
        blobs.sort_by_key(fs::DirEntry::file_name);
        let blobs = blobs.iter().map(|blob| format!("blobs/sha256/{}", blob.file_name().to_string_lossy()));
        for name in blobs.chain(["index.json", "oci-layout"].map(str::to_owned)) {
            let content = fs::read(self.folder.join(&name))?;
            let mut header = tar::Header::new_ustar();
            header.set_mode(0o644);
            header.set_mtime(0);
            header.set_size(content.len() as u64);
            archive.append_data(&mut header, &name, content.as_slice())?;
        }
        archive.into_inner()?.flush().with_context(|| format!("writing {}", to.display()))
    }

    fn blob(&self, media_type: &'static str, content: &[u8]) -> Result<Descriptor> {
        let digest = digest(content);
        let file = self.folder.join("blobs").join(digest.replace(':', "/"));
        fs::write(&file, content).with_context(|| format!("writing {}", file.display()))?;
        Ok(Descriptor { media_type, digest, size: content.len(), total: content.len(), more: Map::new() })
    }
}

pub(crate) fn digest(content: &[u8]) -> String {
    format!("sha256:{:x}", Sha256::digest(content))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::PLATFORMS;
    use std::io::Read;

    fn commit() -> Commit {
        Commit { revision: "0123".to_owned(), seconds: 1_800_000_000, created: "2027-01-15T08:00:00Z".to_owned(), dirty: false }
    }

    #[test]
    fn a_layer_depends_on_neither_time_nor_order() {
        let one = Layer::new("files", vec![Entry::folder("etc/", 0o755), Entry::file("etc/passwd", 0o644, b"x")]).unwrap();
        let other = Layer::new("files", vec![Entry::file("etc/passwd", 0o644, b"x"), Entry::folder("etc/", 0o755)]).unwrap();
        assert!(one.compressed == other.compressed && one.diff_id == other.diff_id);
        assert_eq!(one.compressed[..10], [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 2, 255]);

        let mut content = Vec::new();
        flate2::read::GzDecoder::new(one.compressed.as_slice()).read_to_end(&mut content).unwrap();
        assert_eq!(digest(&content), one.diff_id);
        let mut archive = tar::Archive::new(content.as_slice());
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let header = entry.unwrap().header().clone();
                assert_eq!((header.uid().unwrap(), header.gid().unwrap(), header.mtime().unwrap()), (0, 0, 0));
                (header.path().unwrap().to_string_lossy().into_owned(), header.mode().unwrap(), header.entry_type())
            })
            .collect();
        let expected = [("etc/".to_owned(), 0o755, tar::EntryType::Directory), ("etc/passwd".to_owned(), 0o644, tar::EntryType::Regular)];
        assert_eq!(entries, expected);
    }

    #[test]
    fn each_blob_of_a_layout_has_the_name_and_size_that_refer_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let layout = Layout::new(&folder.path().join("oci")).unwrap();
        let layer = Layer::new("files", vec![Entry::file("pointsman", 0o755, b"program")]).unwrap();
        let manifests: Vec<_> = PLATFORMS.iter().map(|platform| layout.add(platform, &[&layer], &commit()).unwrap()).collect();
        let image = layout.finish(&manifests, "0.1.0", &commit()).unwrap();

        let read = |descriptor: &Value| -> Vec<u8> {
            let name = descriptor["digest"].as_str().unwrap();
            let content = fs::read(folder.path().join("oci/blobs").join(name.replace(':', "/"))).unwrap();
            assert_eq!((digest(&content).as_str(), content.len() as u64), (name, descriptor["size"].as_u64().unwrap()));
            content
        };
        let json = |descriptor: &Value| serde_json::from_slice::<Value>(&read(descriptor)).unwrap();
        let images: Value = serde_json::from_slice(&fs::read(folder.path().join("oci/index.json")).unwrap()).unwrap();
        assert_eq!(images["manifests"][0]["digest"], image.digest);
        let index = json(&images["manifests"][0]);
        for (platform, descriptor) in PLATFORMS.iter().zip(index["manifests"].as_array().unwrap()) {
            let manifest = json(descriptor);
            let config = json(&manifest["config"]);
            assert_eq!(descriptor["platform"], json!({"architecture": platform.architecture, "os": "linux"}));
            assert_eq!(config["architecture"], platform.architecture);
            assert_eq!(config["rootfs"]["diff_ids"], json!([layer.diff_id]));
            assert_eq!(read(&manifest["layers"][0]), layer.compressed);
            assert_eq!(config["config"]["Labels"]["org.opencontainers.image.revision"], "0123");
        }

        let (first, second) = (folder.path().join("1.tar"), folder.path().join("2.tar"));
        layout.pack(&first).unwrap();
        layout.pack(&second).unwrap();
        assert_eq!(fs::read(first).unwrap(), fs::read(second).unwrap());
    }
}
