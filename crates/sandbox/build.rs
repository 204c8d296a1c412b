//! Compiles the init, which the library embeds: a program of its own, static and without any library, so that it starts fast and
//! runs whatever the host has installed.

use std::{env, error::Error, path::PathBuf, process::Command};

const SOURCES: &[&str] = &[
    "blueprint.rs",
    "enclosure.rs",
    "files.rs",
    "filter.rs",
    "kernel.rs",
    "kernel/call.rs",
    "kernel/enclosing.rs",
    "kernel/layout.rs",
    "kernel/memory.rs",
    "kernel/probing.rs",
    "landlock.rs",
    "launcher.rs",
    "limits.rs",
    "main.rs",
    "notices.rs",
    "probe.rs",
    "program.rs",
    "protocol.rs",
    "supervisor.rs",
    "tree.rs",
];

#[expect(clippy::disallowed_methods, reason = "a build script has nothing else to call the compiler with")]
fn main() -> Result<(), Box<dyn Error>> {
    for source in SOURCES {
        println!("cargo::rerun-if-changed=init/{source}");
    }
    println!("cargo::rerun-if-changed=build.rs");
    // Tests show that attacks succeed where a defence is switched off. What is shipped has no such switches.
    println!("cargo::rustc-check-cfg=cfg(weak)");
    let is_weak = env::var("PROFILE")? == "debug";
    if is_weak {
        println!("cargo::rustc-cfg=weak");
    }
    let out = PathBuf::from(env::var("OUT_DIR")?).join("palyra-init");
    // The flags of the workspace are for its own programs: a coverage or sanitizer flag would not fit this one.
    let mut rustc = Command::new(env::var("RUSTC")?);
    rustc.args(["--edition", "2024", "--crate-name", "palyra_init", "-D", "warnings", "init/main.rs"]);
    let target = env::var("TARGET")?;
    rustc.args(["--target", &target]).arg("-o").arg(out);
    let optimised = ["opt-level=s", "lto=fat", "codegen-units=1", "panic=abort", "strip=symbols"];
    // Nothing to look up and nothing to relocate when it starts, and no library that would want to start first.
    let alone = ["target-feature=+crt-static", "relocation-model=static"];
    let bare = ["link-arg=-nostartfiles", "link-arg=-nostdlib"];
    // For these the compiler brings a C library of its own.
    let own_library: &[&str] = if target.ends_with("musl") { &["link-self-contained=no"] } else { &[] };
    for option in optimised.iter().chain(&alone).chain(&bare).chain(own_library) {
        rustc.args(["-C", option]);
    }
    if is_weak {
        rustc.args(["--cfg", "weak"]);
    }
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    if rustc.status()?.success() { Ok(()) } else { Err("the init did not compile".into()) }
}
