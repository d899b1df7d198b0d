//! What can be attached to a link.

use super::errors::ErrorInjector;
use super::tap::Tap;

/// Instruments attached to a link, if any.
pub type Instruments = Option<Box<InstrumentSet>>;

/// At least one instrument.
#[derive(Default)]
pub struct InstrumentSet {
    pub injector: Option<ErrorInjector>,
    pub tap: Option<Tap>,
}

/// The error injector attached to a link.
pub fn injector(instruments: &mut Instruments) -> Option<&mut ErrorInjector> {
    instruments.as_mut()?.injector.as_mut()
}

/// The tap attached to a link.
pub fn tap(instruments: &mut Instruments) -> Option<&mut Tap> {
    instruments.as_mut()?.tap.as_mut()
}

/// Attaches or removes instruments.
pub fn change(instruments: &mut Instruments, change: impl FnOnce(&mut InstrumentSet)) {
    let attached = instruments.get_or_insert_default();
    change(attached);
    if attached.injector.is_none() && attached.tap.is_none() {
        *instruments = None;
    }
}
