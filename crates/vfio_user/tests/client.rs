//! The protocol from the client's side: a small client over a socket pair, as a virtual machine monitor speaks.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;

use proptest::prelude::*;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use vfio_user::request::{CONFIG_REGION, MOST_BODY};
use vfio_user::{ClientMemory, DmaMap, ServedFunction, VfioRefusal, VfioRequest, VfioSocket, answer};

/// A function with 4 KiB of registers, 4 vectors of MSI-X, and DMA that tests start.
#[derive(Default)]
struct Card {
    bar: Vec<u8>,
    memory: ClientMemory,
    vectors: Vec<Option<File>>,
    resets: u32,
}

impl Card {
    fn new() -> Self {
        Self { bar: vec![0; 4096], ..Self::default() }
    }
}

impl ServedFunction for Card {
    fn region_size(&self, region: u32) -> u64 {
        if region == 0 || region == CONFIG_REGION { 4096 } else { 0 }
    }
    fn vectors(&self, kind: u32) -> u32 {
        if kind == 2 { 4 } else { 0 }
    }
    fn read(&mut self, _: u32, offset: u64, into: &mut [u8]) {
        into.copy_from_slice(&self.bar[offset as usize..offset as usize + into.len()]);
    }
    fn write(&mut self, _: u32, offset: u64, from: &[u8]) {
        self.bar[offset as usize..offset as usize + from.len()].copy_from_slice(from);
    }
    fn connect(&mut self, _: u32, start: u32, files: Vec<Option<File>>) -> Result<(), VfioRefusal> {
        self.vectors.resize_with(4, || None);
        for (own, file) in self.vectors[start as usize..].iter_mut().zip(files) {
            *own = file;
        }
        Ok(())
    }
    fn disconnect(&mut self, _: u32) {
        self.vectors.clear();
    }
    fn raise(&mut self, _: u32, vectors: std::ops::Range<u32>) {
        for vector in vectors {
            if let Some(Some(file)) = self.vectors.get_mut(vector as usize) {
                file.write_all(&1u64.to_ne_bytes()).unwrap();
            }
        }
    }
    fn mask(&mut self, _: bool) {}
    fn map(&mut self, address: u64, map: DmaMap) -> Result<(), VfioRefusal> {
        self.memory.map(address, map)
    }
    fn unmap(&mut self, range: Option<(u64, u64)>) -> Result<(), VfioRefusal> {
        match range {
            Some((address, size)) => self.memory.unmap(address, size),
            None => {
                self.memory.clear();
                Ok(())
            }
        }
    }
    fn reset(&mut self) {
        self.resets += 1;
    }
}

/// The client's end of a connection, with the served card at the other.
struct Client {
    stream: UnixStream,
    server: VfioSocket,
    card: Card,
    next: u16,
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

fn longs(longs: &[u64]) -> Vec<u8> {
    longs.iter().flat_map(|long| long.to_le_bytes()).collect()
}

impl Client {
    fn new() -> Self {
        let (stream, server) = UnixStream::pair().unwrap();
        Self { stream, server: VfioSocket::new(server).unwrap(), card: Card::new(), next: 0 }
    }

    /// After the greeting.
    fn greeted() -> Self {
        let mut client = Self::new();
        let told = client.ask(1, &[&words(&[0])[..], b"{}\0"].concat(), &[]).unwrap();
        assert!(String::from_utf8_lossy(&told[4..]).contains("max_data_xfer_size"));
        client
    }

    fn send(&mut self, bytes: &[u8], files: &[BorrowedFd<'_>]) {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(32))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !files.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(files)));
        }
        let sent = sendmsg(&self.stream, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::empty()).unwrap();
        self.stream.write_all(&bytes[sent..]).unwrap();
    }

    /// Lets the server answer everything that has arrived.
    fn serve(&mut self) -> io::Result<()> {
        while let Some(message) = self.server.receive()? {
            self.server.serve(&mut self.card, message)?;
        }
        Ok(())
    }

