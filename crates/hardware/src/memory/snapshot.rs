//! Cache state without its host: set up once, it can initialise any number of hosts.

use super::params::MemoryParams;
use super::socket::Socket;

/// Lines in the caches of a host, with their states and order of use.
#[derive(Clone, Debug)]
pub struct CacheState(pub(super) Vec<Socket>);

impl CacheState {
    pub(super) fn empty(params: &MemoryParams) -> Self {
        let numbered = params.sockets.iter().enumerate();
        Self(numbered.map(|(n, s)| Socket::new(s, params.seed ^ (n as u64 + 1) << 32)).collect())
    }
}
