//! Components in ConfigMaps. A large component is split into several, which are written one after the other: meanwhile some are new and
//! some old, and a mixture must never run. So each one identifies its component.

use super::{
    Source, SourceError, SourceSettings, SourceView, off_the_runtime,
    unpack::{pack, unpack},
};
use crate::problem::Problem;
use futures::{FutureExt, future::BoxFuture};
use k8s_openapi::{ByteString, api::core::v1::ConfigMap};
use kube::api::ObjectMeta;
use pointsman_crds::policy::plugin::{ConfigMapSource, PluginSource};
use pointsman_sandbox::{
    digest::Digest,
    limits::{LARGEST_BINARY, MAX_CONFIG_MAP_PARTS, PART},
    text::printable_line,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The annotation with the digest of the whole component, uncompressed.
pub const DIGEST: &str = "policy.pointsman.dev/digest";

/// The annotation with the number of a part and of all parts: `2/5`.
pub const PART_OF: &str = "policy.pointsman.dev/part";

/// The namespaces whose ConfigMaps may hold plugins. Anyone who may write there runs code in the host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Namespaces {
    /// Only the host's own.
    #[default]
    Own,
    /// The host's own and these.
    Listed(BTreeSet<String>),
    /// All.
    All,
}

impl Namespaces {
    /// Whether ConfigMaps of a namespace may hold plugins.
    pub fn check(&self, namespace: &str, own: &str) -> Result<(), SourceError> {
        let allowed = match self {
            Self::All => return Ok(()),
            _ if namespace == own => return Ok(()),
            Self::Listed(listed) if listed.contains(namespace) => return Ok(()),
            Self::Own => format!("{own} alone"),
            Self::Listed(listed) => {
                let all: BTreeSet<_> = listed.iter().map(String::as_str).chain([own]).collect();
                format!("the namespaces {}", all.into_iter().collect::<Vec<_>>().join(", "))
            }
        };
        Err(SourceError::NamespaceNotAllowed { namespace: namespace.to_owned(), allowed })
    }
}

/// The namespace and the name of a ConfigMap.
pub type ConfigMapKey = (String, String);

/// `spec.source.configMap`.
#[derive(Debug)]
pub struct ConfigMaps;

impl Source for ConfigMaps {
    fn field(&self) -> &'static str {
        "configMap"
    }

    fn title(&self, source: &PluginSource) -> Option<String> {
        source.config_map.as_ref().map(|config_map| config_map.name.clone())
    }

    /// None if the host may not read them.
    fn config_maps(&self, source: &PluginSource, settings: &SourceSettings) -> BTreeSet<ConfigMapKey> {
        let Some(source) = &source.config_map else { return BTreeSet::new() };
        let namespace = source.namespace.as_ref().unwrap_or(&settings.namespace);
        if settings.namespaces.check(namespace, &settings.namespace).is_err() {
            return BTreeSet::new();
        }
        [&source.name].into_iter().chain(&source.parts).map(|name| (namespace.clone(), name.clone())).collect()
    }

    fn read(&self, source: PluginSource, from: SourceView) -> BoxFuture<'static, Result<Option<Vec<u8>>, Problem>> {
        let SourceView { settings, config_maps, unreadable } = from;
        if !self.config_maps(&source, &settings).iter().all(|key| config_maps.contains_key(key)) {
            let not_yet = unreadable.map_or(Ok(None), |error| Err(Problem::new("SourceUnreadable", &error)));
            return async move { not_yet }.boxed();
        }
        let read_maps = move || {
            let get = |namespace: &str, name: &str| config_maps.get(&(namespace.to_owned(), name.to_owned())).cloned().flatten();
            let wanted = source.config_map.unwrap_or_default();
            assemble(&wanted, &settings.namespace, &settings.namespaces, get)
                .map(Some)
                .map_err(|error| Problem::new(error.reason(), &error))
        };
        off_the_runtime(read_maps).boxed()
    }
}

