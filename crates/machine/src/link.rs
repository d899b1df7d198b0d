//! Properties of PCIe links: generations, widths, payload limits.

use crate::diagnostic::Diagnostic;
use crate::read::{Complaints, Read};
use crate::scalar::{Scalar, integer, single};
use crate::tree::{Entry, Node, Value};
use std::fmt;

/// An integer with a few values allowed by the specification.
macro_rules! allowed {
    ($(#[$attribute:meta])* $name:ident, $allowed:expr, $text:literal, $show:literal) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(u32);

        impl $name {
            /// All allowed values.
            pub const ALLOWED: &'static [u32] = &$allowed;

            /// `n` if it is allowed.
            pub fn new(n: u32) -> Option<Self> {
                Self::ALLOWED.contains(&n).then_some(Self(n))
            }
            /// The number.
            pub const fn get(self) -> u32 {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $show, self.0)
            }
        }

        impl Scalar for $name {
            fn scalar_shape() -> $crate::shape::Shape {
                $crate::shape::Shape::Single($crate::shape::Single {
                    kind: "integer",
                    what: $text,
                    example: "",
                    range: None,
                    choices: $allowed.iter().map(u32::to_string).collect(),
                })
            }
            fn scalar(node: &Node, name: &str, complaints: &mut Complaints) -> Option<Self> {
                if let Value::Integer(n) = node.value {
                    if let Some(value) = u32::try_from(n).ok().and_then(Self::new) {
                        return Some(value);
                    }
                    complaints.push(
                        Diagnostic::new(&node.place, format!("`{name}` cannot be {n}"))
                            .label(concat!("not ", $text))
                            .help(format!("{} is one of {:?}", $text, Self::ALLOWED)),
                    );
                    return None;
                }
                integer(node, name, 0, i64::MAX, complaints);
                None
            }
            fn to_toml(&self) -> toml_edit::Value {
                i64::from(self.0).into()
            }
            fn number(&self) -> Option<f64> {
                Some(f64::from(self.0))
            }
            fn from_number(number: f64) -> Option<Self> {
                Self::ALLOWED.iter().find(|&&n| f64::from(n) == number.round()).map(|&n| Self(n))
            }
        }

        single!($name);
    };
}

allowed!(
    /// Generation of a link, which sets the rate per lane: 2.5, 5, 8, 16, 32 and 64 GT/s (PCIe Base Specification 6.0,
    /// 4.2). The sixth uses FLITs.
    LinkGeneration, [1, 2, 3, 4, 5, 6], "a PCIe generation", "Gen{}"
);
allowed!(
    /// The number of lanes of a link (PCIe Base Specification 6.0, 4.2.4).
    LinkWidth, [1, 2, 4, 8, 12, 16, 32], "a link width", "x{}"
);
impl LinkWidth {
    /// The widest link with at most `lanes` lanes.
    pub(crate) fn at_most(lanes: u32) -> u32 {
        Self::ALLOWED.iter().copied().filter(|&width| width <= lanes).max().unwrap_or(1)
    }
}

allowed!(
    /// Number of tag bits of a requester (PCIe Base Specification 6.0, 2.2.6.2).
    TagBits, [5, 8, 10], "a number of tag bits", "{}"
);

impl TagBits {
    /// Number of distinct tags: with 10 bits, those that look like 8-bit ones are not used.
    pub const fn tags(self) -> u32 {
        if self.0 == 10 { 768 } else { 1 << self.0 }
    }
}

allowed!(
    /// A payload or read request limit in bytes (PCIe Base Specification 6.0,
    /// 7.5.3.4: Max_Payload_Size and Max_Read_Request_Size).
    PayloadLimit, [128, 256, 512, 1024, 2048, 4096], "a payload or request limit in bytes", "{} B"
);
allowed!(
    /// A read completion boundary in bytes (PCIe Base Specification 6.0, 2.3.1.1).
    CompletionBoundary, [64, 128], "a read completion boundary in bytes", "{} B"
);

/// Page sizes of IOMMU tables, in bytes.
pub const PAGE_BYTES: [u64; 3] = [4 << 10, 2 << 20, 1 << 30];
