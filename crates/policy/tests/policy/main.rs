//! Tests of the crate from outside, a module for each part of what it does. One program, because linking is what building tests takes longest
//! for.

mod documentation;
mod evaluation_errors;
mod explanations;
mod loading;
mod properties;
mod slicing;
mod support;
