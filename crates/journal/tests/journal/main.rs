//! Tests of the crate from outside, a module for each part of what it does. One program, because linking is what building tests takes longest
//! for.

mod bundle;
mod disk;
mod erase;
mod founding;
mod lab;
mod scan;
mod seal;
mod sink;
mod store;
mod verify;
