//! Reception of TLPs, and release of their buffer space.

use units::Time;
use wire::pcie::FlowClass;

use super::params::Credits;
use super::receiver::Acceptance;
use super::{DLLP_BYTES, Link, LinkContext, ReceiveSpace, Released, Side, errors};
use crate::detected::Detected;
use crate::event::Event;
use crate::packet::{Hop, PacketId, Summary};

impl Link {
    /// Checks a TLP that arrived at `side`. `false` means that it was dropped and freed.
    #[inline]
    pub fn receive(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        packet: PacketId,
        released: &mut Released,
    ) -> bool {
        let now = cx.scheduler.now();
        if self.next_planned <= now {
            self.launch_planned(cx, now, released);
            if std::mem::take(&mut cx.packets.hop_mut(packet).put_off) {
                return false;
            }
        }
        let &Hop { sequence, epoch, padding, lcrc, .. } = cx.packets.hop(packet);
        if epoch != self.epoch {
            cx.packets.free(packet);
            return false;
        }
        // An Ack is only sent for a complete TLP.
        let whole = match self.receivers[side as usize].params.cut_through {
            true => now + self.tail(side, cx.packets.length(packet) as u64 + u64::from(padding)),
            false => now,
        };
        if self.injector.is_some() || lcrc.is_some() || !self.receivers[side as usize].expects(sequence) {
            return self.check(cx, side, packet, whole);
        }
        self.receivers[side as usize].accept(whole, sequence);
        self.wake_for_ack(cx, side, now);
        true
    }

    /// A TLP may be waiting for the Ack of one that arrived at `side`, because the replay buffer is full.
    #[inline]
    fn wake_for_ack(&mut self, cx: &mut LinkContext<'_>, side: Side, now: Time) {
        if self.transmitters[side.opposite() as usize].is_waiting() {
            self.arrange_wake(cx, side.opposite(), now);
        }
    }

    /// Checks sequence number and LCRC of a TLP that is complete at `whole`. `false` means that it was dropped.
    #[cold]
    fn check(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId, whole: Time) -> bool {
        let now = cx.scheduler.now();
        let &Hop { sequence, lcrc, .. } = cx.packets.hop(packet);
        let intact = lcrc.is_none_or(|lcrc| lcrc == errors::lcrc(sequence, cx.packets.bytes(packet)));
        match self.receivers[side as usize].judge(whole, sequence, intact) {
            Acceptance::Accepted => {
                self.wake_for_ack(cx, side, now);
                if let Some(injector) = &mut self.injector {
                    let Summary { class, credits, .. } = cx.packets.summary(packet);
                    if injector.loses(class) {
                        cx.packets.free(packet);
                        self.release(cx, side, class, credits, now);
                        return false;
                    }
                }
                true
            }
            Acceptance::Duplicate => {
                self.counters[side.opposite() as usize].duplicates += 1;
                self.drop_and_answer(cx, side, packet)
            }
            Acceptance::Rejected => {
                self.counters[side.opposite() as usize].rejected += 1;
                cx.scheduler.at(now, Event::LinkError(self.end(side), Detected::BadTlp));
                self.drop_and_answer(cx, side, packet)
            }
        }
    }

    /// Frees a dropped TLP and makes sure that the sender is notified.
    fn drop_and_answer(&mut self, cx: &mut LinkContext<'_>, side: Side, packet: PacketId) -> bool {
        cx.packets.free(packet);
        let due = self.receivers[side as usize].next_due().unwrap_or(cx.scheduler.now());
        let heard = due.max(cx.scheduler.now()) + self.wire(side).time_for(DLLP_BYTES) + self.params.latency;
        cx.scheduler.at(heard, Event::LinkWake(self.end(side.opposite())));
        false
    }

    /// Releases the receive buffer that a TLP held, at time `at`.
    #[inline(always)]
    pub fn give_back(&mut self, cx: &mut LinkContext<'_>, held: ReceiveSpace, at: Time) {
        if held.epoch == self.epoch {
            self.release(cx, held.end.side, held.class, held.credits, at);
        }
    }

    #[inline(always)]
    fn release(
        &mut self,
        cx: &mut LinkContext<'_>,
        side: Side,
        class: FlowClass,
        credits: Credits,
        at: Time,
    ) {
        self.receivers[side as usize].release(at, class, credits);
        let sender = side.opposite();
        if self.transmitters[sender as usize].is_waiting() {
            self.arrange_wake(cx, sender, cx.scheduler.now());
        }
    }
}
