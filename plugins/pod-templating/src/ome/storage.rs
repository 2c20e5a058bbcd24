//! A claim that the host creates for a component.

use crate::{
    node::{By, Form, Node},
    pod::{Pod, set_variable},
    volume,
};
use pointsman_plugin::{Failure, Reason, reason};
use serde::Deserialize;
use serde_json::Value;

/// The mount path, unless it contains the model.
const PATH: &str = "/mnt/storage";

/// The group that owns a claim, if no layer specifies the user of the pod's processes.
const GROUP: u32 = 1000;

const BY: By<'static> = By { layer: "storage", ..By::PLUGIN };

/// The layer `storage`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Storage {
    pub(super) claim: String,
    #[serde(default)]
    read_only: bool,
}

impl Storage {
    /// The source of a volume for downloaded files.
    pub(super) fn to_fill(&self, what: &str) -> Result<(&'static str, Node<'static>), Failure> {
        if self.read_only {
            return Err(format!(
                "the {what} is to be downloaded into the claim {}, which is read-only: set an access mode that lets the pod write, such as \
                 storage.ome.io/access-mode: ReadWriteOnce, or use a claim that holds it with pvc://CLAIM/PATH",
                self.claim
            )
            .into());
        }
        Ok(volume::claim(&self.claim, false, BY))
    }

    /// Lets the init container write to the claim that it fills, because a new file system belongs to root.
    ///
    /// The change can't be limited to files with a wrong owner, because Knative rejects fsGroupChangePolicy.
    pub(super) fn let_write(&self, initializer: &str, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
        let mut containers = pod.spec.items_at("initContainers").iter();
        let container = containers.find(|container| container.text_at("name") == Some(initializer));
        let user = container.and_then(|container| container.get("securityContext")?.get("runAsUser")?.scalar());
        if user.and_then(Value::as_i64) == Some(0) {
            return;
        }
        let Some(context) = pod.spec.object_at("securityContext", BY) else { return };
        if ["fsGroup", "runAsUser", "runAsGroup"].iter().any(|field| context.get(field).is_some()) {
            return;
        }
        context.set("fsGroup", Node { by: BY, form: Form::Scalar(GROUP.into()) });
        let message = format!(
            "The claim {} is given to the group {GROUP} by fsGroup, so that the init container {initializer}, which isn't root, can write to it.",
            self.claim
        );
        reasons.push(reason("ClaimWritable", message));
    }

    /// Mounts the claim into the main container, and sets its path there.
    pub(super) fn mount(&self, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) {
        let Some(main) = pod.main_mut() else { return };
        set_variable(main, "STORAGE_PATH", PATH, BY);
        if volume::is_mounted(main, PATH) {
            reasons.push(reason("StorageMountKept", format!("Something is mounted at {PATH} already, so the claim {} isn't.", self.claim)));
            return;
        }
        let volume = volume::add(pod, "storage", volume::claim(&self.claim, self.read_only, BY), BY);
        if self.read_only {
            volume::mount(pod, &volume, PATH, "", BY);
        } else {
            volume::mount_writable(pod, &volume, PATH, BY);
        }
    }
}

/// The folder of a claim for the content of a URI. A pod with another URI therefore overwrites nothing that others serve from.
///
/// It is one folder without subfolders: of the folders that the kubelet creates for a subPath, the group may write only to the last.
pub(super) fn folder(of: &str, uri: &str) -> String {
    format!("{of}-{:016x}", fnv_1a(uri.as_bytes()))
}

/// The 64-bit FNV-1a hash. It is the same in all versions of this policy.
fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