/// The component that a source names, uncompressed. `get` finds a ConfigMap by namespace and name.
pub fn assemble(
    source: &ConfigMapSource,
    host_namespace: &str,
    allowed: &Namespaces,
    get: impl Fn(&str, &str) -> Option<Arc<ConfigMap>>,
) -> Result<Vec<u8>, SourceError> {
    let namespace = source.namespace.as_deref().unwrap_or(host_namespace);
    allowed.check(namespace, host_namespace)?;
    let mut parts = Vec::with_capacity(1 + source.parts.len());
    for name in std::iter::once(&source.name).chain(&source.parts) {
        let title = format!("{namespace}/{name}");
        let map = get(namespace, name).ok_or_else(|| SourceError::NotFound(title.clone()))?;
        parts.push(PluginPart { title, map });
    }
    let digest = belong_together(&parts)?;

    let mut bytes = Vec::new();
    for part in &parts {
        bytes.extend_from_slice(part.bytes(&source.key)?);
        if bytes.len() > LARGEST_BINARY {
            return Err(SourceError::TooLarge(""));
        }
    }
    let unpacked = unpack(&bytes)?.into_owned();
    if unpacked.is_empty() {
        return Err(SourceError::Empty(format!("the compressed data of the ConfigMap {}", parts[0].title)));
    }
    let found = Digest::hash(&unpacked);
    match digest {
        Some(told) if told != found => {
            Err(SourceError::OtherBytes { map: parts.swap_remove(0).title, told: Box::new(told), found: Box::new(found) })
        }
        _ => Ok(unpacked),
    }
}

struct PluginPart {
    /// Namespace and name.
    title: String,
    map: Arc<ConfigMap>,
}

impl PluginPart {
    fn annotation(&self, name: &str) -> Option<&str> {
        self.map.metadata.annotations.as_ref()?.get(name).map(String::as_str)
    }

    fn unmarked(&self, annotation: &'static str) -> SourceError {
        let found =
            self.annotation(annotation).map_or_else(|| "it is missing".to_owned(), |found| format!("it says {:?}", printable_line(found)));
        SourceError::Unmarked { map: self.title.clone(), annotation, found }
    }

    /// The digest in its annotation, or none without an annotation.
    fn digest(&self) -> Result<Option<Digest>, SourceError> {
        self.annotation(DIGEST).map(|digest| digest.parse().map_err(|_| self.unmarked(DIGEST))).transpose()
    }

    fn bytes(&self, key: &str) -> Result<&[u8], SourceError> {
        let map = self.title.clone();
        match self.map.binary_data.as_ref().and_then(|data| data.get(key)) {
            Some(ByteString(bytes)) if bytes.is_empty() => Err(SourceError::Empty(format!("binaryData[{key:?}] of the ConfigMap {map}"))),
            Some(ByteString(bytes)) => Ok(bytes),
            None if self.map.data.as_ref().is_some_and(|data| data.contains_key(key)) => {
                Err(SourceError::Text { map, key: key.to_owned() })
            }
            None => Err(SourceError::NoKey { map, key: key.to_owned(), there: keys(self.map.binary_data.as_ref()) }),
        }
    }
}

fn keys(data: Option<&BTreeMap<String, ByteString>>) -> String {
    const MAX_MAPS_NAMED: usize = 5;
    let keys: Vec<_> = data.into_iter().flatten().map(|(key, _)| format!("{key:?}")).collect();
    match keys.len() {
        0 => "no binaryData at all".to_owned(),
        count if count <= MAX_MAPS_NAMED => keys.join(", "),
        count => format!("{} and {} more", keys[..MAX_MAPS_NAMED].join(", "), count - MAX_MAPS_NAMED),
    }
}

/// Checks that parts are all those of one component, in order. Returns its digest; a single ConfigMap needs none.
fn belong_together(parts: &[PluginPart]) -> Result<Option<Digest>, SourceError> {
    let [first, others @ ..] = parts else { return Ok(None) };
    let digest = first.digest()?;
    if others.is_empty() && digest.is_none() && first.annotation(PART_OF).is_none() {
        return Ok(None);
    }
    let digest = digest.ok_or_else(|| first.unmarked(DIGEST))?;
    // Compare the digests first: while parts are replaced, their numbers may also change.
    for other in others {
        let told = other.digest()?.ok_or_else(|| other.unmarked(DIGEST))?;
        if told != digest {
            return Err(SourceError::Mixed {
                first: first.title.clone(),
                first_digest: Box::new(digest),
                other: other.title.clone(),
                other_digest: Box::new(told),
            });
        }
    }
    for (part, number) in parts.iter().zip(1_usize..) {
        let named = place(number, parts.len());
        match part.annotation(PART_OF) {
            Some(told) if told == named => {}
            // Someone who sets the digest manually needn't number a single part.
            None if others.is_empty() => {}
            Some(told) if is_place(told) => {
                let (map, told) = (part.title.clone(), told.to_owned());
                return Err(SourceError::OutOfOrder { map, told, named, digest: Box::new(digest) });
            }
            _ => return Err(part.unmarked(PART_OF)),
        }
    }
    Ok(Some(digest))
}

