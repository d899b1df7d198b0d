//! One function of the NIC: its registers, queues, rules and vectors.

use platform::ethernet::EthernetPort;
use units::{Duration, Time};
use wire::ethernet::MacAddr;
use wire::ip::Flow;
use wire::nic::registers::{NO_VECTOR, feature};
use wire::pcie::config::ConfigSpace;

use super::params::{NicFunctionParams, NicParams};
use super::ring::Ring;
use super::rx::RxQueue;
use super::steering::{AddressTable, FlowKey, FlowTable, Rss};
use super::tx::TxQueue;

/// Interrupt coalescing of a vector.
#[derive(Clone, Copy, Debug, Default)]
pub struct Vector {
    pub delay: Duration,
    pub packets: u32,
    pub adaptive: bool,
    /// What the device makes of the delay by the load.
    pub current: Duration,
    /// Packets that nobody has been told of.
    pub pending: u32,
    /// When the timer goes off that will tell.
    pub due: Option<Time>,
}

/// Registers that describe a flow rule, and the outcome of the last command.
#[derive(Clone, Copy, Debug)]
pub struct FlowRegisters {
    pub source: [u8; 4],
    pub destination: [u8; 4],
    pub ports: u32,
    pub protocol: u32,
    pub rule: u32,
    pub target: u32,
    pub result: u32,
    pub age_us: u32,
    pub hits: u32,
}

impl FlowRegisters {
    const RESET: Self = Self {
        source: [0; 4],
        destination: [0; 4],
        ports: 0,
        protocol: 0,
        rule: 0,
        target: 0,
        result: 0,
        age_us: 0,
        hits: 0,
    };

    pub fn key(&self) -> FlowKey {
        FlowKey {
            protocol: self.protocol as u8,
            source: self.source.into(),
            destination: self.destination.into(),
            ports: (self.ports as u16, (self.ports >> 16) as u16),
        }
    }
}

/// Registers that describe an address rule, and the outcome of the last command.
#[derive(Clone, Copy, Debug, Default)]
pub struct AddressRegisters {
    pub mac: [u8; 6],
    pub rule: u32,
    pub target: u32,
    pub result: u32,
}

/// A function.
pub struct NicFunction {
    pub params: NicFunctionParams,
    /// Of a virtual function: its physical one.
    pub physical: Option<u8>,
    pub config: ConfigSpace,
    pub enabled: bool,
    pub features: u32,
    pub max_frame: u16,
    pub mac: MacAddr,
    pub events: u32,
    pub event_vector: u32,
    pub rss: Rss,
    pub rules: FlowTable,
    pub flow: FlowRegisters,
    /// Further addresses that it takes frames for, and their queues.
    pub addresses: AddressTable,
    pub address: AddressRegisters,
    pub tx: Vec<TxQueue>,
    pub rx: Vec<RxQueue>,
    /// Longest frame that stays in the device for the driver to fetch.
    pub longest_held: u16,
    pub vectors: Vec<Vector>,
}

impl NicFunction {
    pub fn new(
        params: &NicParams,
        function: NicFunctionParams,
        physical: Option<u8>,
        config: ConfigSpace,
    ) -> Self {
        let own = params.virtual_functions.filter(|_| physical.is_some());
        let (tx, rx, vectors) = match own {
            Some(own) => (own.queues, own.queues, own.vectors),
            None => (params.tx_queues, params.rx_queues, params.vectors),
        };
        Self {
            params: function,
            physical,
            config,
            enabled: false,
            features: 0,
            max_frame: params.max_frame,
            mac: function.mac,
            events: 0,
            event_vector: NO_VECTOR,
            rss: Rss::new(params.rss_entries),
            rules: FlowTable::new(params.flow_rules),
            flow: FlowRegisters::RESET,
            addresses: AddressTable::new(if physical.is_none() { params.addresses } else { 0 }),
            address: AddressRegisters::default(),
            tx: (0..tx).map(|_| TxQueue::new(params.tx.cache)).collect(),
            rx: (0..rx).map(|_| RxQueue::new(params.rx.cache)).collect(),
            longest_held: 0,
            vectors: vec![Vector::default(); usize::from(vectors)],
        }
    }

    /// Whether the device knows its address: a virtual function that does not run may not exist.
    pub fn is_known(&self) -> bool {
        self.enabled || self.physical.is_none()
    }

    /// Whether frames to an address are for it.
    pub fn is_addressed(&self, to: MacAddr) -> bool {
        self.mac == to || self.addresses.has(to)
    }

    pub fn port(&self) -> EthernetPort {
        self.params.port
    }

    /// The queue that a flow's frames go to by rule or hash.
    pub fn queue_of(&self, flow: &Flow) -> u16 {
        let by_rule = || self.rules.target_of(flow).filter(|_| self.has(feature::FLOW_RULES));
        let by_hash = || self.rss.hash(flow).filter(|_| self.has(feature::RSS));
        by_rule().or_else(|| by_hash().map(|(hash, _)| self.rss.queue(hash))).unwrap_or(0)
    }

    /// The ring of a queue in either direction.
    pub fn ring(&mut self, queue: u8, is_tx: bool) -> &mut Ring {
        let queue = usize::from(queue);
        if is_tx { &mut self.tx[queue].ring } else { &mut self.rx[queue].ring }
    }

    /// What it can do of what the device can, which of its functions share an address apart. A virtual function has neither the ways that need a BAR more, nor a look at
    /// what is not for it.
    pub fn features(&self, params: &NicParams) -> u32 {
        let withheld = feature::KPIO | feature::INLINE | feature::PROMISCUOUS;
        params.features & if self.physical.is_some() { !withheld } else { u32::MAX }
    }

    pub fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// All rings of a vector.
    pub fn rings_of(&mut self, vector: u32) -> impl Iterator<Item = &mut Ring> {
        let Self { tx, rx, .. } = self;
        let rings = tx.iter_mut().map(|q| &mut q.ring).chain(rx.iter_mut().map(|q| &mut q.ring));
        rings.filter(move |ring| ring.setup.vector == vector)
    }

    /// Everything that a reset clears; lives go on, so that notes of before mean nothing.
    pub fn reset(&mut self, params: &NicParams) {
        let lives: Vec<(u16, u16)> = (0..self.tx.len().max(self.rx.len()))
            .map(|n| (self.tx.get(n).map_or(0, |q| q.ring.life), self.rx.get(n).map_or(0, |q| q.ring.life)))
            .collect();
        *self = Self::new(params, self.params, self.physical, self.config.clone());
        for (n, (tx, rx)) in lives.into_iter().enumerate() {
            if let Some(queue) = self.tx.get_mut(n) {
                queue.ring.life = (tx + 1) & 0xfff;
            }
            if let Some(queue) = self.rx.get_mut(n) {
                queue.ring.life = (rx + 1) & 0xfff;
            }
        }
    }
}
