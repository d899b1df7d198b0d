//! One NIC function: its registers, queues, rules and vectors.

mod completions;
mod interrupts;
mod rules;

use std::rc::Rc;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::Time;
use wire::ethernet::{EthernetHeader, MacAddr};
use wire::ip::Flow;
use wire::nic::descriptor::LEN;
use wire::nic::registers::{counter, event, feature};
use wire::pcie::config::ConfigSpace;

use super::handle::NicHandle;
use super::params::{NicFunctionParams, NicParams};
use super::ring::Ring;
use super::rx::queue::RxQueue;
use super::steering::Rss;
use super::token::{Kind, LIVES, Note, request};
use super::tx::queue::TxQueue;
pub use completions::Sent;
use interrupts::Interrupts;
use rules::Rules;

/// One function of the NIC, physical or virtual.
pub struct NicFunction {
    pub number: u8,
    nic: Rc<NicParams>,
    handle: NicHandle,
    pub params: NicFunctionParams,
    /// The physical function of a virtual one.
    pub physical: Option<u8>,
    pub config: ConfigSpace,
    pub enabled: bool,
    /// When it was last enabled.
    pub running_since: Time,
    pub features: u32,
    pub max_frame: u16,
    pub mac: MacAddr,
    pub rss: Rss,
    pub rules: Rules,
    pub tx: Vec<TxQueue>,
    pub rx: Vec<RxQueue>,
    /// Length of the longest frame that is held in the device for the driver to fetch.
    pub longest_held: u16,
    pub interrupts: Interrupts,
    /// Reused so that completions do not allocate.
    scratch: Vec<u8>,
}

fn ring_of<'a>(tx: &'a mut [TxQueue], rx: &'a mut [RxQueue], queue: u8, is_tx: bool) -> &'a mut Ring {
    let queue = usize::from(queue);
    if is_tx { &mut tx[queue].ring } else { &mut rx[queue].ring }
}

impl NicFunction {
    pub fn new(
        number: u8,
        (nic, handle): (&Rc<NicParams>, &NicHandle),
        function: NicFunctionParams,
        physical: Option<u8>,
        config: ConfigSpace,
    ) -> Self {
        let params = &**nic;
        let own = params.virtual_functions.filter(|_| physical.is_some());
        let (tx, rx, vectors) = match own {
            Some(own) => (own.queues, own.queues, own.vectors),
            None => (params.tx_queues, params.rx_queues, params.vectors),
        };
        Self {
            number,
            nic: Rc::clone(nic),
            handle: handle.clone(),
            params: function,
            physical,
            config,
            enabled: false,
            running_since: Time::ZERO,
            features: 0,
            max_frame: params.max_frame,
            mac: function.mac,
            rss: Rss::new(params.rss_entries),
            rules: Rules::new(params, physical.is_some()),
            tx: (0..tx).map(|_| TxQueue::new(params.tx.cache)).collect(),
            rx: (0..rx).map(|_| RxQueue::new(params.rx.cache)).collect(),
            longest_held: 0,
            interrupts: Interrupts::new(vectors, params.features & feature::EVENT_QUEUES != 0),
            scratch: Vec::new(),
        }
    }

    /// Starts or stops it.
    pub fn enable(&mut self, now: Time, on: bool) {
        if on && !self.enabled {
            self.running_since = now;
        }
        self.enabled = on;
    }

    /// Whether the switch considers the function's address: a disabled virtual function may not exist.
    pub fn is_known(&self) -> bool {
        self.enabled || self.physical.is_none()
    }

    /// Whether frames to an address are for this function.
    pub fn is_addressed(&self, to: MacAddr) -> bool {
        self.mac == to || self.rules.has_address(to)
    }

    pub fn port(&self) -> EthernetPort {
        self.params.port
    }

    /// Whether a frame that this function sends has a foreign source address, which a virtual function must not use.
    pub fn is_spoofed(&self, frame: &[u8]) -> bool {
        let is_own = |(header, _): (EthernetHeader, _)| header.source == self.mac;
        self.physical.is_some() && EthernetHeader::parse(frame).is_ok_and(|parsed| !is_own(parsed))
    }

