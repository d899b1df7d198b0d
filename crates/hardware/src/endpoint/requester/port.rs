//! What the reads and writes of a port share: identity, settings of the host, data mover, counters.

use platform::device::{DmaAttributes, FunctionIndex};
use platform::mover::DataMover;
use units::{Duration, Time};
use wire::pcie::tlp::{AddressType, Common};

use super::counters::RequesterCounters;
use crate::endpoint::life::PortLife;
use crate::endpoint::params::EndpointParams;
use crate::endpoint::registers::Allowance;
use crate::endpoint::{EndpointEvent, EndpointId};
use crate::event::Event;

/// A port as requester, shared by the parts of its [`Requester`](super::Requester).
pub(super) struct RequesterPort {
    endpoint: EndpointId,
    /// Current life of the port. Events of an earlier one are dropped.
    pub life: PortLife,
    pub params: EndpointParams,
    /// Settings of the host for requests.
    allowance: Allowance,
    /// Largest read request in bytes.
    pub largest_read: u32,
    /// Completion timeout by function, as set by the host; `None` is none.
    pub timeouts: Vec<Option<Duration>>,
    /// Data path inside the device.
    pub mover: Box<dyn DataMover>,
    pub counters: RequesterCounters,
}

impl RequesterPort {
    /// A port with the settings after a reset.
    pub fn new(
        endpoint: EndpointId,
        life: PortLife,
        params: EndpointParams,
        mover: Box<dyn DataMover>,
    ) -> Self {
        let mut new = Self {
            endpoint,
            life,
            params,
            allowance: Allowance::default(),
            largest_read: 0,
            timeouts: Vec::new(),
            mover,
            counters: RequesterCounters::default(),
        };
        new.allow(Allowance::default());
        new
    }

    /// Settings of the host for requests.
    #[inline]
    pub fn allowance(&self) -> &Allowance {
        &self.allowance
    }

    /// Applies new settings of the host.
    pub fn allow(&mut self, allowance: Allowance) {
        self.largest_read = allowance.max_read_request.min(self.params.max_read_request);
        self.allowance = allowance;
    }

    /// The port was reset at `now`.
    pub fn reset(&mut self, now: Time) {
        self.life.epoch.end();
        self.allow(Allowance::default());
        self.timeouts.clear();
        self.mover.reset(now);
    }

    /// An event of the device.
    #[inline(always)]
    pub fn event(&self, event: EndpointEvent) -> Event {
        Event::Endpoint(self.endpoint, event)
    }

    /// Completion timeout of a function; `None` is none.
    #[inline]
    pub fn timeout(&self, function: FunctionIndex) -> Option<Duration> {
        let set = self.timeouts.get(usize::from(function.0));
        set.copied().unwrap_or(Some(self.params.completion_timeout))
    }

    /// Attributes of a request, limited to what the part sets and the host allows.
    #[inline(always)]
    pub fn common(&self, attributes: DmaAttributes) -> Common {
        let (own, allowed) = (&self.params.attributes, &self.allowance);
        let has = |wanted: bool, own: bool, allowed: bool| wanted && own && allowed;
        Common {
            relaxed_ordering: has(
                attributes.relaxed_ordering,
                own.relaxed_ordering,
                allowed.relaxed_ordering,
            ),
            no_snoop: has(attributes.no_snoop, own.no_snoop, allowed.no_snoop),
            id_based_ordering: has(
                attributes.id_based_ordering,
                own.id_based_ordering,
                allowed.id_based_ordering,
            ),
            address_type: match attributes.translated {
                true => AddressType::Translated,
                false => AddressType::Untranslated,
            },
            ..Common::default()
        }
    }
}
