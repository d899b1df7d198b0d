//! The caches' state apart from their host: brought about once, it serves every host that begins with it.

use super::socket::Socket;
use super::system::MemorySystem;

/// Which lines the caches of a host hold, in which states, and in which order they were used.
#[derive(Clone, Debug)]
pub struct CacheState(Vec<Socket>);

impl MemorySystem {
    /// The state of all caches; the host itself is given up.
    pub fn into_cache_state(self) -> CacheState {
        CacheState(self.sockets)
    }

    /// Brings the caches into a state that those of a host like this one were in, without time or traffic.
    ///
    /// # Panics
    /// If the other host's caches were of other sizes.
    pub fn set_cache_state(&mut self, state: &CacheState) {
        let like = |(own, other): (&Socket, &Socket)| own.is_like(other);
        assert!(
            self.sockets.len() == state.0.len() && self.sockets.iter().zip(&state.0).all(like),
            "the state is of another kind of host"
        );
        self.sockets.clone_from(&state.0);
    }
}
