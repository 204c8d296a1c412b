//! The path of a call: decide, approve, execute, attest.
