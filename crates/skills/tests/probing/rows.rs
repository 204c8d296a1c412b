//! What each program does with nothing granted, and with everything granted.

use palyra_package::Need;

/// One program.
pub struct Row {
    pub program: &'static str,
    /// What it is called with.
    pub input: &'static str,
    /// What it imports beside what all of its kind do. Of a component interfaces, of a module one function.
    pub imports: &'static [(&'static str, Need)],
    /// How it ends with nothing granted.
    pub denied: Ends,
    /// How it ends with everything granted.
    pub granted: Ends,
    /// What the host hears of it with everything granted.
    pub heard: &'static [&'static str],
}

/// How a call ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ends {
    /// With this answer.
    Says(&'static str),
    /// Because this was not granted.
    NotGranted(&'static str),
    /// Because this leads nowhere.
    Inert(&'static str),
    /// By itself, with this code.
    Exits(i32),
    /// Because of something that WebAssembly forbids.
    Traps(&'static str),
}

impl Row {
    /// What the host hears of it with nothing granted: what is free it hears as well, and of the rest nothing.
    pub fn heard_without_grants(&self) -> &'static [&'static str] {
        if self.denied == self.granted { self.heard } else { &[] }
    }
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Row> {
    crate::preview1::ROWS.iter().chain(crate::component::ROWS)
}
