//! One NIC function: its settings, queues, rules and vectors.

use std::collections::VecDeque;
use std::rc::Rc;

use engine::Epoch;
use platform::device::DeviceBus;
use platform::ethernet::EthernetPort;
use units::Time;
use wire::ethernet::{EthernetHeader, MacAddr};
use wire::ip::Flow;
use wire::nic::Completion;
use wire::nic::completion::{END, FAILED, Kind as CompletionKind};
use wire::nic::registers::{counter, event, feature};
use wire::pcie::config::ConfigSpace;

use super::handle::NicHandle;
use super::interrupts::Interrupts;
use super::params::{NicFunctionParams, NicParams, PHYSICAL_ONLY};
use super::ring::{QueueId, Ring};
use super::rules::Rules;
use super::rx::queue::RxQueue;
use super::steering::Rss;
use super::token::Note;
use super::tx::queue::TxQueue;

/// A packet that has been sent, for the completion of its descriptors.
#[derive(Clone, Copy)]
pub struct Sent {
    pub function: u8,
    pub queue: u8,
    pub life: Epoch,
    pub descriptors: u16,
    pub failed: bool,
    pub report: bool,
}

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
    /// In loopback.
    pub loops: bool,
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
    /// Frames queued for the wire: when each will have left, and its bytes. Registers count a frame once it has left.
    leaving: VecDeque<(Time, u64)>,
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
        let queue = |is_tx, queue| Ring::new(QueueId { function: number, number: queue, is_tx }, nic, handle);
        Self {
            number,
            nic: Rc::clone(nic),
            handle: handle.clone(),
            params: function,
            physical,
            config,
            enabled: false,
            loops: false,
            running_since: Time::ZERO,
            features: 0,
            max_frame: params.max_frame,
            mac: function.mac,
            rss: Rss::new(params.rss_entries),
            rules: Rules::new(params, physical.is_some()),
            tx: (0..tx).map(|n| TxQueue::new(queue(true, n as u8))).collect(),
            rx: (0..rx).map(|n| RxQueue::new(queue(false, n as u8))).collect(),
            longest_held: 0,
            interrupts: Interrupts::new(
                number,
                handle,
                vectors,
                params.features & feature::EVENT_QUEUES != 0,
            ),
            leaving: VecDeque::new(),
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
        let queue = usize::from(queue);
        if is_tx { &mut self.tx[queue].ring } else { &mut self.rx[queue].ring }
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

    /// Counts a frame of so many bytes that will have left at `left`, or has been handed to another function.
    pub fn count_frame(&mut self, now: Time, left: Option<Time>, bytes: u64) {
        self.count(counter::TX_FRAMES, 1);
        self.count(counter::TX_BYTES, bytes);
        while self.leaving.front().is_some_and(|&(at, _)| at <= now) {
            self.leaving.pop_front();
        }
        self.leaving.extend(left.map(|at| (at, bytes)));
    }

    /// The value of a counter's register.
    pub fn counted(&self, now: Time, which: usize) -> u64 {
        let leaving = self.leaving.iter().filter(|(at, _)| *at > now);
        let ahead = match which {
            counter::TX_FRAMES => leaving.count() as u64,
            counter::TX_BYTES => leaving.map(|(_, bytes)| bytes).sum(),
            _ => 0,
        };
        self.handle.register(self.number, which) - ahead
    }

    /// Stops a queue because of an invalid descriptor or a failed access.
    pub fn fail_queue(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        self.ring(queue, is_tx).fail();
        self.interrupts.event(bus, event::QUEUE_ERROR);
    }

    /// Shows the rings to the handle, for tests and reports.
    pub fn show_rings(&self) {
        let tx = self.tx.iter().map(|queue| &queue.ring);
        tx.chain(self.rx.iter().map(|queue| &queue.ring)).for_each(Ring::show);
    }

    /// The device's features that this function has.
    pub fn features(&self) -> u32 {
        self.nic.features & if self.physical.is_some() { !PHYSICAL_ONLY } else { u32::MAX }
    }

    pub fn has(&self, feature: u32) -> bool {
        self.features & feature != 0
    }

    /// Completes a packet's descriptors.
    pub fn sent(&mut self, bus: &mut dyn DeviceBus, sent: Sent) {
        let Sent { queue, life, descriptors, failed, report, .. } = sent;
        let ring = &mut self.tx[usize::from(queue)].ring;
        if ring.life() != life {
            return;
        }
        if failed {
            ring.count_dropped();
            self.count(counter::TX_ERRORS, 1);
        }
        let flags = if failed { FAILED } else { 0 };
        let now = bus.now();
        for n in 1..=descriptors {
            let ring = &mut self.tx[usize::from(queue)].ring;
            let (count, is_last) = (ring.finish(), n == descriptors);
            if is_last {
                ring.note_filled(now);
            }
            if ring.has_completion(is_last, report || failed) {
                let flags = if is_last { flags | END } else { flags };
                let kind = CompletionKind::Sent;
                let completion = Completion { count, flags, kind, ..Completion::default() };
                self.complete(bus, queue, true, completion, is_last.into());
            }
        }
    }

    /// Completes descriptors of a queue, which end `packets` packets: tells the driver now or together with others.
    pub fn complete(
        &mut self,
        bus: &mut dyn DeviceBus,
        queue: u8,
        is_tx: bool,
        completion: Completion,
        packets: u16,
    ) {
        let visible = self.ring(queue, is_tx).complete(bus, completion, packets);
        self.tell(bus, queue, is_tx, visible);
    }

    /// Writes all pending completions of a queue.
    pub fn flush(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool) {
        let visible = self.ring(queue, is_tx).flush(bus);
        self.tell(bus, queue, is_tx, visible);
    }

    /// Completions of a queue have been written, or have waited long enough.
    pub fn completions_due(&mut self, bus: &mut dyn DeviceBus, note: Note, is_tx: bool) {
        let visible = self.ring(note.queue, is_tx).completions_due(bus, note);
        self.tell(bus, note.queue, is_tx, visible);
    }

    /// The driver can see the completions of more packets of a queue: interrupts it if it wants that.
    fn tell(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool, packets: Option<u16>) {
        let Some(packets) = packets else { return };
        let ring = self.ring(queue, is_tx);
        let (vector, is_armed) = (ring.vector(), ring.is_armed());
        if self.handle.has_spurious_interrupt() {
            self.interrupts.raise(bus, vector);
        }
        if is_armed && self.interrupts.tell(bus, vector, packets.max(1).into()) {
            self.disarm(vector);
        }
    }

    /// The driver has processed completions of a queue up to `seen` and asks to be interrupted for more.
    pub fn arm(&mut self, bus: &mut dyn DeviceBus, queue: u8, is_tx: bool, seen: u16) {
        let ring = self.ring(queue, is_tx);
        let (unseen, vector) = (ring.arm(seen), ring.vector());
        if unseen > 0 && self.interrupts.tell(bus, vector, unseen.into()) {
            self.disarm(vector);
        }
    }

    /// A vector's timer expired.
    pub fn vector_due(&mut self, bus: &mut dyn DeviceBus, vector: u32) {
        if self.interrupts.due(bus, vector) {
            self.disarm(vector);
        }
    }

    /// An interrupt was sent: the driver asks again for the next one.
    fn disarm(&mut self, vector: u32) {
        let tx = self.tx.iter_mut().map(|queue| &mut queue.ring);
        let rings = tx.chain(self.rx.iter_mut().map(|queue| &mut queue.ring));
        rings.filter(|ring| ring.vector() == vector).for_each(Ring::disarm);
    }

    /// Clears all that a reset clears. Notes from before are ignored.
    pub fn reset(&mut self) {
        let device = (&self.nic, &self.handle);
        let tx = self.tx.iter().map(|queue| TxQueue::new(queue.ring.after_reset())).collect();
        let rx = self.rx.iter().map(|queue| RxQueue::new(queue.ring.after_reset())).collect();
        let fresh = Self::new(self.number, device, self.params, self.physical, self.config.clone());
        *self = Self { tx, rx, ..fresh };
    }
}
