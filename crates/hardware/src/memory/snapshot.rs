//! The caches' state apart from their host: brought about once, it serves every host that begins with it.

use super::params::MemoryParams;
use super::socket::Socket;
use super::system::MemorySystem;

/// Which lines the caches of a host hold, in which states, and in which order they were used.
#[derive(Clone, Debug)]
pub struct CacheState(pub(super) Vec<Socket>);

impl CacheState {
    pub(super) fn empty(params: &MemoryParams) -> Self {
        let numbered = params.sockets.iter().enumerate();
        Self(numbered.map(|(n, s)| Socket::new(s, params.seed ^ (n as u64 + 1) << 32)).collect())
    }
}

impl MemorySystem {
    /// The state of all caches; the host itself is given up.
    pub fn into_cache_state(self) -> CacheState {
        CacheState(self.sockets)
    }
}
