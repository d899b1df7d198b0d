//! Messages of vfio-user: whatever a client sends is answered or refused, and no access is outside of a region.

use std::collections::VecDeque;
use std::fs::File;

use vfio_user::request::{CONFIG_REGION, HEADER, MOST_BODY, VfioHeader};
use vfio_user::{ClientMemory, DmaMap, ServedFunction, VfioRefusal, VfioRequest, answer};

/// A function with a register file of 4 KiB.
#[derive(Default)]
struct ServedRegisters {
    memory: ClientMemory,
}

const SIZE: u64 = 4096;
const VECTORS: u32 = 4;

fn check(offset: u64, length: usize) {
    assert!(length > 0 && offset < SIZE && length as u64 <= SIZE - offset);
}

impl ServedFunction for ServedRegisters {
    fn region_size(&self, region: u32) -> u64 {
        if [0, CONFIG_REGION].contains(&region) { SIZE } else { 0 }
    }
    fn vectors(&self, kind: u32) -> u32 {
        if kind == 2 { VECTORS } else { 0 }
    }
    fn read(&mut self, region: u32, offset: u64, into: &mut [u8]) {
        assert!(self.region_size(region) > 0);
        check(offset, into.len());
    }
    fn write(&mut self, region: u32, offset: u64, from: &[u8]) {
        assert!(self.region_size(region) > 0);
        check(offset, from.len());
    }
    fn connect(&mut self, kind: u32, start: u32, files: Vec<Option<File>>) -> Result<(), VfioRefusal> {
        assert!(start + files.len() as u32 <= self.vectors(kind));
        Ok(())
    }
    fn disconnect(&mut self, _: u32) {}
    fn raise(&mut self, kind: u32, vectors: std::ops::Range<u32>) {
        assert!(vectors.end <= self.vectors(kind));
    }
    fn mask(&mut self, _: bool) {}
    fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal> {
        let (last, is_free) = (address + (map.size - 1), self.memory.place(address).is_none());
        let mapped = self.memory.map(address, map);
        assert!(mapped.is_err() || is_free && self.memory.place(last).is_some());
        mapped
    }
    fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), VfioRefusal> {
        let Some((address, size)) = range else {
            self.memory.clear();
            return Ok(());
        };
        self.memory.unmap(address, size)?;
        assert!(self.memory.place(address).is_none() && self.memory.place(address + (size - 1)).is_none());
        Ok(())
    }
    fn reset(&mut self) {}
}

/// Tests an input: messages, one after the other.
pub fn run(bytes: &[u8]) {
    let (mut function, mut rest) = (ServedRegisters::default(), bytes);
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER>() {
        let Ok(header) = VfioHeader::parse(head) else { return };
        let size = header.size as usize - HEADER;
        assert!(size <= MOST_BODY);
        let Some((body, next)) = behind.split_at_checked(size) else { return };
        let outcome = VfioRequest::parse(header.command, body)
            .and_then(|request| answer(&mut function, &request, body, VecDeque::new()));
        assert!(header.answer(&outcome).len() <= HEADER + MOST_BODY);
        rest = next;
    }
}