    /// Asks, and returns the answer's body or its error number.
    fn ask(&mut self, command: u16, body: &[u8], files: &[BorrowedFd<'_>]) -> Result<Vec<u8>, u32> {
        self.next += 1;
        let ids = u32::from(self.next) | u32::from(command) << 16;
        let head = words(&[ids, 16 + body.len() as u32, 0, 0]);
        self.send(&[&head[..], body].concat(), files);
        self.serve().unwrap();
        let mut head = [0; 16];
        self.stream.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        assert_eq!((word(0), word(8) & 0xf), (ids, 1), "it answers this request");
        let mut body = vec![0; word(4) as usize - 16];
        self.stream.read_exact(&mut body).unwrap();
        if word(8) & 0x20 != 0 { Err(word(12)) } else { Ok(body) }
    }

    fn write(&mut self, region: u32, offset: u64, data: &[u8]) -> Result<Vec<u8>, u32> {
        let head = [longs(&[offset]), words(&[region, data.len() as u32])].concat();
        self.ask(10, &[&head[..], data].concat(), &[])
    }

    fn read(&mut self, region: u32, offset: u64, count: u32) -> Result<Vec<u8>, u32> {
        let asked = [longs(&[offset]), words(&[region, count])].concat();
        self.ask(9, &asked, &[]).map(|told| told[16..].to_vec())
    }
}

fn file(bytes: u64) -> File {
    let memory = rustix::fs::memfd_create("guest", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let memory = File::from(memory);
    memory.set_len(bytes).unwrap();
    memory
}

fn map(address: u64, size: u64, offset: u64, flags: u32) -> Vec<u8> {
    [words(&[32, flags]), longs(&[offset, address, size])].concat()
}

#[test]
fn regions_are_told_read_and_written() {
    let mut client = Client::greeted();
    assert_eq!(client.ask(4, &words(&[16, 0, 0, 0]), &[]), Ok(words(&[16, 3, 9, 5])));
    let told = client.ask(5, &words(&[32, 0, 0, 0, 0, 0, 0, 0]), &[]).unwrap();
    assert_eq!(told, [words(&[32, 3, 0, 0]), longs(&[4096, 0])].concat());
    assert_eq!(client.ask(5, &words(&[32, 0, 9, 0, 0, 0, 0, 0]), &[]), Err(22), "there are nine regions");
    client.write(0, 8, &[1, 2, 3, 4]).unwrap();
    assert_eq!(client.read(0, 6, 8), Ok(vec![0, 0, 1, 2, 3, 4, 0, 0]));
    assert_eq!(client.read(0, 4095, 1), Ok(vec![0]));
    for (region, offset, count) in [(0, 4095, 2), (0, u64::MAX, 4), (1, 0, 1), (0, 0, 0), (8, 0, 4)] {
        assert_eq!(client.read(region, offset, count), Err(22), "{region} {offset} {count}");
    }
    let many = [longs(&[2, 16]), words(&[0, 2]), longs(&[0xbbaa, 20]), words(&[0, 8]), longs(&[7])].concat();
    client.ask(15, &many, &[]).unwrap();
    assert_eq!(client.read(0, 16, 5), Ok(vec![0xaa, 0xbb, 0, 0, 7]));
    assert_eq!(client.ask(15, &many[..40], &[]), Err(22), "it says two");
    assert_eq!(client.ask(6, &words(&[16, 0, 0, 0]), &[]), Err(95), "accesses by eventfds");
    client.ask(13, &[], &[]).unwrap();
    assert_eq!(client.card.resets, 1);
}

#[test]
fn memory_is_reached_by_its_files() {
    let mut client = Client::greeted();
    let (first, second) = (file(0x3000), file(0x1000));
    client.ask(2, &map(0x10_0000, 0x2000, 0x1000, 3), &[first.as_fd()]).unwrap();
    client.ask(2, &map(0x10_2000, 0x1000, 0, 1), &[second.as_fd()]).unwrap();
    assert_eq!(client.ask(2, &map(0x10_1000, 0x1000, 0, 3), &[second.as_fd()]), Err(17));
    assert_eq!(client.ask(2, &map(u64::MAX, 2, 0, 3), &[second.as_fd()]), Err(22), "it has no end");
    assert_eq!(client.ask(2, &map(0, 0, 0, 3), &[second.as_fd()]), Err(22));
    second.write_all_at(b"over the end", 0).unwrap();
    assert!(client.card.memory.write(0x10_1ffe, b"xy"));
    let mut bytes = [0; 6];
    assert!(client.card.memory.read(0x10_1ffe, &mut bytes), "an access may be of two mappings");
    assert_eq!(&bytes, b"xyover");
    first.read_exact_at(&mut bytes[..2], 0x2ffe).unwrap();
    assert_eq!(&bytes[..2], b"xy");
    assert!(!client.card.memory.write(0x10_2000, b"no"), "it may only be read");
    assert!(
        !client.card.memory.read(0x10_2ffe, &mut [0; 4]) && !client.card.memory.read(0xf_ffff, &mut [0; 1])
    );
    first.set_len(0x1000).unwrap();
    assert!(!client.card.memory.read(0x10_0000, &mut [0; 4]), "the file has become shorter");
    let unmap = |flags, address, size| [words(&[24, flags]), longs(&[address, size])].concat();
    assert_eq!(client.ask(3, &unmap(0, 0x10_0000, 0x1000), &[]), Err(22), "not a part of one");
    assert_eq!(client.ask(3, &unmap(0, 0x10_0000, 0x2000), &[]), Ok(unmap(0, 0x10_0000, 0x2000)));
    assert!(client.card.memory.place(0x10_0000).is_none() && client.card.memory.place(0x10_2000).is_some());
    client.ask(3, &unmap(2, 0, 0), &[]).unwrap();
    assert!(client.card.memory.place(0x10_2000).is_none());
}

#[test]
fn vectors_are_told_by_eventfds() {
    let mut client = Client::greeted();
    assert_eq!(client.ask(7, &words(&[16, 0, 2, 0]), &[]).unwrap()[12..], 4u32.to_le_bytes());
    let event = File::from(rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap());
    let files = [event.as_fd(), event.as_fd()];
    assert_eq!(client.ask(8, &words(&[20, 0x24, 2, 3, 2]), &files), Err(22), "there are four");
    assert_eq!(client.ask(8, &words(&[20, 0x24, 2, 1, 2]), &files[..1]), Err(22), "a file for each, or none");
    client.ask(8, &words(&[20, 0x24, 2, 1, 2]), &files).unwrap();
    client.ask(8, &words(&[20, 0x21, 2, 0, 4]), &[]).unwrap();
    let mut count = [0; 8];
    (&event).read_exact(&mut count).unwrap();
    assert_eq!(u64::from_ne_bytes(count), 2, "both vectors told it");
    client.ask(8, &words(&[20, 0x21, 2, 0, 0]), &[]).unwrap();
    assert!(client.card.vectors.is_empty());
}

#[test]
fn a_stranger_is_sent_away() {
    let mut client = Client::new();
    assert_eq!(client.ask(4, &words(&[16, 0, 0, 0]), &[]), Err(22), "it has not greeted");
    assert_eq!(client.ask(1, &words(&[1]), &[]), Err(95), "another protocol");
    client.ask(1, &words(&[0]), &[]).unwrap();
    assert_eq!(client.ask(1, &words(&[0]), &[]), Err(22), "once");
    for (size, flags) in [(15, 0), (16 + MOST_BODY as u32 + 1, 0), (16, 1), (u32::MAX, 0)] {
        let mut client = Client::greeted();
        client.send(&words(&[0, size, flags, 0]), &[]);
        assert_eq!(client.serve().unwrap_err().kind(), io::ErrorKind::InvalidData, "{size} {flags}");
    }
    let mut client = Client::greeted();
    let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let (head, body) = (words(&[13 << 16, 17, 0, 0]), [0]);
    client.send(&head, &[event.as_fd(); 17]);
    client.send(&body, &[]);
    assert!(client.serve().is_err(), "sixteen files a message");
}

#[test]
fn messages_arrive_in_pieces_and_without_a_wish_for_an_answer() {
    let mut client = Client::greeted();
    let body = [longs(&[0]), words(&[0, 4]), vec![9; 4]].concat();
    let message = [words(&[10 << 16, 36, 1 << 4, 0]), body].concat();
    for byte in &message {
        client.send(std::slice::from_ref(byte), &[]);
        client.serve().unwrap();
    }
    assert_eq!(client.read(0, 0, 4), Ok(vec![9; 4]), "and the next answer is this read's");
    drop(std::mem::replace(&mut client.stream, UnixStream::pair().unwrap().0));
    assert_eq!(client.serve().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
}

#[test]
fn each_question_has_its_answer_however_late() {
    let mut client = Client::greeted();
    client.server.ask().unwrap();
    client.server.ask().unwrap();
    let mut questions = [0; 2 * 16];
    client.stream.read_exact(&mut questions).unwrap();
    let answer = words(&[11 << 16, 16, 0x21, 22]);
    for is_asked in [true, false] {
        client.send(&answer, &[]);
        client.serve().unwrap();
        assert_eq!(client.server.is_asked(), is_asked);
    }
    client.send(&answer, &[]);
    assert_eq!(client.serve().unwrap_err().kind(), io::ErrorKind::InvalidData, "nobody has asked");
}

proptest! {
    #[test]
    fn whatever_is_asked_is_answered_or_refused(command in 0u16..20, body in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut card = Card::new();
        if let Ok(request) = VfioRequest::parse(command, &body) {
            let _ = answer(&mut card, &request, &body, VecDeque::new());
        }
    }
}
