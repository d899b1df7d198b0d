//! Fabrics put together part by part.

mod common;
mod completions;
mod conservation;
mod enables;
mod ethernet;
mod flow_control;
mod flush;
mod hot_reset;
mod interleaving;
mod nic;
mod ntb;
mod ports;
mod refused;
mod requests;
mod switch;
mod unmapping;
