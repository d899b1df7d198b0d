//! A QEMU's monitor (QMP: QEMU, docs/interop/qmp-spec.rst), by which a guest is asked to let a function go, or is given one.
//!
//! Messages are lines of JSON. QEMU connects when it starts and greets; after the handshake it answers commands in their order, and tells
//! events in between. Nothing here waits: QEMU answers a command that adds a device only after the device's socket was served.

use std::collections::VecDeque;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Largest message of a QEMU; those that come here have some hundred bytes.
const MOST_MESSAGE: usize = 1 << 16;
/// How long a QEMU may take to answer. A guest's own part is not in it.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a monitor is asked to do, each with the function's number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MonitorCommand {
    /// The handshake.
    Greet,
    /// The guest is asked to let a function go.
    Remove(usize),
    /// The guest is given a function.
    Add(usize),
}

/// What a monitor tells.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MonitorNews {
    /// An answer: done, or why not.
    Answered(MonitorCommand, Result<(), String>),
    /// A device, by its ID, is no more.
    Deleted(String),
    /// The guest does not let a device, by its ID, go.
    Kept(String),
}

/// A message of QEMU's.
#[derive(PartialEq, Eq, Debug)]
enum MonitorMessage {
    Greeting,
    Answer(Result<(), String>),
    Event(Option<MonitorNews>),
}

fn invalid(told: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, told)
}

/// Reads a message.
fn message(line: &[u8]) -> io::Result<MonitorMessage> {
    let value: Value = serde_json::from_slice(line).map_err(|_| invalid("what it says is no JSON"))?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    if let Some(event) = value.get("event") {
        // A device without an ID, or a part of one, is none of ours.
        let device = value["data"]["device"].as_str().map(str::to_owned);
        return Ok(MonitorMessage::Event(match event.as_str() {
            Some("DEVICE_DELETED") => device.map(MonitorNews::Deleted),
            Some("DEVICE_UNPLUG_GUEST_ERROR") => device.map(MonitorNews::Kept),
            _ => None,
        }));
    }
    match (value.get("QMP"), value.get("return"), value.get("error")) {
        (Some(_), ..) => Ok(MonitorMessage::Greeting),
        (None, Some(_), _) => Ok(MonitorMessage::Answer(Ok(()))),
        (None, None, Some(error)) => Ok(MonitorMessage::Answer(Err(text(&error["desc"])))),
        (None, None, None) => Err(invalid("what it says is no message of QMP")),
    }
}

/// The connection of a QEMU's monitor.
#[derive(Debug)]
pub struct GuestMonitor {
    stream: UnixStream,
    /// The message that is arriving.
    line: Vec<u8>,
    has_greeted: bool,
    is_ready: bool,
    /// Commands without an answer, and since when.
    unanswered: VecDeque<(MonitorCommand, Instant)>,
}

