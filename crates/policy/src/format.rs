//! Formats policy text, comments included, without changing what it means.

use cedar_policy_formatter::{Config, policies_str_to_pretty};

use crate::{set::check_shape, source::SourceFile};

/// Why text could not be formatted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name} cannot be formatted: {message}")]
pub struct FormatError {
    /// The file.
    pub name: String,
    /// What the formatter says.
    pub message: String,
}

/// The text in its one layout. Formatting what is formatted changes nothing.
///
/// # Errors
/// When the text does not parse, hides something, or nests more deeply than a policy may.
pub fn format_policies(file: &SourceFile) -> Result<String, FormatError> {
    let config = Config { line_width: 110, indent_width: 2 };
    if file.text().trim().is_empty() {
        return Ok(String::new());
    }
    let refused = |message: String| FormatError { name: file.name().to_owned(), message };
    // SECURITY: the formatter parses and prints by recursion; what loading refuses for its depth would overflow its stack too.
    file.check_visible().map_err(|finding| refused(finding.problem.to_string()))?;
    for statement in file.statements() {
        check_shape(statement.text).map_err(|problem| refused(problem.to_string()))?;
    }
    policies_str_to_pretty(file.text(), &config)
        .map(|text| format!("{}\n", text.trim()))
        .map_err(|error| refused(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(text: &str) -> Result<String, FormatError> {
        format_policies(&SourceFile::operator("f.cedar", text))
    }

    #[test]
    fn a_policy_too_deep_to_load_is_too_deep_to_format() {
        let deep = format!(
            "permit (principal, action, resource) when {{ {}true{} }};",
            "(".repeat(20_000),
            ")".repeat(20_000)
        );
        assert_eq!(format(&deep).unwrap_err().message, "the policy nests brackets and `if` more than 48 deep");
    }

    #[test]
    fn a_file_of_comments_is_formatted_already() {
        assert_eq!(format("// only a comment\n").unwrap(), "// only a comment\n");
    }
}
