//! How a function is.

use std::cell::Cell;
use std::rc::Rc;

/// How a function is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum AdapterState {
    /// Not open.
    Down,
    /// Open.
    Up,
    /// It does not do what it is told.
    Broken,
    /// It has been taken out.
    Gone,
}

/// A function's state, which its parts see.
pub(super) type Shown = Rc<Cell<AdapterState>>;
