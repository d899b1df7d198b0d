//! Layouts and formats.

mod config;
mod layouts;
mod packets;
mod tables;
mod vtd;
