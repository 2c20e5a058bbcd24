//! The pods of OME's TrainingJob: the merged layers of its templates, and the settings from its annotations. The host has already added the
//! framework's variables to the frame.

use super::{settings::Settings, storage::Storage};
use crate::{Config, pod::Pod, rules::Rules};
use pointsman_plugin::{Failure, Reason, Role, pod_templating::Request};

pub(crate) static RULES: Rules = Rules { main: "trainer", lenient: true, speaks, no_image, finish };

fn speaks(layer: &str, _: Role) -> bool {
    layer == "user"
}

fn finish(_: &Config, request: &Request, pod: &mut Pod<'_>, reasons: &mut Vec<Reason>) -> Result<(), Failure> {
    let settings = Settings::from_request(request)?;
    if let Some(storage) = request.layer::<Option<Storage>>("storage")?.flatten() {
        storage.mount(pod, reasons);
    }
    settings.tell_trainer(pod);
    settings.tell_cloud(pod);
    settings.give_secret(pod);
    settings.secure(pod, reasons)
}

fn no_image(request: &Request, container: &str) -> String {
    let replica = if request.role == Role::Launcher { "launcher" } else { "worker" };
    format!("the container {container} has no image: set it in spec.{replica}.template.spec.containers")
}
