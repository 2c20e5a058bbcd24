//! The certificate that a server shows: one in a folder, or one that the process makes for itself.

use super::gateway::Tasks;
use crate::{
    endpoint_picker::self_signed,
    serve::admission::{
        certificates::{CertificateSink, directory},
        tls::CurrentCertificate,
    },
};
use anyhow::{Context, Result};
use std::{path::Path, sync::Arc};
use tokio::sync::watch;

/// The certificate of the folder of --cert-path, which is watched from then on. Without a folder one that the process makes.
pub(super) fn shown(cert_path: Option<&Path>, tasks: &mut Tasks) -> Result<Arc<CurrentCertificate>> {
    if let Some(folder) = cert_path {
        return watched(folder, "--cert-path", tasks);
    }
    let shown = Arc::<CurrentCertificate>::default();
    shown.show(self_signed::certificate().context("making a certificate")?);
    Ok(shown)
}

/// The certificate of the folder of a flag, which is watched from then on.
pub(super) fn watched(folder: &Path, flag: &str, tasks: &mut Tasks) -> Result<Arc<CurrentCertificate>> {
    let shown = Arc::<CurrentCertificate>::default();
    let sink = CertificateSink { shown: Arc::clone(&shown), bundle: watch::Sender::new(None) };
    let keeping = directory::keep(folder.to_owned(), sink).with_context(|| format!("watching the folder of {flag}"))?;
    tasks.spawn(async { (keeping.await, "the watch of certificates").1 });
    Ok(shown)
}