impl AsFd for GuestMonitor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl GuestMonitor {
    /// Of a QEMU that has connected.
    ///
    /// # Errors
    /// If the system does not let it be read without waiting.
    pub fn new(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            line: Vec::new(),
            has_greeted: false,
            is_ready: false,
            unanswered: VecDeque::new(),
        })
    }

    /// Whether it takes commands.
    pub const fn is_ready(&self) -> bool {
        self.is_ready
    }

    /// Whether answers are awaited.
    pub fn is_asked(&self) -> bool {
        !self.unanswered.is_empty()
    }

    /// Asks the guest to let the device with this ID go. That it has is told by [`MonitorNews::Deleted`].
    ///
    /// # Errors
    /// If QEMU is gone, or does not read.
    pub fn remove(&mut self, number: usize, id: &str) -> io::Result<()> {
        self.send(MonitorCommand::Remove(number), "device_del", json!({ "id": id }))
    }

    /// Gives the guest a device, whose properties are those of QEMU's `-device`.
    ///
    /// # Errors
    /// If QEMU is gone, or does not read.
    pub fn add(&mut self, number: usize, device: Value) -> io::Result<()> {
        self.send(MonitorCommand::Add(number), "device_add", device)
    }

    fn send(&mut self, command: MonitorCommand, execute: &str, arguments: Value) -> io::Result<()> {
        let mut line = json!({ "execute": execute, "arguments": arguments }).to_string();
        line.push('\n');
        // Some hundred bytes: where they have no room, nobody reads.
        self.stream.write_all(line.as_bytes())?;
        self.unanswered.push_back((command, Instant::now()));
        Ok(())
    }

    /// What it has told; does not wait.
    ///
    /// # Errors
    /// If QEMU is gone ([`io::ErrorKind::UnexpectedEof`]), does not answer ([`io::ErrorKind::TimedOut`]), or what it says is no QMP
    /// ([`io::ErrorKind::InvalidData`]).
    pub fn receive(&mut self) -> io::Result<Vec<MonitorNews>> {
        let mut news = Vec::new();
        let mut bytes = [0; 4096];
        // One that never ends is not heard out.
        for _ in 0..=MOST_MESSAGE / bytes.len() {
            let got = match self.stream.read(&mut bytes) {
                // What was told before the end counts first: the end is found again.
                Ok(0) if !news.is_empty() => return Ok(news),
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(got) => got,
                Err(none) if none.kind() == io::ErrorKind::WouldBlock => break,
                Err(again) if again.kind() == io::ErrorKind::Interrupted => continue,
                Err(wrong) => return Err(wrong),
            };
            for part in bytes[..got].split_inclusive(|&byte| byte == b'\n') {
                self.line.extend(part);
                if self.line.len() > MOST_MESSAGE {
                    return Err(invalid("a message is too long"));
                }
                if part.ends_with(b"\n") {
                    let line = std::mem::take(&mut self.line);
                    news.extend(self.hear(&line)?);
                }
            }
        }
        match self.unanswered.front() {
            Some((_, since)) if since.elapsed() > PATIENCE => {
                Err(io::Error::new(io::ErrorKind::TimedOut, "it does not answer"))
            }
            _ => Ok(news),
        }
    }

    fn hear(&mut self, line: &[u8]) -> io::Result<Option<MonitorNews>> {
        match message(line)? {
            MonitorMessage::Greeting if !self.has_greeted => {
                self.has_greeted = true;
                self.send(MonitorCommand::Greet, "qmp_capabilities", json!({}))?;
                Ok(None)
            }
            MonitorMessage::Greeting => Err(invalid("it greets twice")),
            MonitorMessage::Answer(outcome) => {
                let (command, _) =
                    self.unanswered.pop_front().ok_or_else(|| invalid("an answer to no command"))?;
                if command == MonitorCommand::Greet {
                    outcome.map_err(io::Error::other)?;
                    self.is_ready = true;
                    return Ok(None);
                }
                Ok(Some(MonitorNews::Answered(command, outcome)))
            }
            MonitorMessage::Event(news) => Ok(news),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    const GREETING: &str =
        r#"{"QMP": {"version": {"qemu": {"micro": 0, "minor": 1, "major": 11}}, "capabilities": ["oob"]}}"#;

    /// A monitor and its QEMU.
    fn pair() -> (GuestMonitor, UnixStream) {
        let (own, qemu) = UnixStream::pair().unwrap();
        (GuestMonitor::new(own).unwrap(), qemu)
    }

    fn say(qemu: &mut UnixStream, line: &str) {
        qemu.write_all(line.as_bytes()).and_then(|()| qemu.write_all(b"\r\n")).unwrap();
    }

    fn heard(qemu: &UnixStream) -> Value {
        let mut line = String::new();
        BufReader::new(qemu).read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }

    fn ready() -> (GuestMonitor, UnixStream) {
        let (mut monitor, mut qemu) = pair();
        say(&mut qemu, GREETING);
        assert_eq!(monitor.receive().unwrap(), []);
        assert!(!monitor.is_ready());
        assert_eq!(heard(&qemu)["execute"], "qmp_capabilities");
        say(&mut qemu, r#"{"return": {}}"#);
        assert_eq!(monitor.receive().unwrap(), []);
        assert!(monitor.is_ready() && !monitor.is_asked());
        (monitor, qemu)
    }

    #[test]
    fn commands_are_answered_in_their_order_with_events_in_between() {
        let (mut monitor, mut qemu) = ready();
        monitor.remove(3, "function1").unwrap();
        assert_eq!(heard(&qemu), json!({ "execute": "device_del", "arguments": { "id": "function1" } }));
        monitor.add(4, json!({ "driver": "vfio-user-pci" })).unwrap();
        assert_eq!(heard(&qemu)["arguments"]["driver"], "vfio-user-pci");
        say(&mut qemu, r#"{"return": {}}"#);
        say(
            &mut qemu,
            r#"{"timestamp": {"seconds": 1}, "event": "DEVICE_DELETED", "data": {"path": "/machine/x"}}"#,
        );
        say(
            &mut qemu,
            r#"{"event": "DEVICE_DELETED", "data": {"device": "function1", "path": "/machine/y"}}"#,
        );
        say(&mut qemu, r#"{"event": "DEVICE_UNPLUG_GUEST_ERROR", "data": {"device": "function2"}}"#);
        say(&mut qemu, r#"{"event": "STOP"}"#);
        say(&mut qemu, r#"{"error": {"class": "GenericError", "desc": "no such bus"}}"#);
        let news = [
            MonitorNews::Answered(MonitorCommand::Remove(3), Ok(())),
            MonitorNews::Deleted("function1".to_owned()),
            MonitorNews::Kept("function2".to_owned()),
            MonitorNews::Answered(MonitorCommand::Add(4), Err("no such bus".to_owned())),
        ];
        assert_eq!(monitor.receive().unwrap(), news);
        // A message in pieces, and then the end.
        qemu.write_all(br#"{"event": "DEVICE_DELETED", "#).unwrap();
        assert_eq!(monitor.receive().unwrap(), []);
        say(&mut qemu, r#""data": {"device": "function3"}}"#);
        drop(qemu);
        assert_eq!(monitor.receive().unwrap(), [MonitorNews::Deleted("function3".to_owned())]);
        assert_eq!(monitor.receive().unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_no_monitor_is_told() {
        let told = |lines: &[&str]| {
            let (mut monitor, mut qemu) = pair();
            lines.iter().for_each(|line| say(&mut qemu, line));
            monitor.receive().unwrap_err().to_string()
        };
        assert_eq!(told(&["hello"]), "what it says is no JSON");
        assert_eq!(told(&["[1]"]), "what it says is no message of QMP");
        assert_eq!(told(&[r#"{"return": {}}"#]), "an answer to no command");
        assert_eq!(told(&[GREETING, GREETING]), "it greets twice");
        assert_eq!(told(&[GREETING, r#"{"error": {"desc": "no"}}"#]), "no");
        assert_eq!(told(&[&"[".repeat(1 << 14)]), "what it says is no JSON", "however deep");
        let (mut monitor, mut qemu) = pair();
        let endless = std::thread::spawn(move || while qemu.write_all(&[b' '; 1024]).is_ok() {});
        let wrong = loop {
            if let Err(wrong) = monitor.receive() {
                break wrong;
            }
        };
        assert_eq!(wrong.to_string(), "a message is too long");
        drop(monitor);
        endless.join().unwrap();
    }

    #[test]
    fn a_qemu_that_does_not_answer_is_given_up() {
        let (mut monitor, _qemu) = ready();
        monitor.remove(0, "function1").unwrap();
        assert_eq!(monitor.receive().unwrap(), []);
        let late = PATIENCE + Duration::from_secs(1);
        monitor.unanswered[0].1 = Instant::now().checked_sub(late).expect("a machine that is up for a while");
        assert_eq!(monitor.receive().unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
