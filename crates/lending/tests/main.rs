//! Functions of one host used by another.

mod common;
mod guest;
mod guests;
mod interleaving;
mod isolation;
mod isolation_table;
mod lending;
mod messages;
mod peers;
mod virtual_functions;
