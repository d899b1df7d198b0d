//! What the reads and writes of a port share: identity, settings of the host, data mover, counters.

use platform::device::{DmaAttributes, FunctionIndex};
use platform::mover::DataMover;
use units::Duration;
use wire::pcie::tlp::Common;

use super::{PortLife, RequesterCounters};
use crate::endpoint::params::EndpointParams;
use crate::endpoint::registers::Allowance;
use crate::endpoint::{EndpointEvent, EndpointId};
use crate::event::Event;

/// A port as requester, shared by the parts of its [`Requester`](super::Requester).
pub(super) struct Port {
    endpoint: EndpointId,
    /// Current life of the port. Events of an earlier one are dropped.
    pub life: PortLife,
    pub params: EndpointParams,
    /// Settings of the host for requests.
    pub allowance: Allowance,
    /// Completion timeout by function, as set by the host; `None` is none.
    pub timeouts: Vec<Option<Duration>>,
    /// Data path inside the device.
    pub mover: Box<dyn DataMover>,
    pub counters: RequesterCounters,
}

impl Port {
    /// A port with the settings after a reset.
    pub fn new(
        endpoint: EndpointId,
        life: PortLife,
        params: EndpointParams,
        mover: Box<dyn DataMover>,
    ) -> Self {
        Self {
            endpoint,
            life,
            params,
            allowance: Allowance::default(),
            timeouts: Vec::new(),
            mover,
            counters: RequesterCounters::default(),
        }
    }

    /// The port was reset.
    pub fn reset(&mut self) {
        self.life.number = self.life.number.wrapping_add(1);
        self.allowance = Allowance::default();
        self.timeouts.clear();
        self.mover.reset();
    }

    /// An event of the device.
    #[inline(always)]
    pub fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.endpoint, event)
    }

    /// Largest read request in bytes.
    #[inline(always)]
    pub fn largest_read(&self) -> u32 {
        self.allowance.max_read_request.min(self.params.max_read_request)
    }

    /// Completion timeout of a function; `None` is none.
    #[inline]
    pub fn timeout(&self, function: FunctionIndex) -> Option<Duration> {
        let set = self.timeouts.get(usize::from(function.0));
        set.copied().unwrap_or(Some(self.params.completion_timeout))
    }

    /// Attributes of a request, limited to what the host allows.
    #[inline(always)]
    pub fn common(&self, attributes: DmaAttributes) -> Common {
        let allowed = &self.allowance;
        Common {
            relaxed_ordering: attributes.relaxed_ordering && allowed.relaxed_ordering,
            no_snoop: attributes.no_snoop && allowed.no_snoop,
            id_based_ordering: attributes.id_based_ordering && allowed.id_based_ordering,
            ..Common::default()
        }
    }
}
