//! The first line of a script, read by the kernel's rules.
//!
//! Guarantees: a script gets the interpreter and the argument that the kernel itself would give it; what the kernel would not start
//! is [`FirstLine::Broken`]. Does not: look for the interpreter.

/// How much of a file the kernel looks at.
pub const LOOKED_AT: usize = 256;

/// What the first line of a file says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FirstLine {
    /// The file is no script.
    Absent,
    /// It names no interpreter, or one whose name is cut off.
    Broken,
    /// It names an interpreter.
    Names {
        /// The interpreter, as it is written.
        interpreter: Vec<u8>,
        /// Everything after it, as one argument.
        argument: Option<Vec<u8>>,
    },
}

impl FirstLine {
    /// Reads the beginning of a file, filled up with NULs.
    pub fn read(start: &[u8; LOOKED_AT]) -> Self {
        let Some(line) = start.strip_prefix(b"#!") else { return Self::Absent };
        let Some(line) = whole(line) else { return Self::Broken };
        let line = without_trailing_blanks(without_leading_blanks(line));
        let end = line.iter().position(|&byte| ends_name(byte)).unwrap_or(line.len());
        let (interpreter, rest) = line.split_at_checked(end).unwrap_or((line, &[]));
        if interpreter.is_empty() {
            return Self::Broken;
        }
        let blank_follows = rest.first().copied().is_some_and(is_blank);
        let argument = Some(without_leading_blanks(rest)).filter(|argument| blank_follows && !argument.is_empty());
        // What the kernel passes on ends at a NUL, and may be nothing then.
        let argument = argument.map(|argument| argument.split(|&byte| byte == 0).next().unwrap_or_default().to_vec());
        Self::Names { interpreter: interpreter.to_vec(), argument }
    }
}

/// The line, if the name of the interpreter is wholly in it. A cut-off argument is cut off by the kernel too.
fn whole(line: &[u8]) -> Option<&[u8]> {
    if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
        return line.get(..end);
    }
    let is_ended = without_leading_blanks(line).iter().any(|&byte| ends_name(byte));
    line.split_last().map(|(_, line)| line).filter(|_| is_ended)
}

fn without_leading_blanks(mut bytes: &[u8]) -> &[u8] {
    while let Some((_, rest)) = bytes.split_first().filter(|&(&first, _)| is_blank(first)) {
        bytes = rest;
    }
    bytes
}

fn without_trailing_blanks(mut bytes: &[u8]) -> &[u8] {
    while let Some((_, rest)) = bytes.split_last().filter(|&(&last, _)| is_blank(last)) {
        bytes = rest;
    }
    bytes
}

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

const fn ends_name(byte: u8) -> bool {
    is_blank(byte) || byte == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> FirstLine {
        let mut start = [0; LOOKED_AT];
        start.iter_mut().zip(text.bytes()).for_each(|(place, byte)| *place = byte);
        FirstLine::read(&start)
    }

    fn names(interpreter: &str, argument: Option<&str>) -> FirstLine {
        FirstLine::Names { interpreter: interpreter.into(), argument: argument.map(Into::into) }
    }

    #[test]
    fn everything_after_the_interpreter_is_one_argument() {
        assert_eq!(read("#!/bin/sh\necho"), names("/bin/sh", None));
        assert_eq!(read("#! \t/bin/sh \t\n"), names("/bin/sh", None));
        assert_eq!(read("#!/usr/bin/env -S a  b \t\n"), names("/usr/bin/env", Some("-S a  b")));
        assert_eq!(read("#!/bin/sh"), names("/bin/sh", None));
        assert_eq!(read("#!/bin/sh -e"), names("/bin/sh", Some("-e")));
        assert_eq!(read("#!/bin/sh\r\n"), names("/bin/sh\r", None));
    }

    #[test]
    fn what_the_kernel_does_not_start_is_broken() {
        for text in
            ["#!", "#!\n/bin/sh", "#! \t\n", &format!("#!{}", " ".repeat(300)), &format!("#!/{}", "a".repeat(300))]
        {
            assert_eq!(read(text), FirstLine::Broken, "{text:?}");
        }
        for text in ["", "#", " #!/bin/sh\n", "\x7fELF"] {
            assert_eq!(read(text), FirstLine::Absent, "{text:?}");
        }
    }

    #[test]
    fn a_name_may_fill_what_is_looked_at_and_an_argument_may_be_cut_off() {
        let name = |length: usize| format!("/{}", "a".repeat(length - 1));
        assert_eq!(read(&format!("#!{}\n", name(253))), names(&name(253), None));
        assert_eq!(read(&format!("#!{} b\n", name(253))), names(&name(253), None));
        assert_eq!(read(&format!("#!{}\n", name(254))), FirstLine::Broken);
        assert_eq!(read(&format!("#!{} bcd\n", name(250))), names(&name(250), Some("bc")));
    }
}
