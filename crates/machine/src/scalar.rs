//! Scalar values: quantities with units, counts, names, strings.

use crate::diagnostic::Diagnostic;
use crate::read::{Complaints, Read};
use crate::shape::{Shape, Single};
use crate::tree::{Entry, Node, Value};
use settings::{
    DmaMode, EcnMode, EvictionNotice, EvictionOrder, HashPolicy, IommuKind, IommuMode, IotlbReplacement,
    Loads, PipelineOrder, RemoteHit, RemoteWrite, ReplacementPolicy, SliceFold, SnoopMode, Stores, TeamMode,
};
use std::fmt;
use std::num::NonZeroU32;
use units::{BitRate, ByteRate, Bytes, Cycles, Duration, Frequency};

/// A single TOML value.
pub trait Scalar: Sized + Clone + PartialEq + fmt::Debug + 'static {
    #[doc(hidden)]
    fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self>;

    /// The allowed content.
    fn scalar_shape() -> Shape;

    /// Whether there are values between any two, as of times and rates; not of counts and sizes.
    const CONTINUOUS: bool = false;

    /// Maximum of a figure, if lower than that of a scenario's own values.
    const MOST_FIGURE: Option<Self> = None;

    /// The value as a file spells it.
    fn to_toml(&self) -> toml_edit::Value;

    /// The value in base units (picoseconds, bytes, hertz, per second), if it is a number. For fits and sweeps.
    fn number(&self) -> Option<f64> {
        None
    }

    /// All values in TOML, if these are a few names.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }

    /// The value closest to `number` in base units, if there is one.
    fn from_number(_number: f64) -> Option<Self> {
        None
    }
}

/// A simple JSON type.
fn plain(kind: &'static str, what: &'static str) -> Shape {
    Shape::Single(Single { kind, what, example: "", range: None, choices: Vec::new() })
}

/// Reads `node` as a string.
fn text<'a>(node: &'a Node, name: &str, wanted: &str, complaints: &mut Complaints) -> Option<&'a str> {
    match &node.value {
        Value::Text(text) => Some(text),
        _ => {
            complaints.wrong_type(node, name, wanted);
            None
        }
    }
}

/// A number with a unit, from `$least` to `$most`. Other values cannot be built or simulated, and would overflow.
macro_rules! quantity {
    ($type:ty, $get:ident, $new:expr, $example:literal, $least:expr, $most:expr $(, figures: $figure:expr)?
     ; continuous: $continuous:literal) => {
        impl Scalar for $type {
            const CONTINUOUS: bool = $continuous;
            $(const MOST_FIGURE: Option<Self> = Some($figure);)?

            fn scalar_shape() -> Shape {
                Shape::Single(Single {
                    kind: "string",
                    what: "a number with its unit",
                    example: $example,
                    range: Some(($least.to_string(), $most.to_string())),
                    choices: Vec::new(),
                })
            }

            fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
                const EXAMPLE: &str = concat!("such as \"", $example, "\"");
                let wanted = concat!("a number with its unit as text, such as \"", $example, "\"");
                let text = text(node, name, wanted, complaints)?;
                let (message, help) = match text.parse::<Self>() {
                    Ok(value) if ($least..=$most).contains(&value) => return Some(value),
                    Ok(value) if value.$get() == 0 => {
                        (format!("`{name}` must not be zero"), EXAMPLE.to_owned())
                    }
                    Ok(value) => {
                        (format!("`{name}` cannot be {value}"), format!("from {} to {}", $least, $most))
                    }
                    Err(error) => (format!("`{name}`: {error}"), EXAMPLE.to_owned()),
                };
                complaints.push(Diagnostic::new(&node.place, message).help(help));
                None
            }
            fn to_toml(&self) -> toml_edit::Value {
                self.to_string().into()
            }
            fn number(&self) -> Option<f64> {
                Some(self.$get() as f64)
            }
            fn from_number(number: f64) -> Option<Self> {
                let value = number.round();
                let (least, most) = (($least).$get() as f64, ($most).$get() as f64);
                (least..=most).contains(&value).then(|| $new(value as u64))
            }
        }
        single!($type);
    };
}

/// Allows a bare value where no provenance is needed.
macro_rules! single {
    ($type:ty) => {
        impl Read for $type {
            fn read(entry: &Entry, name: &str, complaints: &mut Complaints) -> Option<Self> {
                Self::scalar(&entry.node, name, complaints)
            }
            fn shape() -> $crate::shape::Shape {
                <Self as $crate::scalar::Scalar>::scalar_shape()
            }
        }
    };
}

