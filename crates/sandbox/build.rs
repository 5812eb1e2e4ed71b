//! Builds the guest, statically and for the engine's architecture, and hands it to the crate to embed.
//!
//! The guest has a cargo run of its own: a static C runtime is a setting of a whole build, and set for the workspace
//! it breaks procedural macros.

use std::{
    env,
    ffi::OsString,
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    path::{Path, PathBuf},
    process::Command,
};

/// Set by `cargo clippy`, `cargo fix` and wrappers of them, or meant for the build that we are part of.
const NOT_INHERITED: [&str; 8] = [
    "RUSTC_WORKSPACE_WRAPPER",
    "CLIPPY_ARGS",
    "RUSTFLAGS",
    "CARGO_BUILD_RUSTFLAGS",
    "CARGO_BUILD_TARGET",
    "CARGO_BUILD_TARGET_DIR",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_BUILD_DIR",
];

fn main() {
    let workspace = PathBuf::from(required("CARGO_MANIFEST_DIR")).join("../..");
    for path in ["crates/guest", "crates/protocol", "Cargo.lock", "Cargo.toml"] {
        println!("cargo:rerun-if-changed={}", workspace.join(path).display());
    }
    println!("cargo:rerun-if-env-changed=MAYFLY_GUEST_TARGET");
    let target = guest_target();
    let architecture = target.split('-').next().unwrap_or_default().to_owned();
    refuse_a_missing_target(&target);
    let id = build_id(&workspace);
    let guest = build(&workspace, &target, &id);
    println!("cargo:rustc-env=MAYFLY_GUEST_BINARY={}", guest.display());
    println!("cargo:rustc-env=MAYFLY_GUEST_BUILD={id}");
    println!("cargo:rustc-env=MAYFLY_GUEST_ARCHITECTURE={architecture}");
}

fn required(name: &str) -> String {
    let value = env::var_os(name).unwrap_or_else(|| panic!("cargo sets {name} for build scripts"));
    value
        .into_string()
        .unwrap_or_else(|_| panic!("{name} is not UTF-8"))
}

/// The target that mayfly itself is built for where that has a static glibc, and musl elsewhere.
fn guest_target() -> String {
    if let Some(target) = env::var_os("MAYFLY_GUEST_TARGET") {
        return target.into_string().expect("MAYFLY_GUEST_TARGET is UTF-8");
    }
    let target = required("TARGET");
    if target.ends_with("-linux-gnu") || target.ends_with("-linux-musl") {
        return target;
    }
    let architecture = required("CARGO_CFG_TARGET_ARCH");
    format!("{architecture}-unknown-linux-musl")
}

fn refuse_a_missing_target(target: &str) {
    let output = Command::new(required("RUSTC"))
        .args(["--print", "target-libdir", "--target", target])
        .output()
        .expect("rustc runs");
    let folder = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && Path::new(folder.trim()).is_dir(),
        "the guest, pid 1 of each sandbox, is built for {target}, and this Rust has no standard library for it.\n\
         Add it with `rustup target add {target}`, or name another in MAYFLY_GUEST_TARGET, such as \
         x86_64-unknown-linux-musl or aarch64-unknown-linux-musl: the architecture is that of the container engine."
    );
}

/// Names this build of the guest: by its sources, so that building again gives the same program.
fn build_id(workspace: &Path) -> String {
    let mut files = vec![workspace.join("Cargo.lock")];
    let mut folders = vec![workspace.join("crates/guest"), workspace.join("crates/protocol")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("the sources are readable") {
            let path = entry.expect("the sources are readable").path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.push(path);
            }
        }
    }
    files.sort();
    // Only told apart, never trusted: the volume's content is checked by its SHA-256.
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.strip_prefix(workspace)
            .expect("it lies in it")
            .hash(&mut hasher);
        fs::read(&file)
            .expect("the sources are readable")
            .hash(&mut hasher);
    }
    format!("{}-{:016x}", required("CARGO_PKG_VERSION"), hasher.finish())
}

fn build(workspace: &Path, target: &str, id: &str) -> PathBuf {
    let folder = PathBuf::from(required("OUT_DIR")).join("guest");
    let mut cargo = Command::new(required("CARGO"));
    cargo
        .current_dir(workspace)
        .args([
            "build",
            "--package",
            "mayfly-guest",
            "--profile",
            "guest",
            "--locked",
        ])
        .args(["--target", target, "--target-dir"])
        .arg(&folder)
        .env("MAYFLY_GUEST_BUILD", id)
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static");
    for name in NOT_INHERITED {
        cargo.env_remove(name);
    }
    // A linker of another system can't make a Linux program; the one that comes with Rust can, for musl.
    let linker = format!("CARGO_TARGET_{}_LINKER", target.to_uppercase().replace('-', "_"));
    if target.ends_with("-musl") && env::var_os(&linker).is_none() && required("HOST") != target {
        cargo.env(linker, OsString::from("rust-lld"));
    }
    let status = cargo.status().expect("cargo runs");
    assert!(
        status.success(),
        "the guest, pid 1 of each sandbox, could not be built for {target}; cargo's own words stand above.\n\
         If a linker or a C library for {target} is missing: on Debian the package is libc6-dev for the machine's own \
         architecture; elsewhere `rustup target add x86_64-unknown-linux-musl` and \
         MAYFLY_GUEST_TARGET=x86_64-unknown-linux-musl do without one."
    );
    folder.join(target).join("guest").join("mayfly-guest")
}
