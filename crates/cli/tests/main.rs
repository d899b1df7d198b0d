//! The program as its users call it, and rules of the sources.

mod answers;
mod bad_input;
mod circles;
mod commands;
mod dependencies;
mod faults;
mod guide;
mod kinds;
mod live;
mod names;
mod outputs;
mod outputs_as_inputs;
mod questions;
mod strangers;
mod tools;
mod unused;
