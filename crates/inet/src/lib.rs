//! Internet protocols as state machines: packets and the time in, packets and the next deadline out.
//!
//! Nothing in here does I/O, has a clock, or knows where payload lies: whoever owns a machine says what arrived and
//! what time it is, asks what is to be sent, and comes back at the deadline at the latest.
//!
//! * [`tcp`]: a connection (RFC 9293) with its congestion control;
//! * [`fragments`]: packets put together from their fragments;
//! * [`arp`]: the neighbour cache; [`route`]: the routing table.

#![forbid(unsafe_code)]

pub mod arp;
pub mod fragments;
pub mod route;
pub mod tcp;
