//! Tries the images: skopeo reads them, the one for this machine's processor runs in a container, and QEMU runs the other.

use super::{
    Commit, Image, PLATFORMS, Platform, VERSION, build,
    layout::{Descriptor, USER},
    megabytes,
    toolchain::{Toolchain, write_program},
};
use crate::{build as builds, guard::Guarded, tools};
use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use pointsman_harness::{target_dir, workspace};
use serde_json::Value;
use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

/// The maximum size of an image in bytes, compressed.
const MAX_SIZE: usize = 60_000_000;

/// The path of the cache in the container, a volume in the Deployment.
const CACHE: &str = "/cache";

const RUNS_CONTAINERS: bool = cfg!(target_os = "linux");

const SAMPLE: &str = "deploy/sample.yaml";

/// The packages whose tests run in QEMU: the sandbox, and the planner, which calls it.
const TESTED: [&str; 2] = ["pointsman-sandbox", "pointsman-core"];

/// Checks the programs that the trial needs, before any long step.
pub(crate) fn require_tools() -> Result<()> {
    if !RUNS_CONTAINERS {
        return Ok(());
    }
    let emulators = PLATFORMS.iter().filter(|platform| !platform.is_native()).map(Platform::emulator);
    let missing: Vec<_> =
        emulators.chain(["skopeo".to_owned(), "podman".to_owned()]).filter(|name| tools::output(name, &["--version"]).is_none()).collect();
    if !missing.is_empty() {
        bail!(
            "{} can't be run, and {} needed to try the image: install the missing programs (Debian and Ubuntu: `apt-get install \
             --no-install-recommends skopeo podman runc qemu-user`), or put it on the PATH",
            missing.join(", "),
            if missing.len() == 1 { "is" } else { "are" }
        );
    }
    Ok(())
}

/// Builds the images and tries them.
pub(crate) fn trial() -> Result<()> {
    if !RUNS_CONTAINERS {
        println!("  not tried: the trial needs Linux");
        return Ok(());
    }
    let (toolchain, image) = build(&PLATFORMS.iter().collect::<Vec<_>>(), &Commit::head()?)?;
    read_by_skopeo(&image)?;
    let native = builds::host()?;
    let expected = stdout_text(Command::new(native).args(["render", "-f", SAMPLE]).current_dir(workspace()), "this machine's own host")?;
    for (platform, manifest) in &image.platforms {
        if manifest.total > MAX_SIZE {
            bail!("the image for {} takes {}, and {} is the limit", platform.name(), megabytes(manifest.total), megabytes(MAX_SIZE));
        }
        let root = unpack(&image, platform, manifest)?;
        if platform.is_native() {
            in_container(&image, &root, &expected)?;
        } else {
            emulated(&toolchain, platform, &root, &expected)?;
        }
    }
    Ok(())
}

impl Platform {
    fn is_native(&self) -> bool {
        self.cpu == env::consts::ARCH
    }

    fn emulator(&self) -> String {
        format!("qemu-{}", self.cpu)
    }
}

/// Copies the image, which checks all digests and sizes, and reads each platform's configuration.
fn read_by_skopeo(image: &Image) -> Result<()> {
    let copied = target_dir().join("image/copied");
    if copied.exists() {
        fs::remove_dir_all(&copied)?;
    }
    let (from, to) = (format!("oci:{}:{VERSION}", image.folder.display()), format!("oci:{}:{VERSION}", copied.display()));
    Guarded::new("skopeo")?.args(["copy", "--quiet", "--all", &from, &to]).succeed("copying the image with skopeo")?;
    let index: Value = serde_json::from_slice(&fs::read(copied.join("index.json"))?)?;
    if index["manifests"][0]["digest"] != image.whole.digest {
        bail!("skopeo copied {} as {}", image.whole.digest, index["manifests"][0]["digest"]);
    }
    for (platform, _) in &image.platforms {
        let mut inspect = Command::new("skopeo");
        inspect.args(["--override-os", "linux", "--override-arch", platform.architecture, "inspect", "--config"]);
        let packed = format!("oci-archive:{}:{VERSION}", image.archive.display());
        let config: Value = serde_json::from_str(&stdout_text(inspect.arg(packed), "skopeo")?)?;
        let start = &config["config"];
        if config["architecture"] != platform.architecture || start["Entrypoint"][0] != "/pointsman" || start["User"] != USER {
            bail!("skopeo reads an unexpected configuration for {}: {config}", platform.name());
        }
    }
    fs::remove_dir_all(&copied)?;
    println!("  skopeo reads the layout and its archive, and copies {}", image.whole.digest);
    Ok(())
}

