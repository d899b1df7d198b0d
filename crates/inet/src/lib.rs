//! Internet protocols as state machines: input is packets and the time, output is packets and the next deadline.
//!
//! Nothing here does I/O, has a clock, or knows where payload is stored: the owner of a state machine passes in
//! arrived packets and the time, asks for packets to send, and returns at the latest at the deadline.
//!
//! * [`tcp`]: a connection (RFC 9293) with its congestion control;
//! * [`fragments`]: reassembly of packets from fragments;
//! * [`arp`]: the neighbour cache; [`route`]: the routing table.

#![forbid(unsafe_code)]

pub mod arp;
pub mod fragments;
pub mod route;
pub mod tcp;
