//! Formats policy text, comments included, without changing what it means.

use cedar_policy_formatter::{Config, policies_str_to_pretty};

use crate::source::SourceFile;

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
/// When the text does not parse.
pub fn format_policies(file: &SourceFile) -> Result<String, FormatError> {
    let config = Config { line_width: 110, indent_width: 2 };
    if file.text().trim().is_empty() {
        return Ok(String::new());
    }
    policies_str_to_pretty(file.text(), &config)
        .map(|text| format!("{}\n", text.trim_end()))
        .map_err(|error| FormatError { name: file.name().to_owned(), message: error.to_string() })
}
