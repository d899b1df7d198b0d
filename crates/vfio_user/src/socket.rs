//! Messages with file descriptors over a socket.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, IoSliceMut, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, recvmsg};

use crate::request::{HEADER, MOST_FILES, VfioHeader, VfioRequest};
use crate::serve::{ServedFunction, answer};

/// How long a client may leave its answers unread before it is given up.
const PATIENCE: Duration = Duration::from_secs(5);

/// A whole message.
#[derive(Debug)]
pub struct VfioMessage {
    /// Its header.
    pub header: VfioHeader,
    /// What follows the header.
    pub body: Vec<u8>,
    /// Files that came with it.
    pub files: VecDeque<File>,
}

/// A client's connection.
#[derive(Debug)]
pub struct VfioSocket {
    stream: UnixStream,
    /// The message that is arriving.
    head: [u8; HEADER],
    body: Vec<u8>,
    got: usize,
    files: VecDeque<File>,
    /// The client has agreed on a version.
    greeted: bool,
    /// How often the client was asked whether it has done all before, and has not answered.
    asked: u32,
}

impl AsFd for VfioSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl VfioSocket {
    /// A client that has connected.
    ///
    /// # Errors
    /// If the system refuses to limit the time of writes.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_write_timeout(Some(PATIENCE))?;
        let head = [0; HEADER];
        Ok(Self { stream, head, body: Vec::new(), got: 0, files: VecDeque::new(), greeted: false, asked: 0 })
    }

    /// The next message, if all of it has arrived; does not wait.
    ///
    /// # Errors
    /// If the client is gone ([`io::ErrorKind::UnexpectedEof`]) or what it sends is no message
    /// ([`io::ErrorKind::InvalidData`]).
    pub fn receive(&mut self) -> io::Result<Option<VfioMessage>> {
        loop {
            if self.got >= HEADER {
                let header = VfioHeader::parse(&self.head)
                    .map_err(|told| io::Error::new(io::ErrorKind::InvalidData, told))?;
                let bytes = header.size as usize - HEADER;
                if self.got - HEADER == bytes {
                    self.got = 0;
                    if header.is_answer() {
                        self.asked = self.asked.checked_sub(1).ok_or_else(|| {
                            io::Error::new(io::ErrorKind::InvalidData, "an answer to no question")
                        })?;
                        self.body.clear();
                        continue;
                    }
                    let (body, files) = (std::mem::take(&mut self.body), std::mem::take(&mut self.files));
                    return Ok(Some(VfioMessage { header, body, files }));
                }
                self.body.resize(bytes, 0);
            }
            // Never more than one message at a time, so that files belong to the message that they came with.
            let into = match self.got.checked_sub(HEADER) {
                None => &mut self.head[self.got..],
                Some(done) => &mut self.body[done..],
            };
            let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FILES))];
            let mut ancillary = RecvAncillaryBuffer::new(&mut space);
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            match recvmsg(&self.stream, &mut [IoSliceMut::new(into)], &mut ancillary, flags) {
                Ok(received) if received.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                // The system drops what this process cannot open.
                Ok(received) if received.flags.contains(ReturnFlags::CTRUNC) => {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "its files cannot be opened: too many are; raise the limit (ulimit -n)",
                    ));
                }
                Ok(received) => self.got += received.bytes,
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(wrong) => return Err(wrong.into()),
            }
            for message in ancillary.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    self.files.extend(rights.map(File::from));
                }
            }
            if self.files.len() > MOST_FILES {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "too many files in a message"));
            }
        }
    }

    /// Asks for an answer that the client gives when it has done all that it was told before, interrupts included:
    /// a read of its memory without an address, which it refuses.
    ///
    /// # Errors
    /// If the client is gone.
    pub fn ask(&mut self) -> io::Result<()> {
        self.asked += 1;
        self.stream.write_all(&VfioHeader::question())
    }

    /// Whether the client has not answered every [`ask`](Self::ask); answers are taken by [`receive`](Self::receive).
    pub fn is_asked(&self) -> bool {
        self.asked > 0
    }

    /// Does what a message asks, and answers it.
    ///
    /// # Errors
    /// If the client is gone, or does not read its answers.
    pub fn serve(&mut self, function: &mut dyn ServedFunction, message: VfioMessage) -> io::Result<()> {
        let VfioMessage { header, body, files } = message;
        let outcome = VfioRequest::parse(header.command, &body).and_then(|request| {
            let greets = matches!(request, VfioRequest::Version { .. });
            if greets == self.greeted {
                return Err(crate::VfioRefusal::Invalid);
            }
            let told = answer(function, &request, &body, files)?;
            self.greeted = true;
            Ok(told)
        });
        match header.wants_answer() {
            true => self.stream.write_all(&header.answer(&outcome)),
            false => Ok(()),
        }
    }
}