fn place(number: usize, of: usize) -> String {
    format!("{number}/{of}")
}

/// The number of parts in a position such as `1/5`.
pub(crate) fn parts_of(place: &str) -> Option<usize> {
    let (number, of) = place.split_once('/')?;
    let (number, of) = (number.parse::<usize>().ok()?, of.parse::<usize>().ok()?);
    (1..=MAX_CONFIG_MAP_PARTS).contains(&of).then_some(of).filter(|of| (1..=*of).contains(&number))
}

fn is_place(text: &str) -> bool {
    parts_of(text).is_some()
}

/// The name of a component's part, the first of which is number 1.
pub(crate) fn part_name(name: &str, number: usize) -> String {
    if number == 1 { name.to_owned() } else { format!("{name}-{number}") }
}

/// The compressed ConfigMaps, without a namespace yet, from which [`assemble`] restores the component: the first is called `name`, the
/// others `name-2`, `name-3` and so on. Equal bytes become equal ConfigMaps.
pub fn split(name: &str, key: &str, component: &[u8]) -> Result<Vec<ConfigMap>, SourceError> {
    split_at(PART, name, key, component)
}

fn split_at(size: usize, name: &str, key: &str, component: &[u8]) -> Result<Vec<ConfigMap>, SourceError> {
    if component.is_empty() {
        return Err(SourceError::Empty("the component".to_owned()));
    }
    if component.len() > LARGEST_BINARY {
        return Err(SourceError::TooLarge(""));
    }
    let packed = pack(component).map_err(|error| SourceError::Gzip(error.to_string()))?;
    let count = packed.len().div_ceil(size);
    if count > MAX_CONFIG_MAP_PARTS {
        return Err(SourceError::TooManyParts(packed.len()));
    }
    let digest = Digest::hash(component).to_string();
    let part = |(chunk, number): (&[u8], usize)| ConfigMap {
        metadata: ObjectMeta {
            name: Some(part_name(name, number)),
            annotations: Some(BTreeMap::from([(DIGEST.to_owned(), digest.clone()), (PART_OF.to_owned(), place(number, count))])),
            ..ObjectMeta::default()
        },
        binary_data: Some(BTreeMap::from([(key.to_owned(), ByteString(chunk.to_vec()))])),
        ..ConfigMap::default()
    };
    Ok(packed.chunks(size).zip(1..).map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// ConfigMaps of the namespace `ours`.
    type Cluster = BTreeMap<String, ConfigMap>;

    fn cluster(maps: impl IntoIterator<Item = ConfigMap>) -> Cluster {
        maps.into_iter().map(|map| (map.metadata.name.clone().unwrap(), map)).collect()
    }

    fn source(names: &[&str]) -> ConfigMapSource {
        let parts = names[1..].iter().map(|&name| name.to_owned()).collect();
        ConfigMapSource { name: names[0].to_owned(), parts, ..ConfigMapSource::default() }
    }

    fn assembled(cluster: &Cluster, names: &[&str]) -> Result<Vec<u8>, SourceError> {
        let get = |namespace: &str, name: &str| (namespace == "ours").then(|| cluster.get(name).cloned().map(Arc::new)).flatten();
        assemble(&source(names), "ours", &Namespaces::Own, get)
    }

    fn refused(cluster: &Cluster, names: &[&str]) -> (&'static str, String) {
        let error = assembled(cluster, names).unwrap_err();
        (error.reason(), error.to_string())
    }

    /// Bytes that gzip can't make smaller.
    fn noise(seed: u8, length: usize) -> Vec<u8> {
        (0_u64..).flat_map(|n| Digest::hash(&[&[seed][..], &n.to_be_bytes()].concat()).0).take(length).collect()
    }

    fn annotate(map: &mut ConfigMap, name: &str, value: Option<&str>) {
        let annotations = map.metadata.annotations.get_or_insert_default();
        match value {
            Some(value) => annotations.insert(name.to_owned(), value.to_owned()),
            None => annotations.remove(name),
        };
    }

    fn by_hand(key: &str, bytes: &[u8]) -> Cluster {
        let mut map = ConfigMap { binary_data: Some([(key.to_owned(), ByteString(bytes.to_vec()))].into()), ..ConfigMap::default() };
        map.metadata.name = Some("a".to_owned());
        cluster([map])
    }

    /// The parts `a`, `a-2` and `a-3`.
    fn three(seed: u8) -> Cluster {
        cluster(split_at(400, "a", "plugin.wasm", &noise(seed, 1000)).unwrap())
    }

    const THREE: [&str; 3] = ["a", "a-2", "a-3"];

    #[test]
    fn one_config_map_holds_a_component_as_it_is_or_compressed_and_needs_no_annotation() {
        assert_eq!(assembled(&by_hand("plugin.wasm", b"\0asm1"), &["a"]).unwrap(), b"\0asm1");
        assert_eq!(assembled(&by_hand("plugin.wasm", &pack(b"\0asm1").unwrap()), &["a"]).unwrap(), b"\0asm1");
        let pushed = cluster(split("a", "plugin.wasm", b"\0asm1").unwrap());
        assert_eq!(assembled(&pushed, &["a"]).unwrap(), b"\0asm1");
    }

    #[test]
    fn a_digest_that_is_given_by_hand_must_be_right() {
        let mut maps = by_hand("plugin.wasm", b"\0asm1");
        annotate(maps.get_mut("a").unwrap(), DIGEST, Some(&Digest::hash(b"\0asm1").to_string()));
        assert_eq!(assembled(&maps, &["a"]).unwrap(), b"\0asm1");
        annotate(maps.get_mut("a").unwrap(), DIGEST, Some(&Digest::hash(b"other").to_string()));
        let (reason, sentence) = refused(&maps, &["a"]);
        assert_eq!(reason, "DigestMismatch");
        let (told, found) = (Digest::hash(b"other"), Digest::hash(b"\0asm1"));
        assert!(
            sentence.contains(&format!("ours/a has {told} in")) && sentence.contains(&format!("its bytes have {found}:")),
            "{sentence}"
        );
        annotate(maps.get_mut("a").unwrap(), DIGEST, Some("abc"));
        let (reason, sentence) = refused(&maps, &["a"]);
        assert_eq!(reason, "UnmarkedPart");
        assert!(sentence.contains("policy.pointsman.dev/digest") && sentence.contains("\"abc\""), "{sentence}");
    }

    #[test]
    fn what_is_missing_is_named_with_what_is_there() {
        let maps = by_hand("other.wasm", b"x");
        assert_eq!(
            refused(&maps, &["b"]),
            ("ConfigMapNotFound", "there is no ConfigMap ours/b: create it, or correct the source".to_owned())
        );
        assert_eq!(
            refused(&maps, &["a"]),
            ("KeyNotFound", "the ConfigMap ours/a has no binaryData[\"plugin.wasm\"]; it has \"other.wasm\"".to_owned())
        );
        assert_eq!(
            refused(&by_hand("plugin.wasm", b""), &["a"]),
            ("Empty", "binaryData[\"plugin.wasm\"] of the ConfigMap ours/a is empty".to_owned())
        );
        assert_eq!(
            refused(&by_hand("plugin.wasm", &pack(b"").unwrap()), &["a"]),
            ("Empty", "the compressed data of the ConfigMap ours/a is empty".to_owned())
        );
        let mut none = maps;
        let map = none.get_mut("a").unwrap();
        map.binary_data = None;
        assert!(refused(&none, &["a"]).1.ends_with("it has no binaryData at all"));
        let map = none.get_mut("a").unwrap();
        map.binary_data = Some((0..9).map(|n| (format!("k{n}"), ByteString(vec![n]))).collect());
        assert!(refused(&none, &["a"]).1.ends_with(r#"it has "k0", "k1", "k2", "k3", "k4" and 4 more"#));
    }

    #[test]
    fn text_is_no_component_and_the_way_to_make_one_is_told() {
        let mut maps = by_hand("other", b"x");
        maps.get_mut("a").unwrap().data = Some([("plugin.wasm".to_owned(), "AGFzbQ==".to_owned())].into());
        let (reason, sentence) = refused(&maps, &["a"]);
        assert_eq!(reason, "NotBinaryData");
        assert!(sentence.contains("must be in binaryData") && sentence.contains("--from-file"), "{sentence}");
    }

    #[test]
    fn another_namespace_is_read_only_where_it_is_allowed() {
        let maps = by_hand("plugin.wasm", b"x");
        let ask = |namespace: Option<&str>, allowed: &Namespaces| {
            let source = ConfigMapSource { namespace: namespace.map(str::to_owned), ..source(&["a"]) };
            assemble(&source, "ours", allowed, |_, name| maps.get(name).cloned().map(Arc::new)).map_err(|error| error.to_string())
        };
        let listed = Namespaces::Listed(["theirs".to_owned()].into());
        for allowed in [Namespaces::default(), listed.clone(), Namespaces::All] {
            assert!(ask(None, &allowed).is_ok() && ask(Some("ours"), &allowed).is_ok(), "{allowed:?}");
        }
        assert!(ask(Some("theirs"), &listed).is_ok() && ask(Some("theirs"), &Namespaces::All).is_ok());
        let own = ask(Some("theirs"), &Namespaces::Own).unwrap_err();
        assert!(own.contains("namespace theirs ") && own.contains("from ours alone;"), "{own}");
        let others = ask(Some("else"), &listed).unwrap_err();
        assert!(others.contains("from the namespaces ours, theirs;"), "{others}");
    }

    #[test]
    fn parts_make_their_whole_again() {
        assert_eq!(assembled(&three(1), &THREE).unwrap(), noise(1, 1000));
    }

    #[test]
    fn parts_that_are_half_replaced_are_waited_for() {
        let (old, new) = (three(1), three(2));
        // As a push replaces them, one after the other.
        for (replaced, other) in THREE.iter().enumerate().skip(1) {
            let mixed: Cluster = new.clone().into_iter().take(replaced).chain(old.clone().into_iter().skip(replaced)).collect();
            let (reason, sentence) = refused(&mixed, &THREE);
            assert_eq!(reason, "WaitingForParts");
            let (was, is) = (Digest::hash(&noise(1, 1000)), Digest::hash(&noise(2, 1000)));
            assert!(sentence.starts_with(&format!("the ConfigMap ours/a is a part of {is} and ours/{other} of {was}:")), "{sentence}");
        }
    }

    #[test]
    fn parts_in_another_order_or_number_are_refused() {
        let maps = three(1);
        let expected = format!(
            "the ConfigMap ours/a-3 is part 3/3 of {}, and the source names it as part 2/3: name all parts, in order, in source.configMap.name and source.configMap.parts",
            Digest::hash(&noise(1, 1000))
        );
        assert_eq!(refused(&maps, &["a", "a-3", "a-2"]), ("PartsOutOfOrder", expected));
        assert_eq!(refused(&maps, &["a", "a-2"]).0, "PartsOutOfOrder");
        assert_eq!(refused(&maps, &["a"]).0, "PartsOutOfOrder");
        assert_eq!(refused(&maps, &["a", "a-2", "a-3", "a-3"]).0, "PartsOutOfOrder");
        assert_eq!(refused(&maps, &["a", "a", "a"]).0, "PartsOutOfOrder");
        assert_eq!(refused(&maps, &["a", "a-2", "a-4"]).0, "ConfigMapNotFound");
    }

    #[test]
    fn every_one_of_several_parts_tells_its_digest_and_its_number() {
        for part in THREE {
            for annotation in [DIGEST, PART_OF] {
                for wrong in [None, Some("2"), Some("0/3"), Some("4/3"), Some("1/99"), Some("\u{1b}")] {
                    let mut maps = three(1);
                    annotate(maps.get_mut(part).unwrap(), annotation, wrong);
                    let (reason, sentence) = refused(&maps, &THREE);
                    assert_eq!(reason, "UnmarkedPart", "{sentence}");
                    assert!(sentence.contains(&format!("ConfigMap ours/{part} ")) && sentence.contains(annotation), "{sentence}");
                    assert!(!sentence.contains('\u{1b}'), "{sentence}");
                }
            }
        }
    }

    #[test]
    fn parts_whose_bytes_were_changed_are_refused() {
        let mut maps = three(1);
        let two = maps.get_mut("a-2").unwrap().binary_data.as_mut().unwrap().get_mut("plugin.wasm").unwrap();
        two.0[7] ^= 1;
        assert_eq!(refused(&maps, &THREE).0, "BrokenGzip");
        // Without compression, our digest is the only checksum.
        let mut maps = by_hand("plugin.wasm", b"\0asm1");
        annotate(maps.get_mut("a").unwrap(), DIGEST, Some(&Digest::hash(b"\0asm2").to_string()));
        annotate(maps.get_mut("a").unwrap(), PART_OF, Some("1/1"));
        assert_eq!(refused(&maps, &["a"]).0, "DigestMismatch");
    }

    #[test]
    fn what_doesnt_fit_is_refused_before_it_is_read_whole() {
        assert_eq!(split("a", "k", b"").unwrap_err().reason(), "Empty");
        assert_eq!(split("a", "k", &vec![0; LARGEST_BINARY + 1]).unwrap_err().reason(), "TooLarge");
        assert_eq!(split_at(10, "a", "k", &noise(1, 1000)).unwrap_err().reason(), "TooManyParts");
        let huge = by_hand("plugin.wasm", &vec![0; LARGEST_BINARY / 2 + 1]).remove("a").map(Arc::new);
        let mut parts: Vec<_> = (1..=2).map(|_| ConfigMap::clone(huge.as_ref().unwrap())).collect();
        for (part, number) in parts.iter_mut().zip(1..) {
            part.metadata.name = Some(part_name("a", number));
            annotate(part, DIGEST, Some(&Digest::hash(b"").to_string()));
            annotate(part, PART_OF, Some(&place(number, 2)));
        }
        assert_eq!(refused(&cluster(parts), &["a", "a-2"]).0, "TooLarge");
    }

    #[test]
    fn a_part_fits_into_a_config_map() {
        let component = noise(1, 2 * PART);
        let parts = split("a", "plugin.wasm", &component).unwrap();
        assert_eq!(parts.len(), 3);
        for part in &parts {
            assert!(serde_json::to_vec(part).unwrap().len() < 3 << 19);
        }
        assert_eq!(assembled(&cluster(parts), &THREE).unwrap(), component);
    }

    fn component() -> impl Strategy<Value = Vec<u8>> {
        prop_oneof![
            prop::collection::vec(any::<u8>(), 1..3000),
            (any::<u8>(), 1_usize..100_000).prop_map(|(byte, length)| vec![byte; length]),
            // Already compressed, so it is compressed twice.
            prop::collection::vec(any::<u8>(), 1..300).prop_map(|bytes| pack(&bytes).unwrap()),
        ]
    }

    proptest! {
        #[test]
        fn what_is_split_is_assembled_again(component in component(), size in 50_usize..4000) {
            let maps = split_at(size, "a", "plugin.wasm", &component);
            prop_assume!(!matches!(maps, Err(SourceError::TooManyParts(_))));
            let maps = maps.unwrap();
            for (map, number) in maps.iter().zip(1..) {
                prop_assert_eq!(map.metadata.name.clone().unwrap(), part_name("a", number));
                prop_assert!(map.binary_data.as_ref().unwrap()["plugin.wasm"].0.len() <= size);
            }
            prop_assert_eq!(&split_at(size, "a", "plugin.wasm", &component).unwrap(), &maps);
            let names: Vec<_> = maps.iter().map(|map| map.metadata.name.clone().unwrap()).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(assembled(&cluster(maps.clone()), &names).unwrap(), component);
        }

        #[test]
        fn no_part_of_one_component_can_stand_in_for_a_part_of_another(one in 0_u8..100, length in 900_usize..3000, which in 0_usize..100) {
            let split = |seed| split_at(400, "a", "plugin.wasm", &noise(seed, length)).unwrap();
            let (mut maps, others) = (split(one), split(one + 100));
            let which = which % maps.len();
            maps[which] = others[which].clone();
            let names: Vec<_> = maps.iter().map(|map| map.metadata.name.clone().unwrap()).collect();
            let names: Vec<_> = names.iter().map(String::as_str).collect();
            prop_assert_eq!(refused(&cluster(maps.clone()), &names).0, "WaitingForParts");
            // Not even with the right annotations, unless the bytes are equal, as short last parts may be.
            maps[which].metadata.annotations = split(one)[which].metadata.annotations.clone();
            let assembled = assembled(&cluster(maps), &names);
            prop_assert!(assembled.is_err() || assembled == Ok(noise(one, length)));
        }
    }
}
