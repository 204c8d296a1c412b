//! Compiles the init, which the library embeds: a program of its own, static and without dependencies, so that it starts fast
//! and runs whatever the host has installed.

use std::{env, error::Error, path::PathBuf, process::Command};

const SOURCES: &[&str] =
    &["kernel.rs", "landlock.rs", "limits.rs", "main.rs", "program.rs", "protocol.rs", "supervisor.rs", "tree.rs"];

#[expect(clippy::disallowed_methods, reason = "a build script has nothing else to call the compiler with")]
fn main() -> Result<(), Box<dyn Error>> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=init/{source}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var("OUT_DIR")?).join("palyra-init");
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc.args(["--edition", "2024", "--crate-name", "palyra_init", "init/main.rs"]);
    rustc.args(["--target", &env::var("TARGET")?]);
    for option in [
        "opt-level=s",
        "lto=fat",
        "codegen-units=1",
        "panic=abort",
        "strip=symbols",
        // Nothing to look up and nothing to relocate when it starts.
        "target-feature=+crt-static",
        "relocation-model=static",
    ] {
        rustc.args(["-C", option]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    // The flags of the workspace are for its own programs; a coverage or sanitizer flag would not fit this one.
    let status = rustc.arg("-o").arg(out).args(["-D", "warnings"]).status()?;
    if !status.success() {
        return Err("the init did not compile".into());
    }
    Ok(())
}