// A simulated day takes a year to simulate.
quantity!(
    Duration,
    as_ps,
    Duration::from_ps,
    "330 ns",
    Duration::ZERO,
    Duration::from_ms(86_400_000),
    // A simulation adds up hundreds of thousands of these.
    figures: Duration::from_ms(60_000);
    continuous: true
);
quantity!(Bytes, get, Bytes::new, "64 KiB", Bytes::new(0), Bytes::gib(1 << 20); continuous: false);
quantity!(Cycles, get, Cycles::new, "40 cycles", Cycles::new(0), Cycles::new(1_000_000_000); continuous: true);
quantity!(
    BitRate,
    bits_per_s,
    BitRate::from_bits_per_s,
    "100 Gbit/s",
    BitRate::from_bits_per_s(1_000_000),
    BitRate::gbit_per_s(100_000);
    continuous: true
);
quantity!(
    ByteRate,
    bytes_per_s,
    ByteRate::from_bytes_per_s,
    "12.8 GB/s",
    ByteRate::from_bytes_per_s(1_000_000),
    ByteRate::gb_per_s(100_000);
    continuous: true
);
quantity!(
    Frequency,
    hz,
    Frequency::from_hz,
    "2.2 GHz",
    Frequency::from_hz(1_000_000),
    Frequency::from_hz(100_000_000_000);
    continuous: true
);

/// Reads `node` as an integer from `least` to `most`.
pub(crate) fn integer(
    node: &Node,
    name: &str,
    least: i64,
    most: i64,
    complaints: &mut Complaints,
) -> Option<i64> {
    match node.value {
        Value::Integer(value) if (least..=most).contains(&value) => Some(value),
        Value::Integer(value) => {
            complaints.push(
                Diagnostic::new(&node.place, format!("`{name}` cannot be {value}"))
                    .help(format!("from {least} to {most}")),
            );
            None
        }
        _ => {
            complaints.wrong_type(node, name, "an integer without a unit");
            None
        }
    }
}

macro_rules! count {
    ($type:ty, $least:expr, $most:expr, $get:expr, $new:expr) => {
        impl Scalar for $type {
            fn scalar_shape() -> Shape {
                Shape::Single(Single {
                    kind: "integer",
                    what: "an integer",
                    example: "",
                    range: ($least > 0 || $most <= 1 << 20)
                        .then(|| (i64::from($least).to_string(), i64::from($most).to_string())),
                    choices: Vec::new(),
                })
            }
            fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
                integer(node, name, $least, $most, complaints).and_then(|value| Self::try_from(value).ok())
            }
            fn to_toml(&self) -> toml_edit::Value {
                #[allow(clippy::redundant_closure_call)]
                i64::try_from($get(*self)).unwrap_or(i64::MAX).into()
            }
            fn number(&self) -> Option<f64> {
                #[allow(clippy::redundant_closure_call)]
                Some($get(*self) as f64)
            }
            fn from_number(number: f64) -> Option<Self> {
                let value = number.round();
                #[allow(clippy::redundant_closure_call)]
                ($least as f64..=$most as f64).contains(&value).then(|| $new(value)).flatten()
            }
        }
        single!($type);
    };
}

count!(u32, 0, i64::from(u32::MAX), |v: u32| v, |v: f64| Some(v as u32));
count!(u64, 0, i64::MAX, |v: u64| v, |v: f64| Some(v as u64));

/// A positive count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Count(NonZeroU32);

impl Count {
    /// `n`, unless it is zero.
    pub const fn new(n: u32) -> Option<Self> {
        match NonZeroU32::new(n) {
            Some(n) => Some(Self(n)),
            None => None,
        }
    }
    /// The number.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<i64> for Count {
    type Error = ();
    fn try_from(value: i64) -> Result<Self, ()> {
        u32::try_from(value).ok().and_then(Self::new).ok_or(())
    }
}

count!(Count, 1, i64::from(u32::MAX), |v: Count| v.get(), |v: f64| Count::new(v as u32));

impl Scalar for bool {
    fn scalar_shape() -> Shape {
        plain("boolean", "`true` or `false`")
    }
    fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
        if let Value::Bool(value) = node.value {
            return Some(value);
        }
        complaints.wrong_type(node, name, "`true` or `false`");
        None
    }
    fn to_toml(&self) -> toml_edit::Value {
        (*self).into()
    }
    fn choices() -> Vec<&'static str> {
        vec!["false", "true"]
    }
}
single!(bool);

impl Scalar for f64 {
    const CONTINUOUS: bool = true;

