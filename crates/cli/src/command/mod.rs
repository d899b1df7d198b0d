//! One file per command.

pub mod bench;
pub mod capture;
pub mod compare;
mod compare_tools;
mod cost;
pub mod diff;
pub mod draw;
pub mod export;
pub mod fit;
pub mod import;
pub mod inspect;
pub mod lend;
pub mod live;
pub mod machines;
pub mod model;
pub mod p2p;
pub mod place;
pub mod programs;
pub mod reference;
mod repeated;
pub mod reproduce;
pub mod run;
pub mod serve;
pub mod shell;
pub mod sweep;
pub mod trace;
pub mod tree;
