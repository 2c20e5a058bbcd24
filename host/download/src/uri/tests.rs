use super::*;
use proptest::prelude::*;

fn parsed(uri: &str) -> StorageUri {
    StorageUri::parse(uri).unwrap()
}

#[test]
fn each_scheme_has_its_parts() {
    assert_eq!(
        parsed("hf://org/model@refs/pr/3"),
        StorageUri::HuggingFace { repository: "org/model".into(), revision: Some("refs/pr/3".into()) }
    );
    assert_eq!(
        parsed("s3://bucket@eu-west-1/a/b/"),
        StorageUri::S3 { bucket: "bucket".into(), region: Some("eu-west-1".into()), prefix: "a/b".into() }
    );
    assert_eq!(parsed("gs://bucket/a"), StorageUri::Gcs { bucket: "bucket".into(), prefix: "a".into() });
    assert_eq!(parsed("az://acc/c/p"), parsed("az://acc.blob.core.windows.net/c/p"));
    assert_eq!(
        parsed("oci://n/ns/b/models/o/llama/3"),
        StorageUri::OciObjects { namespace: "ns".into(), bucket: "models".into(), prefix: "llama/3".into() }
    );
    assert_eq!(
        parsed("oci://ghcr.io/org/model:v1"),
        StorageUri::OciImage { registry: "ghcr.io".into(), repository: "org/model".into(), reference: Reference::Tag("v1".into()) }
    );
    assert_eq!(
        parsed("oci://localhost:5000/model"),
        StorageUri::OciImage { registry: "localhost:5000".into(), repository: "model".into(), reference: Reference::Tag("latest".into()) }
    );
    assert_eq!(parsed("local:///data/llama"), StorageUri::Local { path: "/data/llama".into() });
    assert_eq!(parsed("pvc://ns:claim/a"), StorageUri::Pvc { namespace: Some("ns".into()), name: "claim".into(), path: "a".into() });
    assert_eq!(parsed("github://o/r@v1.0"), StorageUri::GitHub { owner: "o".into(), repository: "r".into(), tag: Some("v1.0".into()) });
}

#[test]
fn what_is_wrong_is_a_sentence_with_what_to_write() {
    for (uri, expected) in [
        ("model", "has no scheme: begin with hf://"),
        ("ftp://a/b", "has an unknown scheme"),
        ("hf://a/b/c", "write hf://ORG/MODEL"),
        ("hf://a/..", "write hf://ORG/MODEL"),
        ("hf://a/b@x@y", "write hf://ORG/MODEL"),
        ("hf://a/b@../../x", "write hf://ORG/MODEL"),
        ("s3:///a", "write s3://BUCKET/PREFIX"),
        ("s3://b/../a", "write s3://BUCKET/PREFIX"),
        ("az://evil.example/c/p", "write az://ACCOUNT"),
        ("oci://n/ns/b/bucket", "oci://n/NAMESPACE/b/BUCKET/o/PREFIX"),
        ("oci://bucket/prefix", "where REGISTRY has a dot or a port"),
        ("oci://ghcr.io/m@sha256:12", "where REGISTRY"),
        ("local://relative", "write local:///ABSOLUTE/PATH"),
        ("local:///a/../b", "write local:///ABSOLUTE/PATH"),
        ("pvc://claim", "write pvc://NAME/PATH"),
        ("https://user:secret@host/x", "put them into the Secret"),
        ("http://", "write https://HOST/PATH"),
    ] {
        let message = StorageUri::parse(uri).unwrap_err().to_string();
        assert!(message.contains(expected), "{uri}: {message}");
        assert!(!message.contains("secret@") && !message.contains("user:"), "{message}");
    }
}

proptest! {
    #[test]
    fn nothing_panics_and_what_is_parsed_reads_the_same_again(
        scheme in "hf|s3|gs|az|http|https|oci|github|local|vendor|pvc|x",
        rest in "(n/)?[a-z@:/.]{0,24}|.{0,60}",
    ) {
        if let Ok(uri) = StorageUri::parse(&format!("{scheme}://{rest}")) {
            prop_assert_eq!(StorageUri::parse(&uri.to_string()).unwrap(), uri);
        }
    }

    #[test]
    fn no_part_of_a_path_is_a_direction(rest in "[a-z.@/]{0,20}") {
        for scheme in ["s3", "gs", "az", "hf", "local", "pvc", "github"] {
            if let Ok(uri) = StorageUri::parse(&format!("{scheme}://{rest}")) {
                prop_assert!(!uri.to_string().split('/').any(|part| part == ".."), "{}", uri);
            }
        }
    }
}