    fn scalar_shape() -> Shape {
        plain("number", "a number")
    }
    fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
        match node.value {
            Value::Float(value) if value.is_finite() => Some(value),
            Value::Integer(value) => Some(value as f64),
            Value::Float(value) => {
                let message = format!("`{name}` cannot be {value}");
                complaints.push(Diagnostic::new(&node.place, message).help("a finite number, such as 0.5"));
                None
            }
            _ => {
                complaints.wrong_type(node, name, "a number without a unit");
                None
            }
        }
    }
    fn to_toml(&self) -> toml_edit::Value {
        (*self).into()
    }
    fn number(&self) -> Option<f64> {
        Some(*self)
    }
    fn from_number(number: f64) -> Option<Self> {
        number.is_finite().then_some(number)
    }
}
single!(f64);

impl Scalar for String {
    fn scalar_shape() -> Shape {
        plain("string", "text")
    }
    fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
        text(node, name, "text", complaints).map(ToOwned::to_owned)
    }
    fn to_toml(&self) -> toml_edit::Value {
        self.as_str().into()
    }
}
single!(String);

impl<T: Scalar> Scalar for Vec<T> {
    fn scalar_shape() -> Shape {
        Shape::List(Box::new(T::scalar_shape()))
    }
    fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
        let Value::List(items) = &node.value else {
            complaints.wrong_type(node, name, "a list");
            return None;
        };
        let read: Vec<Option<T>> = items.iter().map(|item| T::scalar(item, name, complaints)).collect();
        read.into_iter().collect()
    }
    fn to_toml(&self) -> toml_edit::Value {
        self.iter().map(Scalar::to_toml).collect::<toml_edit::Array>().into()
    }
}

/// The value of `all` with the spelling in `node`.
pub(crate) fn name_of<T: Copy>(
    node: &Node,
    name: &str,
    all: &[(&'static str, T)],
    complaints: &mut Complaints,
) -> Option<T> {
    let allowed = || format!("one of {}", crate::suggest::list(all.iter().map(|(spelling, _)| *spelling)));
    let text = text(node, name, &allowed(), complaints)?;
    if let Some((_, value)) = all.iter().find(|(spelling, _)| *spelling == text) {
        return Some(*value);
    }
    let help = crate::suggest::among(text, all.iter().map(|(spelling, _)| *spelling), "one of");
    complaints.push(Diagnostic::new(&node.place, format!("`{name}` cannot be \"{text}\"")).help(help));
    None
}

/// A choice among names defined in this crate.
macro_rules! names {
    ($(#[$attribute:meta])* pub enum $name:ident $choices:tt) => {
        settings::choices! { $(#[$attribute])* pub enum $name $choices }
        $crate::scalar::read_by_name!($name);
    };
}

/// How choices are read and written.
macro_rules! read_by_name {
    ($($name:ident),+) => {$(
        impl $crate::scalar::Scalar for $name {
            fn scalar_shape() -> $crate::shape::Shape {
                $crate::shape::Shape::Single($crate::shape::Single {
                    kind: "string",
                    what: "a name",
                    example: "",
                    range: None,
                    choices: Self::ALL.iter().map(|(spelling, _)| (*spelling).to_owned()).collect(),
                })
            }
            fn scalar(
                node: &$crate::tree::Node,
                name: &str,
                complaints: &mut $crate::read::Complaints,
            ) -> Option<Self> {
                $crate::scalar::name_of(node, name, Self::ALL, complaints)
            }
            fn to_toml(&self) -> toml_edit::Value {
                self.as_str().into()
            }
            fn choices() -> Vec<&'static str> {
                Self::ALL.iter().map(|(spelling, _)| *spelling).collect()
            }
        }

        impl $crate::read::Read for $name {
            fn read(
                entry: &$crate::tree::Entry,
                name: &str,
                complaints: &mut $crate::read::Complaints,
            ) -> Option<Self> {
                <Self as $crate::scalar::Scalar>::scalar(&entry.node, name, complaints)
            }
            fn shape() -> $crate::shape::Shape {
                <Self as $crate::scalar::Scalar>::scalar_shape()
            }
        }
    )+};
}

// Choices that models define.
read_by_name!(
    DmaMode,
    EcnMode,
    EvictionNotice,
    EvictionOrder,
    IommuMode,
    IommuKind,
    IotlbReplacement,
    Loads,
    PipelineOrder,
    RemoteHit,
    RemoteWrite,
    ReplacementPolicy,
    SliceFold,
    SnoopMode,
    Stores,
    TeamMode,
    HashPolicy
);

pub(crate) use {names, read_by_name, single};
