//! BARs that can be resized (as Linux's `rebar.c`).

use platform::cpu::Cpu;
use wire::pcie::config::caps::extended_id;
use wire::pcie::config::rebar;

use super::backend::Backend;
use super::capabilities::CapabilityLists;

/// A BAR that can be resized.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Resizable {
    /// Its number.
    pub bar: u8,
    /// Its control register.
    control: u16,
    /// Sizes, as the capability register has them.
    capability: u32,
}

impl Resizable {
    /// Reads which of a function's BARs can be resized.
    pub async fn read(cpu: &Cpu, way: &dyn Backend, capabilities: &CapabilityLists) -> Vec<Self> {
        let Some(at) = capabilities.extended_offset(extended_id::REBAR) else { return Vec::new() };
        let (mut found, mut pairs) = (Vec::new(), 1);
        while (found.len() as u16) < pairs {
            let first = at + rebar::PAIR * found.len() as u16;
            let capability = way.config_read(cpu, first + rebar::CAPABILITY).await;
            let control = way.config_read(cpu, first + rebar::CONTROL).await;
            if found.is_empty() {
                pairs = rebar::pairs(control).min(6);
            }
            found.push(Self { bar: rebar::bar(control), control: first + rebar::CONTROL, capability });
        }
        found
    }

    /// Its sizes from `least` to `most` bytes, the largest first.
    pub fn sizes(&self, least: u64, most: u64) -> impl Iterator<Item = u64> + use<> {
        let capability = self.capability;
        let all = (0..44).rev().map(|code| 1 << 20 << code);
        all.filter(move |&size| (least..=most).contains(&size) && rebar::can_be(capability, size))
    }

    /// All its sizes, bit n for 2^n MiB (Linux: `resourceN_resize`).
    pub fn mask(&self) -> u32 {
        self.capability >> 4
    }

    /// Sets its size. Its address is to be set anew.
    pub async fn set(&self, cpu: &Cpu, way: &dyn Backend, size: u64) {
        let control = way.config_read(cpu, self.control).await;
        way.config_write(cpu, self.control, rebar::with_size(control, size), 0xf).await;
    }
}
