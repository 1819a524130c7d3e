//! Builds what the tests run, once per test binary: the host and the guests.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The checkout.
///
/// # Panics
/// Never: the tests are a folder of it.
pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests are a folder of the workspace")
}

/// The `haulier` binary, built with the profile of the tests.
///
/// # Panics
/// When the build fails.
pub fn haulier() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| binary("haulier"))
}

/// A binary of the workspace, such as `insert`, built with the profile of the tests.
///
/// # Panics
/// When the build fails.
pub fn binary(name: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let profile = BUILT.get_or_init(|| {
        let profile = own_folder(2);
        // The whole workspace is named, as the tests do: other features would be another build.
        let mut build = cargo();
        build.current_dir(root()).args(["build", "--quiet", "--workspace", "--bins"]);
        if profile.ends_with("release") {
            build.arg("--release");
        }
        assert!(build.status().expect("cargo runs").success(), "the host does not build");
        profile
    });
    profile.join(name)
}

/// Cargo, without what the cargo that runs this test says of the test's package: some build scripts
/// run again when those variables change, and half of the dependencies would be built anew each time.
fn cargo() -> Command {
    let mut cargo = Command::new(env!("CARGO"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            cargo.env_remove(name);
        }
    }
    cargo
}

/// The target folder of the running test, for what tests install.
///
/// # Panics
/// When the test binary does not stand where cargo puts it.
pub fn target() -> PathBuf {
    own_folder(3)
}

/// The test binary stands in `<target>/<profile>/deps`; that folder is the first.
fn own_folder(number: usize) -> PathBuf {
    let own = std::env::current_exe().expect("a process has a path");
    own.ancestors().nth(number).expect("tests run from the target folder").to_owned()
}

/// A guest component, such as `order_events`.
///
/// # Panics
/// When the guests do not build, or there is none of that name.
pub fn guest(name: &str) -> PathBuf {
    static BUILT: OnceLock<()> = OnceLock::new();
    let plugins = root().join("plugins");
    BUILT.get_or_init(|| {
        let status = cargo()
            .current_dir(&plugins)
            // What was set for the host's build must not reach the guests'.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("CARGO_BUILD_TARGET")
            .env_remove("RUSTFLAGS")
            .args(["build", "--release", "--quiet"])
            .status()
            .expect("cargo runs");
        assert!(status.success(), "the guests do not build");
    });
    let file = plugins.join("target/wasm32-wasip2/release").join(format!("{name}.wasm"));
    assert!(file.is_file(), "there is no guest {}", file.display());
    file
}
