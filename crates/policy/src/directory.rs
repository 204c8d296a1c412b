//! Reads policy files.
//!
//! Guarantees: only regular files are opened (a pipe cannot block, a device is not read), none larger than [`MAX_FILE_SIZE`], and no
//! more than [`MAX_TOTAL_SIZE`] at once; every file that cannot be used is reported with its name and what to do. Does not: recurse,
//! or read files that do not end in `.cedar`.

use std::{
    fs::{self, File, Metadata},
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    engine::Engine,
    problem::{Finding, LoadError, MAX_FILE_SIZE, MAX_TOTAL_SIZE, Problem},
    set::Snapshot,
    source::{Location, SourceFile},
};

impl Engine {
    /// Puts the policies of a directory in force beside others, such as a preset, all at once. On any error the old set stays in
    /// force.
    ///
    /// # Errors
    /// With everything that is wrong, if anything is.
    pub fn reload_directory(&self, beside: &[SourceFile], directory: &Path) -> Result<Arc<Snapshot>, LoadError> {
        let own = read_policies(directory)?;
        self.reload(&[beside, &own].concat())
    }
}

/// Reads a `.cedar` file, or every `.cedar` file of a directory in the order of their names. Hidden files are passed over.
///
/// # Errors
/// With every file that cannot be used.
pub fn read_policies(path: &Path) -> Result<Vec<SourceFile>, LoadError> {
    let fail = |problem| LoadError { findings: vec![Finding { problem, location: Location::file(shown(path)) }] };
    let metadata = fs::metadata(path).map_err(|error| fail(Problem::Unreadable(describe(&error))))?;
    if !metadata.is_dir() {
        return Ok(vec![read_file(path).map_err(|finding| LoadError { findings: vec![finding] })?]);
    }
    let entries = fs::read_dir(path)
        .and_then(|entries| entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<PathBuf>>>())
        .map_err(|error| fail(Problem::Unreadable(describe(&error))))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().filter(|path| is_policy_file(path)).collect();
    paths.sort();
    let (mut files, mut findings, mut total) = (Vec::new(), Vec::new(), 0);
    for path in paths {
        match read_file(&path) {
            Ok(file) => {
                total += u64::try_from(file.text.len()).unwrap_or(u64::MAX);
                files.push(file);
            }
            Err(finding) => findings.push(finding),
        }
        // SECURITY: many large files are refused while they are read, not once they fill the memory.
        if total > MAX_TOTAL_SIZE {
            return Err(fail(Problem::TooLarge { size: total, limit: MAX_TOTAL_SIZE }));
        }
    }
    if findings.is_empty() { Ok(files) } else { Err(LoadError { findings }) }
}

/// Reads a text file of any kind with the same care: regular, not too large, UTF-8.
///
/// # Errors
/// When the file cannot be used.
pub fn read_text(path: &Path) -> Result<String, Finding> {
    let fail = |problem| Finding { problem, location: Location::file(shown(path)) };
    let io = |error: io::Error| fail(Problem::Unreadable(describe(&error)));
    check_regular(&fs::metadata(path).map_err(io)?).map_err(fail)?;
    let file = File::open(path).map_err(io)?;
    let mut bytes = Vec::new();
    // One byte more than allowed tells a file that grew since it was measured.
    file.take(MAX_FILE_SIZE + 1).read_to_end(&mut bytes).map_err(io)?;
    let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if size > MAX_FILE_SIZE {
        return Err(fail(Problem::TooLarge { size, limit: MAX_FILE_SIZE }));
    }
    String::from_utf8(bytes).map_err(|error| {
        let line =
            error.as_bytes().iter().take(error.utf8_error().valid_up_to()).filter(|&&byte| byte == b'\n').count() + 1;
        Finding { problem: Problem::NotUtf8, location: Location { line, ..Location::file(shown(path)) } }
    })
}

fn read_file(path: &Path) -> Result<SourceFile, Finding> {
    let mut file = SourceFile::operator(shown(path), read_text(path)?);
    file.path = Some(Arc::from(path));
    Ok(file)
}

fn is_policy_file(path: &Path) -> bool {
    let hidden = path.file_name().is_none_or(|name| name.as_encoded_bytes().starts_with(b"."));
    !hidden && path.extension().is_some_and(|extension| extension == "cedar")
}

