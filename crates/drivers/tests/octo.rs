//! One card with a function at each socket, as one network device (IOctopus): by a team above the functions' own devices, or by
//! the NIC's driver. What is near stays near, and nothing is lost or passes another when programs move or functions fail.

mod common;
#[path = "ground/bare.rs"]
mod ground;
#[path = "octo/mod.rs"]
mod suite;