    /// The queue for a flow's frames, by rule or hash.
    pub fn queue_of(&self, flow: &Flow) -> u16 {
        let by_rule = || self.rules.target_of(flow).filter(|_| self.has(feature::FLOW_RULES));
        let by_hash = || self.rss.hash(flow).filter(|_| self.has(feature::RSS));
        by_rule().or_else(|| by_hash().map(|(hash, _)| self.rss.queue(hash))).unwrap_or(0)
    }

    /// The TX or RX ring of a queue.
    pub fn ring(&mut self, queue: u8, is_tx: bool) -> &mut Ring {
        ring_of(&mut self.tx, &mut self.rx, queue, is_tx)
    }

    /// The device's parameters.
    pub fn nic(&self) -> &NicParams {
        &self.nic
    }

    /// Adds to a counter.
    #[inline]
    pub fn count(&self, which: usize, amount: u64) {
        self.handle.add(self.number, which, amount);
    }

    /// Fetches descriptors of a queue if it should.
    pub fn fetch(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        let at = usize::from(queue);
        let (kind, batch, hungry) = match is_tx {
            true => (Kind::TxFetch, self.nic.tx.fetch, self.tx[at].hungry),
            false => (Kind::RxFetch, self.nic.rx.fetch, self.rx[at].is_hungry()),
        };
        let ring = ring_of(&mut self.tx, &mut self.rx, queue, is_tx);
        while let Some((count, address, number)) = ring.next_fetch(batch, hungry) {
            let note = Note::new(kind, ring.life, self.number, queue).with(count, number);
            self.handle.add(self.number, counter::FETCHES, 1);
            self.handle.add(self.number, counter::FETCHED, number.into());
            bus.read(request(self.number, address, u32::from(number) * LEN as u32, note));
        }
    }

    /// Stops a queue because of an invalid descriptor or a failed access.
    pub fn fail_queue(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        self.ring(queue, is_tx).fail();
        self.event(bus, event::QUEUE_ERROR);
    }

    /// Shows the rings to the handle, for tests and reports.
    pub fn show_rings(&self) {
        let tx = (0..).zip(&self.tx).map(|(queue, of)| (true, queue, &of.ring));
        let rx = (0..).zip(&self.rx).map(|(queue, of)| (false, queue, &of.ring));
        for (is_tx, queue, ring) in tx.chain(rx) {
            self.handle.watch_ring(self.number, is_tx, queue, &ring.filled);
        }
    }

    /// The device's features that this function has. A virtual function has no kPIO or inline doorbells, which need a
    /// further BAR, and no promiscuous mode.
    pub fn features(&self) -> u32 {
        let withheld = feature::KPIO | feature::INLINE | feature::PROMISCUOUS;
        self.nic.features & if self.physical.is_some() { !withheld } else { u32::MAX }
    }

    pub fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// All rings that use a vector.
    fn rings_of(&mut self, vector: u32) -> impl Iterator<Item = &mut Ring> {
        let Self { tx, rx, .. } = self;
        let rings = tx.iter_mut().map(|q| &mut q.ring).chain(rx.iter_mut().map(|q| &mut q.ring));
        rings.filter(move |ring| ring.setup.vector == vector)
    }

    /// Clears all that a reset clears. Lives are kept and advanced, so that notes from before the reset are ignored.
    pub fn reset(&mut self) {
        let lives: Vec<(u16, u16)> = (0..self.tx.len().max(self.rx.len()))
            .map(|n| (self.tx.get(n).map_or(0, |q| q.ring.life), self.rx.get(n).map_or(0, |q| q.ring.life)))
            .collect();
        let device = (&self.nic, &self.handle);
        *self = Self::new(self.number, device, self.params, self.physical, self.config.clone());
        for (n, (tx, rx)) in lives.into_iter().enumerate() {
            if let Some(queue) = self.tx.get_mut(n) {
                queue.ring.life = (tx + 1) & LIVES;
            }
            if let Some(queue) = self.rx.get_mut(n) {
                queue.ring.life = (rx + 1) & LIVES;
            }
        }
    }
}
