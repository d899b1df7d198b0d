//! Routing of TLPs by ingress port (base spec 2.2.4, 6.12).

use units::Duration;
use wire::pcie::config::acs;
use wire::pcie::tlp::{AddressType, ConfigType};
use wire::pcie::{Bdf, IntxLine, Tlp, TlpKind};

use super::{SwitchPort, UPSTREAM};
use crate::bridge;

/// Destination of a TLP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Route {
    /// Forward through this port.
    To(usize),
    /// Registers of this port.
    Here(usize),
    /// No target.
    Nowhere,
    /// Blocked by access control.
    Forbidden,
    /// Level change of a legacy interrupt line.
    Line(IntxLine, bool),
    /// Latencies that what is below requires.
    Latencies([Option<Duration>; 2]),
    /// Ends here.
    Ends,
}

/// The ports of a switch, the upstream port first.
pub(super) struct Routing<'a>(pub(super) &'a [SwitchPort]);

impl Routing<'_> {
    /// Routes a TLP that arrived through port `from`.
    pub(super) fn route(&self, from: usize, tlp: &Tlp) -> Route {
        match (&tlp.kind, from) {
            (TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request), UPSTREAM) => {
                self.route_config(request.config_type, request.target)
            }
            (TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request), UPSTREAM) => {
                self.route_down(request.byte_range())
            }
            (TlpKind::MemoryRead(request) | TlpKind::MemoryWrite(request), from) => {
                self.route_up(from, tlp, request.byte_range())
            }
            (TlpKind::Completion(header) | TlpKind::CompletionData(header), from) => {
                self.route_completion(from, tlp, header.requester)
            }
            (TlpKind::Message(message), from) if from != UPSTREAM && message.line().is_some() => {
                message.line().map_or(Route::Ends, |(line, active)| Route::Line(line, active))
            }
            // Other messages are for the root complex.
            (TlpKind::Message(_), UPSTREAM) => Route::Ends,
            (TlpKind::Message(message), _) => {
                message.latencies().map_or(Route::To(UPSTREAM), Route::Latencies)
            }
            // Ports have no I/O space, and no configuration request comes from below.
            _ => Route::Nowhere,
        }
    }

    /// The first downstream port that satisfies `is_it`.
    fn downstream(&self, is_it: impl Fn(&SwitchPort) -> bool) -> Option<usize> {
        self.0.iter().skip(1).position(is_it).map(|place| place + 1)
    }

    fn route_config(&self, kind: ConfigType, target: Bdf) -> Route {
        if kind == ConfigType::Type0 {
            return if target.device() == 0 && target.function() == 0 {
                Route::Here(UPSTREAM)
            } else {
                Route::Nowhere
            };
        }
        if bridge::holds_reset(self.0[UPSTREAM].config()) {
            return Route::Nowhere;
        }
        if target.bus() == self.0[UPSTREAM].secondary() {
            let port = self.downstream(|port| port.number() == target.device() && target.function() == 0);
            return port.map_or(Route::Nowhere, Route::Here);
        }
        let Some(port) = self.downstream(|port| port.leads_to(target.bus())) else { return Route::Nowhere };
        let state = &self.0[port];
        // A link leads to device 0 only (base spec 7.3.1).
        let is_next = target.bus() == state.secondary();
        if is_next && target.device() != 0 && !bridge::forwards_ari(state.config()) {
            return Route::Nowhere;
        }
        Route::To(port)
    }

    fn route_down(&self, (address, _): (u64, u32)) -> Route {
        match self.downstream(|port| port.holds(address)) {
            Some(port) if self.0[UPSTREAM].holds(address) => Route::To(port),
            _ => Route::Nowhere,
        }
    }

    fn route_up(&self, from: usize, tlp: &Tlp, (address, _): (u64, u32)) -> Route {
        let port = &self.0[from];
        if port.forbids(tlp) {
            return Route::Forbidden;
        }
        let is_translated = tlp.common.address_type != AddressType::Untranslated;
        if !port.config().bus_master_enabled() {
            return Route::Nowhere;
        }
        let to = self.downstream(|port| port.holds(address));
        let is_direct = is_translated && port.controls(acs::DIRECT_TRANSLATED);
        match to {
            // A TLP addressed to its ingress port has been redirected, or would loop forever (base spec 6.12.1.1).
            Some(to) if to == from => match port.controls(acs::UPSTREAM_FORWARDING) {
                true => self.upstream(),
                false => Route::Nowhere,
            },
            Some(_) if port.controls(acs::REQUEST_REDIRECT) && !is_direct => self.upstream(),
            Some(to) => Route::To(to),
            None if self.0[UPSTREAM].holds(address) => Route::Nowhere,
            None => self.upstream(),
        }
    }

    /// Upstream, if the upstream port may send requests.
    fn upstream(&self) -> Route {
        if self.0[UPSTREAM].config().bus_master_enabled() { Route::To(UPSTREAM) } else { Route::Nowhere }
    }

    fn route_completion(&self, from: usize, tlp: &Tlp, requester: Bdf) -> Route {
        let to = self.downstream(|port| port.leads_to(requester.bus()));
        if from == UPSTREAM {
            return to.map_or(Route::Nowhere, Route::To);
        }
        // Completions that may be reordered are not redirected (base spec 6.12.1.1).
        let is_redirected = self.0[from].controls(acs::COMPLETION_REDIRECT) && !tlp.common.relaxed_ordering;
        match to {
            Some(to) if to == from => match self.0[from].controls(acs::UPSTREAM_FORWARDING) {
                true => Route::To(UPSTREAM),
                false => Route::Nowhere,
            },
            Some(to) if !is_redirected => Route::To(to),
            _ => Route::To(UPSTREAM),
        }
    }
}

/// Converts a configuration request to type 0 for the device directly below a downstream port.
pub(super) fn as_type_0(tlp: &Tlp, bus: u8, is_down: bool) -> Option<Tlp> {
    let mut below = *tlp;
    match &mut below.kind {
        TlpKind::ConfigRead(request) | TlpKind::ConfigWrite(request)
            if is_down && request.target.bus() == bus && request.config_type == ConfigType::Type1 =>
        {
            request.config_type = ConfigType::Type0;
            Some(below)
        }
        _ => None,
    }
}
