//! What a layer of an image or artifact holds: a file, or an archive of files.

use super::super::{Archive, checked_path};
use crate::{error::Error, http::Place, path::RelativePath};
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Layer {
    media_type: String,
    pub(super) digest: String,
    pub(super) size: u64,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
}

/// Where ModelPack and ORAS write a file's path.
const PATHS: [&str; 2] = ["org.cncf.model.filepath", "org.opencontainers.image.title"];
/// ORAS' word that a layer is a folder.
const UNPACK: &str = "io.deis.oras.content.unpack";

impl Layer {
    /// Where its bytes go, and whether they are unpacked.
    pub(super) fn content(&self, place: &Place, index: usize, folder: &RelativePath) -> Result<(RelativePath, Option<Archive>), Error> {
        let kind = self.media_type.to_ascii_lowercase();
        if kind.contains("zstd") {
            return Err(Error::Unsupported {
                what: format!("the layer {} of {} with zstd", self.digest, place.name),
                remedy: "push the model with gzip or without compression".to_owned(),
            });
        }
        let is_image = kind.starts_with("application/vnd.oci.image.layer.") || kind.starts_with("application/vnd.docker.image.rootfs.");
        let gzip = kind.ends_with("gzip");
        // `...v1.tar`, `...v1.tar+gzip`, and Docker's `...diff.tar.gzip`.
        let is_tar = kind.split(['.', '+']).any(|part| part == "tar");
        let path = PATHS.iter().find_map(|name| self.annotations.get(*name));
        // ORAS gives a plain file the media type of a layer; only its title says that it is one.
        let is_unpacked = self.annotations.get(UNPACK).is_some_and(|unpack| unpack == "true");
        let is_file = path.is_some() && (is_image || !is_tar) && !is_unpacked;
        match path {
            Some(path) if is_file => Ok((checked_path(place, path)?, None)),
            _ if is_tar || is_unpacked => {
                let below = (is_image && path.is_none()).then(|| folder.clone());
                let name = checked_path(place, &format!("layer-{index}"))?;
                Ok((name, Some(Archive { gzip: gzip || !is_tar, below, layer: is_image })))
            }
            _ => Err(Error::Unsupported {
                what: format!("the layer {} of {} with the media type {:?} and no title", self.digest, place.name, self.media_type),
                remedy: "push the model by `oras push`, as a ModelPack, or as an image with the folder /models".to_owned(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(media_type: &str, annotations: &[(&str, &str)]) -> Result<(String, Option<Archive>), String> {
        let place = Place { name: "oci://r.example/m:1".into(), if_unauthorized: "", if_missing: "" };
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let layer = Layer { media_type: media_type.into(), digest: "sha256:0".into(), size: 1, annotations };
        let content = layer.content(&place, 3, &RelativePath::parse("models").unwrap());
        content.map(|(path, archive)| (path.to_string(), archive)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_convention_is_known() {
        let folder = || Some(RelativePath::parse("models").unwrap());
        let archive = |gzip, below, layer| Some(Archive { gzip, below, layer });
        let title = "org.opencontainers.image.title";
        assert_eq!(content("application/vnd.oci.image.layer.v1.tar+gzip", &[]).unwrap(), ("layer-3".into(), archive(true, folder(), true)));
        assert_eq!(
            content("application/vnd.docker.image.rootfs.diff.tar.gzip", &[]).unwrap(),
            ("layer-3".into(), archive(true, folder(), true))
        );
        assert_eq!(content("application/vnd.oci.image.layer.v1.tar", &[(title, "a.bin")]).unwrap(), ("a.bin".into(), None));
        assert_eq!(
            content("application/vnd.oci.image.layer.v1.tar+gzip", &[(title, "weights"), (UNPACK, "true")]).unwrap(),
            ("layer-3".into(), archive(true, None, true))
        );
        assert_eq!(
            content("application/vnd.cncf.model.weight.v1.raw", &[("org.cncf.model.filepath", "w/model.safetensors")]).unwrap(),
            ("w/model.safetensors".into(), None)
        );
        assert_eq!(
            content("application/vnd.cncf.model.weight.v1.tar", &[("org.cncf.model.filepath", "w")]).unwrap(),
            ("layer-3".into(), archive(false, None, false))
        );
        assert!(content("application/vnd.oci.image.layer.v1.tar+zstd", &[]).unwrap_err().contains("push the model with gzip"));
        assert!(content("application/octet-stream", &[]).unwrap_err().contains("no title"));
        assert!(content("application/octet-stream", &[(title, "../x")]).unwrap_err().contains("has the part \"..\""));
    }
}