fn check_regular(metadata: &Metadata) -> Result<(), Problem> {
    if metadata.is_dir() {
        Err(Problem::NotAFile("directory"))
    } else if !metadata.is_file() {
        Err(Problem::NotAFile("device or pipe"))
    } else if metadata.len() > MAX_FILE_SIZE {
        Err(Problem::TooLarge { size: metadata.len(), limit: MAX_FILE_SIZE })
    } else {
        Ok(())
    }
}

fn shown(path: &Path) -> String {
    palyra_types::visible::visible(&path.to_string_lossy())
}

/// The kind of an I/O error in words, without the number of the operating system.
fn describe(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "permission is denied".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Preset;

    const GOOD: &str = "@id(\"good\") permit (principal, action == Palyra::Action::\"fs.read\", resource);\n";

    fn problems(error: &LoadError) -> Vec<(&'static str, usize)> {
        error.findings.iter().map(|finding| (finding.problem.code(), finding.location.line)).collect()
    }

    #[test]
    fn the_files_of_a_directory_are_read_in_the_order_of_their_names() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["b.cedar", "a.cedar", "notes.txt", ".hidden.cedar"] {
            fs::write(directory.path().join(name), GOOD).unwrap();
        }
        let files = read_policies(directory.path()).unwrap();
        let names: Vec<_> = files.iter().filter_map(|file| file.name().rsplit('/').next()).collect();
        assert_eq!(names, ["a.cedar", "b.cedar"]);
    }

    #[test]
    fn every_file_that_cannot_be_used_is_named() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("a.cedar")).unwrap();
        fs::write(directory.path().join("b.cedar"), vec![b' '; 10 * 1024 * 1024]).unwrap();
        fs::write(directory.path().join("c.cedar"), b"// fine\n// \xff\n").unwrap();
        std::os::unix::fs::symlink("nowhere", directory.path().join("d.cedar")).unwrap();
        let error = read_policies(directory.path()).unwrap_err();
        assert_eq!(problems(&error), [("not_a_file", 1), ("too_large", 1), ("not_utf8", 2), ("unreadable", 1)]);
    }

    #[test]
    fn a_directory_of_many_large_files_is_refused_before_it_fills_the_memory() {
        let directory = tempfile::tempdir().unwrap();
        for number in 0..64 {
            File::create(directory.path().join(format!("{number}.cedar"))).unwrap().set_len(MAX_FILE_SIZE).unwrap();
        }
        let error = read_policies(directory.path()).unwrap_err();
        let read = 5 * MAX_FILE_SIZE;
        assert_eq!(error.findings[0].problem, Problem::TooLarge { size: read, limit: MAX_TOTAL_SIZE });
    }

    #[test]
    fn a_bad_directory_leaves_the_set_in_force() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("rules.cedar");
        fs::write(&file, GOOD).unwrap();
        let engine = Engine::new(&[]).unwrap();
        let preset = [Preset::Cautious.source()];
        let good = engine.reload_directory(&preset, directory.path()).unwrap().digest();
        let in_force = |id: &str| engine.snapshot().policies().any(|policy| policy.id.as_str() == id);
        assert!(in_force("good") && in_force("cautious.write"), "own rules stand beside the preset");
        for bad in [
            "permit (principal",
            "@id(\"x\") permit (principal, action, resource) when { context.nonsense };",
            "@id(\"x\") permit (principal, action, resource); @id(\"x\") permit (principal, action, resource);",
            "permit (principal, action, resource);",
            "@id(\"x\") permit (principal == Palyra::Robot::\"r\", action, resource);",
        ] {
            fs::write(&file, bad).unwrap();
            let error = engine.reload_directory(&preset, directory.path()).unwrap_err();
            assert!(!error.findings.is_empty(), "{bad}");
            assert_eq!(engine.snapshot().digest(), good, "{bad}");
        }
        fs::remove_file(&file).unwrap();
        fs::remove_dir(directory.path()).unwrap();
        assert_eq!(problems(&engine.reload_directory(&preset, directory.path()).unwrap_err()), [("unreadable", 1)]);
        assert_eq!(engine.snapshot().digest(), good);
    }
}
