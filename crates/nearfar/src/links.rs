//! Negotiated link parameters: generation, width, payload and read request sizes.

use std::fmt;

use machine::{ComputerSetup, LinkCapability, LinkSetup, slot_of};
use platform::device::FunctionIndex;
use serde::{Deserialize, Serialize};
use wire::pcie::{Generation, Width};

use crate::bench::Bench;
use crate::computer::{Computers, Observer};
use crate::topology::{self, ALL_LANES};

/// What the two ends of a link agreed on, and what the device could do.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LinkState {
    /// The slot, prefixed by the host if there are several.
    pub place: String,
    /// The negotiated generation.
    pub generation: Generation,
    /// The negotiated width.
    pub width: Width,
    /// Maximum payload size (MPS), bytes.
    pub max_payload: u32,
    /// The device's maximum read request size (MRRS), bytes.
    pub max_read_request: u32,
    /// Generation and lanes that the device supports.
    pub capable: (u32, u32),
}

impl LinkState {
    /// Whether the link runs below the device's capability.
    pub fn is_held_back(&self) -> bool {
        u32::from(self.generation as u8) < self.capable.0 || u32::from(self.width.lanes()) < self.capable.1
    }

    /// The link of a bench's card; `None` if its machine has no such slot.
    pub fn of_bench(bench: &Bench) -> Option<Self> {
        let place = slot_of(&bench.machine, bench.sockets.device)?;
        let port = bench.machine.host.port.get(&place)?;
        let device = &bench.card.link;
        let (generation, width) = topology::negotiate(device, port, ALL_LANES);
        Some(Self {
            place,
            generation,
            width,
            max_payload: port.mps_bytes.value.get().min(device.mps_bytes.value.get()),
            max_read_request: port.mrrs_bytes.value.get(),
            capable: capable(device),
        })
    }

    /// The links to the devices of booted computers.
    fn of_computers(computers: &Computers, setup: &ComputerSetup) -> Vec<Self> {
        let mut all = Vec::new();
        computers.simulation().with(|fabric, _| {
            for (host, described) in computers.hosts().iter().zip(&setup.hosts) {
                for (&device, described) in host.devices.iter().zip(&described.devices) {
                    let link = described.kind.model().link();
                    let endpoint = fabric.endpoint(device);
                    let config = endpoint.core.registers.config(FunctionIndex(0));
                    for (link_id, at) in endpoint.links().zip(&described.links) {
                        let params = fabric.wires.link(link_id).params();
                        all.push(Self {
                            place: link_name(setup, at),
                            generation: params.generation,
                            width: params.width,
                            max_payload: config.max_payload(),
                            max_read_request: config.max_read_request(),
                            capable: capable(link),
                        });
                    }
                }
            }
        });
        all
    }
}

fn capable(device: &LinkCapability) -> (u32, u32) {
    (device.generation.value.get(), device.width.value.get())
}

impl fmt::Display for LinkState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (generation, lanes) = (self.generation as u8, self.width.lanes());
        write!(f, "{}: Gen{generation} x{lanes}", self.place)?;
        if self.is_held_back() {
            write!(f, " (the device could do Gen{} x{})", self.capable.0, self.capable.1)?;
        }
        write!(f, ", MPS {} B, MRRS {} B", self.max_payload, self.max_read_request)
    }
}

/// Name of a link: its slot, prefixed by the host if there are several.
pub(crate) fn link_name(setup: &ComputerSetup, link: &LinkSetup) -> String {
    if setup.hosts.len() == 1 {
        return link.name.clone();
    }
    format!("{}/{}", setup.hosts[link.host].name, link.name)
}

/// Observer that reads the links right after boot.
pub(crate) struct Links<'a> {
    setup: &'a ComputerSetup,
    pub seen: Vec<LinkState>,
}

impl<'a> Links<'a> {
    pub fn new(setup: &'a ComputerSetup) -> Self {
        Self { setup, seen: Vec::new() }
    }
}

impl Observer for Links<'_> {
    fn booted(&mut self, computers: &Computers) {
        self.seen = LinkState::of_computers(computers, self.setup);
    }

    fn has_enough(&self) -> bool {
        false
    }

    fn ended(&mut self, _: &Computers) {}
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::example::bench;
    use machine::{Doc, Library, Part};

    /// A faster card in a slower slot runs at the slot's speed, and the link state says so.
    #[test]
    fn a_link_that_holds_its_card_back_is_told() {
        let mut bench = bench();
        assert!(!LinkState::of_bench(&bench).unwrap().to_string().contains("could"));
        let mut card = Doc::<Part>::load(&Library::built_in(), "nfp6000").unwrap();
        card.set("link.generation", "4").unwrap();
        card.set("link.mps_bytes", "128").unwrap();
        bench.card = card.read().unwrap();
        let state = LinkState::of_bench(&bench).unwrap();
        assert!(state.is_held_back() && state.max_payload == 128, "{state}");
        assert!(state.to_string().contains("Gen3 x8 (the device could do Gen4 x8), MPS 128 B"), "{state}");
    }
}
