//! The state of a NIC function.

use std::cell::Cell;
use std::rc::Rc;

/// State of a function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdapterState {
    /// Closed.
    Down,
    /// Open.
    Up,
    /// Not responding; to be reset.
    Broken,
    /// Removed.
    Gone,
}

/// A function's state, shared with its parts.
pub(super) type Shown = Rc<Cell<AdapterState>>;
