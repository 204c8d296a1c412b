//! The append-only, hash-chained, signed record of everything that was decided and done.
