//! iperf, version 2 and 3: parallel streams between client and server.
//!
//! Version 2 has no control connection: the port is all that client and server agree on. Version 3 orders a test on a
//! control connection, which also brings the server's results. Version 3's streams have a task each, as since 3.16.
//!
//! | file | subject |
//! |---|---|
//! | `two`, `three` | the two programs |
//! | `stream` | sending and receiving, and what is counted |
//! | `control` | version 3's messages |
//! | `print` | text as the originals print it |
//! | `json` | `iperf3 -J` |

mod control;
mod json;
mod print;
mod stream;
mod three;
mod two;

pub use three::Iperf3;
pub(crate) use three::UNMODELLED as UNMODELLED_3;
pub use two::Iperf;
pub(crate) use two::UNMODELLED;

/// Checks a number of bytes, blocks or datagrams to send.
fn amount_within(count: u64) -> Result<u64, String> {
    const MOST: u64 = 1 << 50;
    if (1..=MOST).contains(&count) { Ok(count) } else { Err(format!("{count} is not in 1..={MOST}")) }
}
