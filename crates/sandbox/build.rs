//! Compiles the init, which the library embeds: a program of its own, static and without dependencies, so that it starts fast
//! and runs whatever the host has installed.

use std::{env, error::Error, path::PathBuf, process::Command};

const SOURCES: &[&str] =
    &["kernel.rs", "landlock.rs", "limits.rs", "main.rs", "program.rs", "protocol.rs", "supervisor.rs", "tree.rs"];

fn main() -> Result<(), Box<dyn Error>> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=init/{source}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // Nothing to look up and nothing to relocate when it starts.
    if compile(&["target-feature=+crt-static", "relocation-model=static"])? {
        return Ok(());
    }
    println!(
        "cargo::warning=there is no static C library here, so the init is linked dynamically and starts a little slower"
    );
    if compile(&[])? { Ok(()) } else { Err("the init did not compile".into()) }
}

#[expect(clippy::disallowed_methods, reason = "a build script has nothing else to call the compiler with")]
fn compile(linking: &[&str]) -> Result<bool, Box<dyn Error>> {
    let out = PathBuf::from(env::var("OUT_DIR")?).join("palyra-init");
    // The flags of the workspace are for its own programs: a coverage or sanitizer flag would not fit this one.
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc.args(["--edition", "2024", "--crate-name", "palyra_init", "-D", "warnings", "init/main.rs"]);
    rustc.args(["--target", &env::var("TARGET")?]).arg("-o").arg(out);
    let options = ["opt-level=s", "lto=fat", "codegen-units=1", "panic=abort", "strip=symbols"];
    for option in options.iter().chain(linking) {
        rustc.args(["-C", option]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    Ok(rustc.status()?.success())
}
