//! Accesses of cores to root port registers, and their effects.

use engine::{Completion, Scheduler, oneshot};
use wire::pcie::config::{ConfigEffect, slot};
use wire::pcie::{Bdf, IntxLines};

use super::interrupts::Entrance;
use super::{Host, RootEvent};
use crate::bridge;
use crate::event::Event;
use crate::iommu::MsiMessage;
use crate::memory::{Cause, CoreId, NodeId};
use crate::wires::Context;

impl Host {
    /// Handles a core's read or write of a root port's registers.
    pub(super) fn root_port_access(
        &mut self,
        cx: &mut Context<'_>,
        core: CoreId,
        target: Bdf,
        register: u16,
        write: Option<(u32, u8)>,
    ) -> Completion<Vec<u8>> {
        let (completer, completion) = oneshot();
        let Some(number) = self.ports.iter().position(|port| port.id == target) else {
            completer.complete(vec![0xff; 4]);
            return completion;
        };
        let port = &mut self.ports[number];
        let data = port.config.dword(register).to_le_bytes().to_vec();
        if let Some((value, enables)) = write {
            let effects = port.config.write(register, value, enables);
            for effect in effects {
                self.root_port_effect(cx, number as u8, effect);
            }
        }
        let bytes = if write.is_some() { 4 } else { 0 };
        let there = self.reach_port(core, cx.now(), number as u8, Cause::MmioRegister, bytes);
        let done = there + self.ports[number].params.outbound_latency;
        let back = self.answer_core(core, done, number as u8, data.len());
        let slot = self.outbound.park(completer, data);
        cx.scheduler.at(back, Event::Root(self.id, RootEvent::CoreHasData { slot }));
        completion
    }

    fn root_port_effect(&mut self, cx: &mut Context<'_>, number: u8, effect: ConfigEffect) {
        let port = &mut self.ports[usize::from(number)];
        match effect {
            ConfigEffect::BusNumbers { secondary, subordinate, .. } => {
                port.buses = secondary.max(1)..=subordinate;
            }
            ConfigEffect::WindowMoved | ConfigEffect::MemoryEnable(_) => {
                let windows: Vec<_> = bridge::windows(&port.config).collect();
                self.outbound.set_bridge_windows(number, &windows);
            }
            ConfigEffect::LinkDisable(true) => {
                self.link_lost(cx, number);
                // A device whose link goes down is reset (base spec 5.2, 6.6.1).
                self.port(number).reset_below(cx.scheduler);
            }
            ConfigEffect::ErrorReporting => cx.wires.set_protected(port.end, port.config.generates_ecrc()),
            ConfigEffect::RetrainLink => port.retrain(cx),
            ConfigEffect::LinkDisable(false) => port.link_back(cx),
            ConfigEffect::SecondaryBusReset(on) => {
                let begins = port.set_in_reset(cx, on);
                if begins {
                    self.link_lost(cx, number);
                    self.port(number).reset_below(cx.scheduler);
                }
            }
            ConfigEffect::SlotCommand { .. } => {
                port.slot_status(cx.scheduler, 0, slot::STATUS_COMMAND_COMPLETED);
            }
            _ => {}
        }
    }

    /// The link below a port went down; everything in flight on it is lost.
    pub fn link_lost(&mut self, cx: &mut Context<'_>, number: u8) {
        self.port_mut(number).take_link_down(cx);
        self.abandon(cx.scheduler, number);
        self.abandon_peers(cx, number);
        self.link_drained(cx, number);
        self.heed_lines(cx.scheduler);
        self.port_mut(number).show_link_lost(cx.scheduler);
    }

    /// Updates the line controller with the ports' current lines.
    pub(super) fn heed_lines(&mut self, scheduler: &mut Scheduler<Event>) {
        let ports = self.ports.iter().map(|port| (port.id.device(), port.lines));
        self.interrupts.set_active(scheduler, IntxLines::above(ports));
    }

    /// Handles an interrupt message that reached the root complex.
    pub(super) fn interrupt(
        &mut self,
        scheduler: &mut Scheduler<Event>,
        requester: Bdf,
        message: MsiMessage,
    ) {
        let port = self.ports.iter().find(|p| p.id == requester || p.buses.contains(&requester.bus()));
        let node = port.map_or(NodeId(0), |port| port.params.node);
        let entrance = Entrance { node, iommu: self.iommus.get_mut(node.index()), memory: &mut self.memory };
        self.interrupts.message(scheduler, entrance, requester, message);
    }
}
