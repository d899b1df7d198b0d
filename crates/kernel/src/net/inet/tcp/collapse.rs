//! Collapses received pieces that waste memory: copies their data together into pages (Linux: `tcp_collapse`).

use std::cell::RefCell;
use std::rc::Rc;

use inet::tcp::{Connection, Payload};
use platform::cpu::{Cpu, Part};
use platform::memory::{PAGE, Pages, Policy};
use platform::net::{Fragment, Packet, PacketOwner};

use super::super::buffers::Piece;
use crate::mm::Memory;

/// Pages with copied data.
struct Copied {
    memory: Rc<Memory>,
    pages: RefCell<Vec<Pages>>,
}

impl PacketOwner for Copied {
    fn released(&self, cpu: &Cpu, _: &mut Packet) {
        self.pages.borrow_mut().drain(..).for_each(|pages| self.memory.give(cpu, pages));
    }
}

/// Frees memory of a connection for incoming data. Returns how many pieces were copied together.
pub(super) fn collapse(cpu: &Cpu, memory: &Rc<Memory>, connection: &RefCell<Connection<Piece>>) -> u64 {
    let mut used_up = Vec::new();
    connection.borrow_mut().collapse(|pieces| match copied(cpu, memory, &pieces) {
        Some(one) => {
            used_up.extend(pieces);
            Ok(one)
        }
        None => Err(pieces),
    });
    let count = used_up.len() as u64;
    used_up.into_iter().for_each(|piece| piece.release(cpu));
    count
}

/// A copy of consecutive pieces, if it uses less memory than they do.
fn copied(cpu: &Cpu, memory: &Rc<Memory>, pieces: &[Piece]) -> Option<Piece> {
    let length: u32 = pieces.iter().map(Payload::len).sum();
    let count = u64::from(length).div_ceil(PAGE);
    let keep: u64 = pieces.iter().map(|piece| u64::from(piece.true_size())).sum();
    if count * PAGE >= keep {
        return None;
    }
    let owner = Rc::new(Copied { memory: Rc::clone(memory), pages: RefCell::default() });
    let mut fragments = Vec::new();
    for n in 0..count {
        let Ok(pages) = memory.take(cpu, 0, Policy::Local) else {
            Packet { owner: Some(owner), ..Packet::default() }.release(cpu);
            return None;
        };
        owner.pages.borrow_mut().push(pages);
        let length = (u64::from(length) - n * PAGE).min(PAGE) as u32;
        fragments.push(Fragment { pages: Some(pages), at: pages.start, length });
    }
    let _part = cpu.book(Part::Copy);
    let mut done = 0;
    for mut run in pieces.iter().flat_map(Piece::runs) {
        while run.length > 0 {
            let (page, offset) = ((done / PAGE) as usize, done % PAGE);
            let part = (PAGE - offset).min(run.length.into());
            cpu.copy(fragments[page].at + offset, run.at, part);
            done += part;
            run = Fragment { at: run.at + part, length: run.length - part as u32, ..run };
        }
    }
    Some(Piece::of(Packet { fragments, owner: Some(owner), ..Packet::default() }, 0, length))
}
