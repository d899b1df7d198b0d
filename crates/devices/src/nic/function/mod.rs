//! One function of the NIC: its registers, queues, rules and vectors.

mod completions;
mod interrupts;
mod rules;

use std::rc::Rc;

use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
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
use super::token::{Kind, Note, request};
use super::tx::queue::TxQueue;
pub use completions::Sent;
use interrupts::Interrupts;
use rules::Rules;

/// A function.
pub struct NicFunction {
    pub number: u8,
    nic: Rc<NicParams>,
    handle: NicHandle,
    pub params: NicFunctionParams,
    /// Of a virtual function: its physical one.
    pub physical: Option<u8>,
    pub config: ConfigSpace,
    pub enabled: bool,
    pub features: u32,
    pub max_frame: u16,
    pub mac: MacAddr,
    pub rss: Rss,
    pub rules: Rules,
    pub tx: Vec<TxQueue>,
    pub rx: Vec<RxQueue>,
    /// Longest frame that stays in the device for the driver to fetch.
    pub longest_held: u16,
    pub interrupts: Interrupts,
    /// Kept so that completions do not allocate.
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
            features: 0,
            max_frame: params.max_frame,
            mac: function.mac,
            rss: Rss::new(params.rss_entries),
            rules: Rules::new(params, physical.is_some()),
            tx: (0..tx).map(|_| TxQueue::new(params.tx.cache)).collect(),
            rx: (0..rx).map(|_| RxQueue::new(params.rx.cache)).collect(),
            longest_held: 0,
            interrupts: Interrupts::new(vectors),
            scratch: Vec::new(),
        }
    }

    /// Whether the device knows its address: a virtual function that does not run may not exist.
    pub fn is_known(&self) -> bool {
        self.enabled || self.physical.is_none()
    }

    /// Whether frames to an address are for it.
    pub fn is_addressed(&self, to: MacAddr) -> bool {
        self.mac == to || self.rules.has_address(to)
    }

    pub fn port(&self) -> EthernetPort {
        self.params.port
    }

    /// Whether a frame that it sends is in another's name: a virtual function may not.
    pub fn is_spoofed(&self, frame: &[u8]) -> bool {
        let is_own = |(header, _): (EthernetHeader, _)| header.source == self.mac;
        self.physical.is_some() && EthernetHeader::parse(frame).is_ok_and(|parsed| !is_own(parsed))
    }

    /// The queue that a flow's frames go to by rule or hash.
    pub fn queue_of(&self, flow: &Flow) -> u16 {
        let by_rule = || self.rules.target_of(flow).filter(|_| self.has(feature::FLOW_RULES));
        let by_hash = || self.rss.hash(flow).filter(|_| self.has(feature::RSS));
        by_rule().or_else(|| by_hash().map(|(hash, _)| self.rss.queue(hash))).unwrap_or(0)
    }

    /// The ring of a queue in either direction.
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

    /// Fetches descriptors of a queue if it is time.
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

    /// Stops a queue because of what it was given.
    pub fn fail_queue(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        self.ring(queue, is_tx).fail();
        self.event(bus, event::QUEUE_ERROR);
    }

    /// Lets the handle see its rings.
    pub fn show_rings(&self) {
        let tx = (0..).zip(&self.tx).map(|(queue, of)| (true, queue, &of.ring));
        let rx = (0..).zip(&self.rx).map(|(queue, of)| (false, queue, &of.ring));
        for (is_tx, queue, ring) in tx.chain(rx) {
            self.handle.watch_ring(self.number, is_tx, queue, &ring.filled);
        }
    }

    /// What it can do of what the device can. A virtual function has neither the ways that need a further BAR, nor a look at what is not for it.
    pub fn features(&self) -> u32 {
        let withheld = feature::KPIO | feature::INLINE | feature::PROMISCUOUS;
        self.nic.features & if self.physical.is_some() { !withheld } else { u32::MAX }
    }

    pub fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// All rings of a vector.
    fn rings_of(&mut self, vector: u32) -> impl Iterator<Item = &mut Ring> {
        let Self { tx, rx, .. } = self;
        let rings = tx.iter_mut().map(|q| &mut q.ring).chain(rx.iter_mut().map(|q| &mut q.ring));
        rings.filter(move |ring| ring.setup.vector == vector)
    }

    /// Everything that a reset clears; lives go on, so that notes of before mean nothing.
    pub fn reset(&mut self) {
        let lives: Vec<(u16, u16)> = (0..self.tx.len().max(self.rx.len()))
            .map(|n| (self.tx.get(n).map_or(0, |q| q.ring.life), self.rx.get(n).map_or(0, |q| q.ring.life)))
            .collect();
        let device = (&self.nic, &self.handle);
        *self = Self::new(self.number, device, self.params, self.physical, self.config.clone());
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