/// Unpacks the root file system of a platform's image into a folder.
fn unpack(image: &Image, platform: &Platform, manifest: &Descriptor) -> Result<PathBuf> {
    let root = target_dir().join("image").join(format!("root-{}", platform.architecture));
    if root.exists() {
        fs::remove_dir_all(&root).with_context(|| format!("clearing {}", root.display()))?;
    }
    let blob = |digest: &str| image.folder.join("blobs").join(digest.replace(':', "/"));
    let manifest: Value = serde_json::from_slice(&fs::read(blob(&manifest.digest))?)?;
    for layer in manifest["layers"].as_array().into_iter().flatten() {
        let file = fs::File::open(blob(layer["digest"].as_str().unwrap_or_default()))?;
        tar::Archive::new(GzDecoder::new(file)).unpack(&root).with_context(|| format!("unpacking into {}", root.display()))?;
    }
    Ok(root)
}

/// Runs the host as the Deployment does: with its own user, a read-only root, no capabilities, and a volume for the cache.
fn in_container(image: &Image, root: &Path, expected: &str) -> Result<()> {
    let podman = Podman::new()?;
    let how = match podman.start(image) {
        Ok(container) => {
            try_host(|args| container.command(args), expected)?;
            container.how
        }
        Err(error) => {
            println!("  no container can be started ({error:#})");
            fs::create_dir_all(root.join("proc"))?;
            fs::create_dir_all(root.join(&CACHE[1..]))?;
            fs::create_dir_all(root.join("samples"))?;
            try_host(|args| changed_root(root, args), expected).context("the host starts neither in a container nor in a changed root")?;
            "in a changed root (chroot), without a container".to_owned()
        }
    };
    println!("  the host for this machine runs {how}, as user 65532 with a read-only root and no capabilities");
    Ok(())
}

/// Checks what each image must be able to do. The paths in the arguments are the container's: `/samples` is the folder `deploy`.
fn try_host(host: impl Fn(&[&str]) -> Command, expected: &str) -> Result<()> {
    let version = stdout_text(&mut host(&["--version"]), "pointsman --version")?;
    if version.trim() != format!("pointsman {VERSION}") {
        bail!("`pointsman --version` prints {version}");
    }
    stdout_text(&mut host(&["controller", "--help"]), "pointsman controller --help")?;
    // This compiles the built-in policies in separate processes.
    let plan = stdout_text(&mut host(&["render", "-f", "/samples/sample.yaml", "--cache", "/cache/plugins"]), "pointsman render")?;
    if plan != expected {
        bail!("`pointsman render` of {SAMPLE} differs from the output of this machine's own host");
    }
    Ok(())
}

/// podman with its own storage.
struct Podman {
    /// This path must be short.
    storage: PathBuf,
}

/// An image that podman has loaded, and the runtime that starts it.
struct Container<'p> {
    podman: &'p Podman,
    runtime: Option<&'static str>,
    id: String,
    how: String,
}

impl Podman {
    fn new() -> Result<Self> {
        let storage = env::temp_dir().join(format!("pointsman-{}", std::process::id()));
        fs::create_dir_all(&storage).with_context(|| format!("making {}", storage.display()))?;
        Ok(Self { storage })
    }

    fn command(&self) -> Command {
        let mut command = Command::new("podman");
        command.arg("--root").arg(self.storage.join("root")).arg("--runroot").arg(self.storage.join("run"));
        command.args(["--storage-driver", "vfs", "--log-level", "error"]);
        command
    }

    /// Loads the image, and finds a runtime that starts it: some don't support the control groups of older machines.
    fn start(&self, image: &Image) -> Result<Container<'_>> {
        let pulled =
            stdout_text(self.command().args(["pull", "--quiet", &format!("oci:{}:{VERSION}", image.folder.display())]), "podman pull")?;
        let mut container = Container { podman: self, runtime: None, id: pulled.trim().to_owned(), how: String::new() };
        let mut errors = Vec::new();
        for runtime in [None, Some("crun"), Some("runc")] {
            container.runtime = runtime;
            match stdout_text(&mut container.command(&["--version"]), runtime.unwrap_or("podman's own runtime")) {
                Ok(_) => {
                    container.how = format!("in a podman container ({})", runtime.unwrap_or("the default runtime"));
                    return Ok(container);
                }
                Err(error) => errors.push(format!("{error:#}")),
            }
        }
        bail!("{}", errors.join("; "))
    }
}

impl Drop for Podman {
    fn drop(&mut self) {
        self.command().args(["rmi", "--all", "--force"]).output().ok();
        fs::remove_dir_all(&self.storage).ok();
    }
}

