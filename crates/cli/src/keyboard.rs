//! The person at the terminal: shows them something and reads the lines they type.
//!
//! Guarantees: what was typed before a question was shown does not answer it. Reading never holds up whoever waits for something else, too.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, IsTerminal, Write},
    sync::mpsc::{Sender, channel},
    thread,
};

use rustix::{
    io::ioctl_fionread,
    termios::{LocalModes, OptionalActions, QueueSelector, tcflush, tcgetattr, tcsetattr},
};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::rows::{UNKNOWN, columns, rows};

/// A terminal with a person in front of it.
pub(crate) struct Keyboard {
    terminal: File,
    wanted: Sender<()>,
    lines: UnboundedReceiver<Option<String>>,
    /// Whether a line was asked for that has not come yet.
    reading: bool,
}

impl Keyboard {
    /// The terminal of this process, if it has one and a person can see what it says there.
    pub(crate) fn open() -> Option<Self> {
        if !is_there() {
            return None;
        }
        let terminal = OpenOptions::new().read(true).write(true).open("/dev/tty").ok()?;
        let mut input = BufReader::new(terminal.try_clone().ok()?);
        let (wanted, wants) = channel();
        let (told, lines) = unbounded_channel();
        // A thread, because reading a terminal cannot be given up; it ends with the process.
        thread::spawn(move || {
            while wants.recv().is_ok() {
                let mut line = Vec::new();
                let read = input.read_until(b'\n', &mut line);
                let text = String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r']).to_owned();
                if told.send(read.is_ok_and(|count| count > 0).then_some(text)).is_err() {
                    break;
                }
            }
        });
        Some(Self { terminal, wanted, lines, reading: false })
    }

    /// Shows a line, in rows of the terminal's width.
    pub(crate) fn show(&mut self, line: &str) {
        for row in rows(line, columns(&self.terminal).unwrap_or(UNKNOWN)) {
            let _ = writeln!(self.terminal, "{row}");
        }
    }

    /// Shows a prompt, and forgets what was typed before it.
    pub(crate) fn prompt(&mut self, text: &str) {
        self.forget();
        // Over the beginning of a line that was typed and is forgotten.
        let _ = write!(self.terminal, "\r{text}");
        let _ = self.terminal.flush();
    }

    /// Forgets what was typed so far, and says whether there was a whole line.
    pub(crate) fn forget(&mut self) -> bool {
        // A terminal that hands out lines counts whole ones only.
        let mut any = ioctl_fionread(&self.terminal).is_ok_and(|count| count > 0);
        while let Ok(_forgotten) = self.lines.try_recv() {
            self.reading = false;
            any = true;
        }
        let _ = tcflush(&self.terminal, QueueSelector::IFlush);
        any
    }

    /// The next line, or nothing if the person closed the terminal. Nothing is lost if this is given up while it waits.
    pub(crate) async fn line(&mut self) -> Option<String> {
        if !self.reading {
            self.wanted.send(()).ok()?;
            self.reading = true;
        }
        let line = self.lines.recv().await?;
        self.reading = false;
        line
    }

    /// A line that is not shown while it is typed.
    pub(crate) async fn secret(&mut self, prompt: &str) -> Option<String> {
        let before = tcgetattr(&self.terminal).ok()?;
        let mut silent = before.clone();
        silent.local_modes.remove(LocalModes::ECHO);
        tcsetattr(&self.terminal, OptionalActions::Flush, &silent).ok()?;
        self.prompt(prompt);
        // Whoever interrupts this wants their terminal back as it was.
        let line = tokio::select! {
            line = self.line() => line,
            _ = tokio::signal::ctrl_c() => None,
        };
        let _ = tcsetattr(&self.terminal, OptionalActions::Now, &before);
        self.show("");
        line
    }
}

/// Whether a person sees what this process says, and can answer.
pub(crate) fn is_there() -> bool {
    io::stderr().is_terminal() || io::stdin().is_terminal()
}
