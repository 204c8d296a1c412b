//! What does not count any more, as people see it.

use palyra_api::device::Revoked;

use crate::terminal::{GOOD, Terminal};

/// Tells what was cut off.
pub(crate) fn tell(revoked: &Revoked, terminal: &Terminal) {
    if terminal.json {
        terminal.document("revoked", revoked);
        return;
    }
    let Revoked { devices, tokens, calls } = revoked;
    for id in devices {
        terminal.out(format!("{} device {id}", terminal.paint(GOOD, "✔ revoked")));
    }
    for id in tokens {
        terminal.out(format!("{} token  {id}", terminal.paint(GOOD, "✔ revoked")));
    }
    match calls {
        0 => {}
        1 => terminal.out("one call was withdrawn or stopped with that"),
        calls => terminal.out(format!("{calls} calls were withdrawn or stopped with that")),
    }
    if devices.is_empty() && tokens.is_empty() {
        terminal.talk("there was nothing left to revoke");
    }
}