impl Container<'_> {
    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.podman.command();
        if let Some(runtime) = self.runtime {
            command.args(["--runtime", runtime]);
        }
        command.args(["run", "--rm", "--network", "none", "--read-only", "--read-only-tmpfs=false", "--cap-drop", "all"]);
        command.args(["--security-opt", "no-new-privileges", "--tmpfs", &format!("{CACHE}:mode=1777")]);
        // podman's default limits may exceed those of the user who runs it.
        command.args(["--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024"]);
        command.arg("--volume").arg(format!("{}:/samples:ro", workspace().join("deploy").display()));
        command.arg(&self.id).args(args);
        command
    }
}

/// Runs the host without a container, which needs root.
fn changed_root(root: &Path, args: &[&str]) -> Command {
    const SCRIPT: &str = "root=$1 samples=$2; shift 2
        mount --bind \"$root\" \"$root\" && mount -o remount,bind,ro \"$root\" &&
        mount --bind \"$samples\" \"$root/samples\" && mount -t tmpfs -o mode=1777 tmpfs \"$root/cache\" &&
        mount -t proc proc \"$root/proc\" &&
        exec setpriv --no-new-privs chroot --userspec=65532:65532 --groups= \"$root\" /pointsman \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-euc", SCRIPT, "sh"]).arg(root);
    command.arg(workspace().join("deploy")).args(args);
    command
}

/// Runs the host for another processor in QEMU, and the tests of its sandbox and its planning.
fn emulated(toolchain: &Toolchain, platform: &Platform, root: &Path, expected: &str) -> Result<()> {
    let program = root.join("pointsman");
    let Some(runner) = runner(platform)? else {
        let version = stdout_text(Command::new(platform.emulator()).arg(program).arg("--version"), "pointsman --version")?;
        println!(
            "  {} for {} runs in {}, but no policy or test does: here a program can't register an emulator in a user namespace",
            version.trim(),
            platform.name(),
            platform.emulator()
        );
        return Ok(());
    };
    let cache = root.with_file_name(format!("cache-{}", platform.architecture));
    if cache.exists() {
        fs::remove_dir_all(&cache)?;
    }
    let host = |args: &[&str]| {
        let mut command = Command::new(&runner);
        command.arg(&program).current_dir(workspace());
        command.args(args.iter().map(|arg| match *arg {
            "/samples/sample.yaml" => Path::new(SAMPLE),
            "/cache/plugins" => &cache,
            other => Path::new(other),
        }));
        command
    };
    try_host(host, expected).with_context(|| format!("the host for {}", platform.name()))?;
    println!("  the host for {} runs in {}", platform.name(), platform.emulator());

    let variable = format!("CARGO_TARGET_{}_RUNNER", platform.target.replace('-', "_").to_uppercase());
    let packages = TESTED.iter().flat_map(|package| ["--package", package]);
    let tests = toolchain.cargo(platform.target, &["test", "--lib"])?.args(packages).env(&variable, &runner);
    tests.succeed(&format!("a unit test for {}", platform.name()))
}

/// Writes a program that runs other programs for a platform, including the processes that they start. Returns None if the kernel doesn't
/// allow that: the program registers the emulator in a user namespace, so that the machine stays unchanged.
fn runner(platform: &Platform) -> Result<Option<PathBuf>> {
    const MAGIC: &str = r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00";
    const MASK: &str = r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff";
    const REGISTER: &str = "mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc
        printf %s \"$0\" > /proc/sys/fs/binfmt_misc/register
        exec \"$@\"";
    let emulator = stdout_text(Command::new("sh").args(["-c", &format!("command -v {}", platform.emulator())]), &platform.emulator())?;
    let line = format!(":pointsman:M::{MAGIC}{}:{MASK}:{}:", platform.elf_machine, emulator.trim());
    let script = format!("#!/bin/sh\nexec unshare --user --map-root-user --mount sh -euc '{REGISTER}' '{line}' \"$@\"\n");
    let runner = std::path::absolute(target_dir())?.join(format!("image/run-{}", platform.architecture));
    write_program(&runner, &script)?;
    Ok(Command::new(&runner).arg("true").output().is_ok_and(|ran| ran.status.success()).then_some(runner))
}

fn stdout_text(command: &mut Command, what: &str) -> Result<String> {
    let Output { status, stdout, stderr } = command.output().with_context(|| format!("starting {what}"))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        bail!("{what} fails ({status}): {}", said.trim().lines().last().unwrap_or_default());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}
