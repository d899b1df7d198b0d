//! memcached and its load generator, memaslap: a key-value store over TCP, in memcached's text protocol.
//!
//! | file | subject |
//! |---|---|
//! | `server` | the store and its threads |
//! | `client` | memaslap's mix of requests |
//! | `line` | lines of the protocol, and data behind them |

mod client;
mod line;
mod server;

pub use client::Memaslap;
pub(crate) use client::UNMODELLED as CLIENT_UNMODELLED;
pub use server::Memcached;
pub(crate) use server::UNMODELLED as SERVER_UNMODELLED;

/// memcached's port.
const PORT: u16 = 11_211;
/// Maximum key length: protocol.txt has 250 bytes (KEY_MAX_LENGTH), but servers are also built for 256.
const LONGEST_KEY: u32 = 256;
/// Maximum line length: a command with its key and four numbers.
const LINE: u32 = 512;
