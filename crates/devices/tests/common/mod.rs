//! A device behaves the same on every back-end, since it only sees `platform::device::Device`.
#![allow(dead_code)]

pub mod back_end;
pub mod machines;

/// Defines tests that run on both back-ends; `$make` creates the devices and the test's other arguments.
#[macro_export]
macro_rules! on_both_back_ends {
    ($make:ident; $( $(#[$attribute:meta])* fn $name:ident($host:ident, $rest:pat) $body:block )*) => {
        $( $(#[$attribute])* fn $name($host: &mut dyn $crate::common::back_end::BackEnd, $rest: &Parts) $body )*
        mod on_the_trivial_back_end {
            $( #[test] fn $name() {
                let (devices, parts) = super::$make();
                super::$name(&mut $crate::common::back_end::Trivial::new(devices), &parts);
            } )*
        }
        mod on_the_fabric {
            $( #[test] fn $name() {
                let (devices, parts) = super::$make();
                super::$name(&mut $crate::common::machines::Machines::new(devices), &parts);
            } )*
        }
    };
}
