//! Streams of random bytes from program to program.

use std::rc::Rc;

use engine::Seed;
use platform::block::Segment;
use platform::cpu::Cpu;
use platform::kernel::Kernel;
use platform::memory::{Pages, Policy};
use platform::socket::TcpStream;

/// Random bytes.
pub fn bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut rng = Seed::new(seed).component("bytes");
    (0..length).map(|_| rng.below(256) as u8).collect()
}

/// Sends all of `data` in pieces of `piece` bytes.
pub async fn send(cpu: &Cpu, kernel: &Rc<dyn Kernel>, stream: &dyn TcpStream, data: &[u8], piece: usize) {
    let pages = kernel.alloc_pages(cpu, Pages::order_for(piece as u64), Policy::Local).unwrap();
    for part in data.chunks(piece) {
        cpu.store(pages.start, part);
        stream.send(cpu, Segment { at: pages.start, length: part.len() as u32 }).await.unwrap();
    }
    kernel.free_pages(cpu, pages);
    stream.shutdown(cpu);
}

/// Receives to the end of the stream.
pub async fn receive(cpu: &Cpu, kernel: &Rc<dyn Kernel>, stream: &dyn TcpStream, most: u32) -> Vec<u8> {
    let pages = kernel.alloc_pages(cpu, Pages::order_for(most.into()), Policy::Local).unwrap();
    let mut data = Vec::new();
    loop {
        let taken = stream.recv(cpu, Segment { at: pages.start, length: most }).await.unwrap() as usize;
        if taken == 0 {
            break;
        }
        let at = data.len();
        data.resize(at + taken, 0);
        cpu.load(pages.start, &mut data[at..]);
    }
    kernel.free_pages(cpu, pages);
    data
}
