//! Values with where they were read.

use std::fmt;

/// Where a value was read: which of the sources, and what there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Origin {
    /// Number of the source in [`Survey::sources`](crate::Survey::sources).
    pub source: usize,
    /// The attribute, register, or column.
    pub what: &'static str,
}

/// Where rounded sizes were read.
pub(crate) const ROUNDED: &str = "lstopo, rounded";
/// Where numbers were read that a tool counts by itself.
pub(crate) const LOGICAL: &str = "lstopo, its own numbers";

impl Origin {
    /// Whether what another source says of the same is taken instead.
    fn is_weak(self) -> bool {
        [ROUNDED, LOGICAL].contains(&self.what)
    }
}

/// A value, if any source says it.
#[derive(Debug, Clone, PartialEq)]
pub struct Sourced<T>(Option<(T, Origin)>);

impl<T> Default for Sourced<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<T: fmt::Display + PartialEq> Sourced<T> {
    /// The value, if it is known.
    pub fn get(&self) -> Option<&T> {
        self.0.as_ref().map(|(value, _)| value)
    }

    /// The value, if it is known.
    pub fn value(&self) -> Option<T>
    where
        T: Copy,
    {
        self.get().copied()
    }

    /// Where it was read.
    pub fn origin(&self) -> Option<Origin> {
        self.0.as_ref().map(|&(_, origin)| origin)
    }

    /// Sets the value, if it is not known yet.
    pub(crate) fn set(&mut self, value: T, from: Origin) {
        self.0.get_or_insert((value, from));
    }

    /// Takes what another source says of the same; what was known stays. Returns both values if they differ.
    pub(crate) fn merge(&mut self, other: Self) -> Option<[(String, Origin); 2]> {
        match (&self.0, other.0) {
            (Some(_), Some((_, there))) if there.is_weak() => {}
            (Some((_, here)), Some(known)) if here.is_weak() => self.0 = Some(known),
            (Some((own, here)), Some((value, there))) if *own != value => {
                return Some([(own.to_string(), *here), (value.to_string(), there)]);
            }
            (None, Some(known)) => self.0 = Some(known),
            _ => {}
        }
        None
    }
}

/// A struct whose fields are all facts, with what is done to each of them.
macro_rules! facts {
    ($(#[$doc:meta])* pub struct $name:ident { $($(#[$field_doc:meta])* $field:ident: $of:ty,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $crate::fact::Sourced<$of>,)+
        }

        impl $name {
            /// Takes what another source says of the same; tells where they differ.
            pub(crate) fn merge(&mut self, other: Self, differs: &mut dyn FnMut(&str, [(String, $crate::fact::Origin); 2])) {
                $(if let Some(both) = self.$field.merge(other.$field) {
                    differs(stringify!($field), both);
                })+
            }

            /// All that is known: name, value, and where it was read.
            pub fn known(&self) -> Vec<(&'static str, String, $crate::fact::Origin)> {
                let mut all = Vec::new();
                $(if let (Some(value), Some(origin)) = (self.$field.get(), self.$field.origin()) {
                    all.push((stringify!($field), value.to_string(), origin));
                })+
                all
            }
        }
    };
}

pub(crate) use facts;
