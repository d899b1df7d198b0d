//! Traces: records of events, at no cost while disabled.
//!
//! A component has a [`Trace`] and builds its records in closures. While the trace is off, a record costs one
//! predictable branch; the closure is not called.

use std::cell::RefCell;
use std::rc::Rc;

/// Destination of records.
pub trait Sink<R> {
    /// Takes one record.
    fn write(&mut self, record: R);
}

impl<R, F: FnMut(R)> Sink<R> for F {
    fn write(&mut self, record: R) {
        self(record);
    }
}

/// A sink shared by several traces.
struct Joint<S>(Rc<RefCell<S>>);

impl<R, S: Sink<R>> Sink<R> for Joint<S> {
    fn write(&mut self, record: R) {
        self.0.borrow_mut().write(record);
    }
}

/// A trace, on if it has a [`Sink`].
pub struct Trace<R> {
    sink: Option<Box<dyn Sink<R>>>,
}

impl<R> Default for Trace<R> {
    fn default() -> Self {
        Self::off()
    }
}

impl<R> Trace<R> {
    /// A trace that is off.
    pub const fn off() -> Self {
        Self { sink: None }
    }

    /// A trace that writes to `sink`, which may be a closure.
    pub fn to(sink: impl Sink<R> + 'static) -> Self {
        Self { sink: Some(Box::new(sink)) }
    }

    /// A trace that writes to a shared sink.
    pub fn shared(sink: &Rc<RefCell<impl Sink<R> + 'static>>) -> Self {
        Self::to(Joint(Rc::clone(sink)))
    }

    /// A trace that collects its records in the returned vector.
    pub fn collect() -> (Self, Rc<RefCell<Vec<R>>>)
    where
        R: 'static,
    {
        let records = Rc::new(RefCell::new(Vec::new()));
        let kept = Rc::clone(&records);
        (Self::to(move |record| kept.borrow_mut().push(record)), records)
    }

    /// Whether the trace is on.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.sink.is_some()
    }

    /// Records the result of `describe` if the trace is on.
    #[inline]
    pub fn record(&mut self, describe: impl FnOnce() -> R) {
        if let Some(sink) = &mut self.sink {
            write(sink.as_mut(), describe);
        }
    }
}

/// Not inlined, so that [`Trace::record`] adds only its branch to hot code.
#[cold]
#[inline(never)]
fn write<R>(sink: &mut dyn Sink<R>, describe: impl FnOnce() -> R) {
    sink.write(describe());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn off_builds_nothing() {
        let mut trace = Trace::<String>::off();
        assert!(!trace.is_on());
        trace.record(|| panic!("nobody asked"));
    }

    #[test]
    fn on_keeps_records_in_order() {
        let (mut trace, records) = Trace::collect();
        trace.record(|| 1);
        trace.record(|| 2);
        assert_eq!(*records.borrow(), [1, 2]);
    }

    #[test]
    fn two_traces_share_a_sink() {
        struct Sum(u32);
        impl Sink<u32> for Sum {
            fn write(&mut self, record: u32) {
                self.0 += record;
            }
        }
        let sum = Rc::new(RefCell::new(Sum(0)));
        let (mut a, mut b) = (Trace::shared(&sum), Trace::shared(&sum));
        a.record(|| 1);
        b.record(|| 2);
        assert_eq!(sum.borrow().0, 3);
    }
}
