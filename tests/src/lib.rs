//! What whole-system tests share: a [`Lab`] with a real journal, real policies and a real sandbox, in a directory of its own; and a
//! [`DaemonLab`](daemon::DaemonLab) with a real daemon in a process of its own.

mod audit;
pub mod canary;
pub mod daemon;
pub mod facade;
mod faults;
pub mod gateway;
mod lab;
pub mod model_server;
pub mod paired;
pub mod random;
mod said;
pub mod scripted;
pub mod services;
mod setup;
pub mod site;
pub mod skill;
pub mod strace;
pub mod token;
pub mod torrent;
pub mod vault;

pub use audit::Audit;
pub use faults::{Faults, Hold};
pub use lab::{Lab, Plan, TIER_B, operator, owner, text, until};
pub use said::Said;
pub use setup::{Opened, Setup};
