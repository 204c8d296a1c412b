//! Lists the templates of skills below `templates/skills`, so that the program embeds each of their files: what is there is what `palyra skills
//! new` writes. Everything in them is text.

use std::{
    env,
    error::Error,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=templates/skills");
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?).join("templates/skills");
    let mut table = String::from("&[\n");
    for language in LANGUAGES {
        let directory = root.join(language);
        let mut files = Vec::new();
        collect(&directory, &mut files)?;
        files.sort();
        for file in &files {
            let name = file.strip_prefix(&directory)?.to_str().ok_or("the name of a template is not UTF-8")?;
            writeln!(table, "    ({language:?}, {name:?}, include_str!({:?})),", file.display().to_string())?;
        }
    }
    table.push(']');
    fs::write(PathBuf::from(env::var("OUT_DIR")?).join("templates.rs"), table)?;
    Ok(())
}

/// The files of a directory, however deep. What building a template leaves behind is none of it.
fn collect(directory: &Path, files: &mut Vec<PathBuf>) -> Result<(), Box<dyn Error>> {
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let path = entry?.path();
        let is_left = path.file_name().is_some_and(|name| LEFT_BEHIND.iter().any(|left| name == *left));
        if path.is_dir() && !is_left {
            println!("cargo::rerun-if-changed={}", path.display());
            collect(&path, files)?;
        } else if path.is_file() {
            files.push(path);
        }
    }
    Ok(())
}

const LANGUAGES: &[&str] = &["rust", "c", "js", "python"];
const LEFT_BEHIND: &[&str] = &["target", "node_modules", "__pycache__", "build", "dist", ".venv"];
