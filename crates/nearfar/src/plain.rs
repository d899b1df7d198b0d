//! Figures of files as the plain values that models take.

use machine::{Count, Figure, PayloadLimit};
use units::Bytes;

/// Something of a file that is a `T` for a model.
pub trait Plain<T> {
    /// The value without its source.
    ///
    /// # Panics
    /// If a number does not fit into the model's narrower type: the file's reader must reject such numbers.
    fn plain(&self) -> T;
}

impl<T: Clone> Plain<T> for Figure<T> {
    fn plain(&self) -> T {
        self.value.clone()
    }
}

impl<T: Clone> Plain<Option<T>> for Option<Figure<T>> {
    fn plain(&self) -> Option<T> {
        self.as_ref().map(Plain::plain)
    }
}

/// Numbers of files whose unit the model's field implies.
macro_rules! numbers {
    ($($figure:ty, $get:expr => $($number:ty),+;)+) => {$($(
        impl Plain<$number> for Figure<$figure> {
            fn plain(&self) -> $number {
                narrow($get(self.value))
            }
        }

        impl Plain<Option<$number>> for Option<Figure<$figure>> {
            fn plain(&self) -> Option<$number> {
                self.as_ref().map(Plain::plain)
            }
        }
    )+)+};
}

numbers! {
    Count, Count::get => u8, u16, u32, usize;
    u32, u32::from => u8, u16, usize;
    Bytes, Bytes::get => u16, u32, u64;
    PayloadLimit, PayloadLimit::get => u32;
}

/// Converts a number from a file to the model's narrower type.
///
/// # Panics
/// If it does not fit: the file's reader must reject such numbers.
pub fn narrow<T: TryFrom<u64>>(number: impl Into<u64>) -> T {
    let number = number.into();
    T::try_from(number).unwrap_or_else(|_| panic!("{number} is a number that the file's reader refuses"))
}

/// Vendor and device ID in a file, `8086:2700`.
///
/// # Panics
/// If it is none: the file's reader must reject such text.
pub fn pci_id(figure: &Figure<String>) -> (u16, u16) {
    let number = |text: &str| u16::from_str_radix(text, 16).ok();
    let ids = figure.value.split_once(':').and_then(|(vendor, device)| number(vendor).zip(number(device)));
    ids.unwrap_or_else(|| panic!("{} is a vendor and device ID that the file's reader refuses", figure.value))
}

/// The value of a key without which the file's reader refuses this file, if not every one.
///
/// # Panics
/// If the file lacks it.
pub fn required<F: Plain<T>, T>(figure: &Option<F>) -> T {
    figure.as_ref().expect("a key that the file's reader requires").plain()
}

/// The file's value, or the default `usual`.
pub fn given<F: Plain<T>, T>(figure: &Option<F>, usual: T) -> T {
    figure.as_ref().map_or(usual, Plain::plain)
}

/// Parameters of a model from a part of a file: as a structure's literal, but a field without a value has that of the
/// file's key of the same name.
macro_rules! plain {
    ($file:expr => $params:ident { $($field:ident $(: $value:expr)?),* $(, ..$rest:expr)? $(,)? }) => {
        $params { $($field: $crate::plain::plain!(@ $file, $field $(, $value)?),)* $(..$rest)? }
    };
    (@ $file:expr, $field:ident) => { $crate::plain::Plain::plain(&$file.$field) };
    (@ $file:expr, $field:ident, $value:expr) => { $value };
}
pub(crate) use plain;
