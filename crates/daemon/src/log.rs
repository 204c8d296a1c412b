//! What the daemon says about itself: one line for each thing, on standard error.
//!
//! Guarantees: where nothing can be written, the line is lost and nothing else. The terminal that a daemon was started at may be gone.

use std::io;

use tracing_subscriber::{EnvFilter, filter::ParseError, fmt};

use crate::config::{LogFormat, LogSection};

/// Begins to log as configured. `PALYRA_LOG` comes before the configuration.
///
/// # Errors
/// When what is configured is no filter.
pub fn begin(section: &LogSection) -> Result<(), ParseError> {
    let level = std::env::var("PALYRA_LOG").unwrap_or_else(|_| section.level.clone());
    let filter = EnvFilter::builder().parse(&level)?;
    // SECURITY: it tells whole messages of servers, and what is called with which arguments. Whoever wants that says so.
    let filter = if level.contains("rmcp") { filter } else { filter.add_directive("rmcp=off".parse()?) };
    let lines = fmt::Subscriber::builder().with_env_filter(filter).with_writer(io::stderr);
    // What could not be written would be told on standard error, too, and failing to do that is a panic.
    let lines = lines.log_internal_errors(false);
    // Whoever has begun to log before keeps doing so.
    let _ = match section.format {
        LogFormat::Text => tracing::subscriber::set_global_default(lines.with_ansi(false).finish()),
        LogFormat::Json => tracing::subscriber::set_global_default(lines.json().flatten_event(true).finish()),
    };
    Ok(())
}
