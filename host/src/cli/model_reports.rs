//! The flags by which a host writes what is known of models.

use crate::model_status::ModelReports;
use clap::Args;

#[derive(Args, Debug)]
pub(super) struct ModelReportArgs {
    /// The namespace in which model agents report, Pointsman's or OME's. By these reports the leader writes the status of BaseModels and
    /// ClusterBaseModels, and what their files say of them. By default it doesn't.
    #[arg(long, value_name = "NAMESPACE")]
    model_agent_namespace: Option<String>,
    /// The image of the Jobs that read models on PersistentVolumeClaims (pvc://). By default the host's own, as its pod has it.
    #[arg(long, value_name = "IMAGE", requires = "model_agent_namespace")]
    model_inspect_image: Option<String>,
}

impl ModelReportArgs {
    pub(super) fn reports(self) -> Option<ModelReports> {
        let namespace = self.model_agent_namespace?;
        Some(ModelReports { namespace, inspect_image: self.model_inspect_image })
    }
}
