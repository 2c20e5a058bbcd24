//! Certificates from a directory with tls.crt, tls.key and optionally ca.crt: a mounted Secret of cert-manager, which changes with each
//! renewal.

use super::{CertificateError, CertificateSink, certificates, certified};
use crate::source::file;
use std::{
    io,
    path::{Path, PathBuf},
};
use tokio_rustls::rustls::sign::CertifiedKey;

/// The remedy for a directory without a certificate.
fn remedy(directory: &Path) -> String {
    let describe = "where cert-manager fills it, `kubectl describe certificate` reports why it doesn't";
    format!("put tls.crt and tls.key into the folder {}; {describe}", directory.display())
}

/// Why a directory can't be read.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{0} can't be read: {1}")]
    File(&'static str, io::Error),
    #[error("{0}")]
    Certificate(#[from] CertificateError),
}

/// Presents the directory's certificate, now and after each change. The future never ends by itself; an unusable certificate leaves the
/// previous one in place.
pub fn keep(directory: PathBuf, outlet: CertificateSink) -> io::Result<impl Future<Output = ()>> {
    // Start to watch before the first read, so that no change is missed.
    let changes = file::watch(&directory)?;
    Ok(async move {
        let take = |read: Result<(CertifiedKey, Option<String>), String>| match read {
            Ok((key, bundle)) => {
                outlet.shown.show(key);
                outlet.bundle.send_if_modified(|before| std::mem::replace(before, bundle.clone()) != bundle);
                tracing::info!(directory = %directory.display(), "serving the certificate of the directory");
            }
            Err(error) => {
                let remedy = remedy(&directory);
                outlet.shown.note_failure(&format!("{error}: {remedy}"));
                let stays = if outlet.shown.any() { "the previous one stays in use" } else { "no client can connect" };
                tracing::warn!(directory = %directory.display(), error, "the certificate can't be used; {stays}: {remedy}");
            }
        };
        let look = || {
            let directory = directory.clone();
            async move { read(&directory).await }
        };
        file::follow(changes, look, take).await;
    })
}

async fn read(directory: &Path) -> Result<(CertifiedKey, Option<String>), ReadError> {
    let file = async |name: &'static str| tokio::fs::read(directory.join(name)).await.map_err(|error| ReadError::File(name, error));
    let key = certified(&file("tls.crt").await?, &file("tls.key").await?)?;
    let bundle = match file("ca.crt").await {
        // The issuer of a publicly trusted CA leaves it out, or empty.
        Err(ReadError::File(_, error)) if error.kind() == io::ErrorKind::NotFound => None,
        Ok(empty) if empty.is_empty() => None,
        Err(error) => return Err(error),
        Ok(pem) => {
            certificates("ca.crt", &pem)?;
            Some(String::from_utf8_lossy(&pem).into_owned())
        }
    };
    Ok((key, bundle))
}

#[cfg(test)]
mod tests {
    use super::{super::made, *};
    use std::{fs, sync::Arc, time::Duration};
    use tempfile::TempDir;
    use tokio::sync::watch;

    fn fill(directory: &Path, made: &made::SelfSignedKeys) {
        for (name, content) in [("tls.crt", &made.leaf), ("tls.key", &made.leaf_key), ("ca.crt", &made.bundle)] {
            fs::write(directory.join(name), content).unwrap();
        }
    }

    fn made() -> made::SelfSignedKeys {
        made::renewed(None, &["localhost".to_owned()], made::now()).unwrap().unwrap()
    }

    #[tokio::test]
    async fn a_renewed_certificate_is_shown_and_a_broken_one_changes_nothing() {
        let directory = TempDir::new().unwrap();
        let (one, other) = (made(), made());
        fill(directory.path(), &one);
        let (bundle, mut told) = watch::channel(None);
        let outlet = CertificateSink { shown: Arc::default(), bundle };
        let keeping = tokio::spawn(keep(directory.path().to_owned(), outlet.clone()).unwrap());
        let within = Duration::from_mins(1);
        tokio::time::timeout(within, told.wait_for(|told| told.as_ref() == Some(&one.bundle))).await.unwrap().unwrap();
        assert!(outlet.shown.any());
        fs::write(directory.path().join("tls.key"), "broken").unwrap();
        fill(directory.path(), &other);
        tokio::time::timeout(within, told.wait_for(|told| told.as_ref() == Some(&other.bundle))).await.unwrap().unwrap();
        keeping.abort();
    }

    #[tokio::test]
    async fn why_there_is_no_certificate_is_known_until_there_is_one() {
        let directory = TempDir::new().unwrap();
        let outlet = CertificateSink { shown: Arc::default(), bundle: watch::channel(None).0 };
        let keeping = tokio::spawn(keep(directory.path().to_owned(), outlet.clone()).unwrap());
        let becomes = async |what: &str, expected: &dyn Fn(Option<String>) -> bool| {
            let mut looks = tokio::time::interval(Duration::from_millis(10));
            let until = async {
                while !expected(outlet.shown.obstacle("the webhook")) {
                    looks.tick().await;
                }
            };
            tokio::time::timeout(Duration::from_mins(1), until)
                .await
                .unwrap_or_else(|_| panic!("{what}: {:?}", outlet.shown.obstacle("the webhook")));
        };
        let empty = |said: Option<String>| {
            said.is_some_and(|said| {
                said.starts_with("the webhook has no certificate: tls.crt can't be read") && said.ends_with(&remedy(directory.path()))
            })
        };
        becomes("the folder is empty", &empty).await;
        fill(directory.path(), &made());
        becomes("it is there", &|said| said.is_none()).await;
        keeping.abort();
    }

    #[tokio::test]
    async fn without_a_ca_nothing_is_told_of_whom_to_trust_and_a_key_of_another_is_refused() {
        let directory = TempDir::new().unwrap();
        let (one, other) = (made(), made());
        fill(directory.path(), &one);
        fs::remove_file(directory.path().join("ca.crt")).unwrap();
        assert_eq!(read(directory.path()).await.unwrap().1, None);
        fs::write(directory.path().join("tls.key"), &other.leaf_key).unwrap();
        let said = read(directory.path()).await.unwrap_err().to_string();
        assert!(said.contains("don't match"), "{said}");
        fs::remove_file(directory.path().join("tls.crt")).unwrap();
        let said = read(directory.path()).await.unwrap_err().to_string();
        assert!(said.starts_with("tls.crt can't be read"), "{said}");
    }
}
