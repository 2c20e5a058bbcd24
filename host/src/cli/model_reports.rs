//! The flags for a host that writes facts on models.

use crate::model_status::ModelReports;
use clap::Args;

#[derive(Args, Debug)]
pub(super) struct ModelReportArgs {
    /// Namespace in which model agents report, Pointsman's or OME's. From these reports the leader writes the status of BaseModels and
    /// ClusterBaseModels, and the facts in their files. Default: the leader doesn't write them
    #[arg(long, value_name = "NAMESPACE")]
    model_agent_namespace: Option<String>,
    /// Image of the Jobs that read models on PersistentVolumeClaims (pvc://); default: the image of the host's own pod
    #[arg(long, value_name = "IMAGE", requires = "model_agent_namespace")]
    model_inspect_image: Option<String>,
}

impl ModelReportArgs {
    pub(super) fn reports(self) -> Option<ModelReports> {
        let namespace = self.model_agent_namespace?;
        Some(ModelReports { namespace, inspect_image: self.model_inspect_image })
    }
}
