//! Tests of the crate from outside, a module for each part of what it does. One program, because linking is what building tests takes longest
//! for; nextest runs each test in a process of its own all the same.

mod connected;
mod cost;
mod egress_intercept;
mod egress_lab;
mod egress_limits;
mod egress_names;
mod egress_proxy;
mod egress_socks;
mod egress_tls;
mod enclosure;
mod exchange;
mod hiding;
mod interception;
mod interceptors;
mod lab;
mod output;
mod prepared;
mod program;
mod refusals;
mod shortage;
mod start;
mod storm;
mod tree;
mod waiting;
