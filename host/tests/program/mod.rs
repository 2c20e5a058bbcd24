//! The program itself, in its own folder.

use crate::policies::cache;
use serde_json::Value;
use std::{
    fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// A model and a runtime.
const CONTEXT: &str = r#"
apiVersion: ome.io/v1beta1
kind: ClusterBaseModel
metadata: {name: llama}
spec: {modelFormat: {name: safetensors}, modelParameterSize: 8B, storage: {storageUri: "hf://a/b", path: /mnt/llama}}
---
apiVersion: ome.io/v1beta1
kind: ClusterServingRuntime
metadata: {name: vllm, annotations: {cost.example.com/per-hour: "9"}}
spec:
  supportedModelFormats: [{modelFormat: {name: safetensors}, autoSelect: true}]
  engineConfig: {runner: {name: ome-container, image: "vllm:1"}}
"#;

/// A service for these.
pub(crate) const CHAT: &str = "apiVersion: ome.io/v1beta1\nkind: InferenceService\nmetadata: {name: chat}\nspec:\n  model: {name: llama}\n";

/// Its output as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// An empty folder, recreated for each run.
pub(crate) fn empty_folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::remove_dir_all(&folder).ok();
    fs::create_dir_all(&folder).unwrap();
    folder
}

/// Such a folder with the model and the runtime.
pub(crate) fn folder(name: &str) -> PathBuf {
    let folder = empty_folder(name);
    fs::write(folder.join("context.yaml"), CONTEXT).unwrap();
    folder
}

/// The program without a cluster or a screen, and with the cache of compiled plugins that all tests share.
pub(crate) fn pointsman(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pointsman"));
    command.args(words).env("POINTSMAN_CACHE", cache()).env("KUBECONFIG", "/nowhere").env_remove("COLUMNS");
    command
}

/// Its stdout and stderr. It must exit with this code.
pub(crate) fn ended(code: i32, folder: &Path, words: &[&str], stdin: &str) -> (String, String) {
    let mut command = pointsman(words);
    command.current_dir(folder).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // It doesn't have to read its stdin.
    child.stdin.take().unwrap().write_all(stdin.as_bytes()).ok();
    let output = child.wait_with_output().unwrap();
    let [printed, said] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!(output.status.code(), Some(code), "{words:?}: {printed}{said}");
    (printed, said)
}

/// Its JSON output. It must exit with this code.
pub(crate) fn printed_json(code: i32, command: &mut Command) -> Value {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}
