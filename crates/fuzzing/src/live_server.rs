//! A live host's server in front of clients that send anything: functions' clients, a QEMU's monitor and its plugin's clock. It lives on,
//! and serves the next client as the first.
//!
//! An input is a list of parts: a byte that says to whom, two bytes with a length, and as many bytes.

use std::io::{self, IoSlice, Read as _, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use live::server::LiveEvent;
use live::{LiveClock, ServeOptions, serve};
use machine::{ComputerScenario, ComputerSetup, Doc, Library};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Most parts of an input.
const MOST_PARTS: usize = 64;
/// How long the server may take for an input: more is a hang.
const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes of memory that a client maps.
const MEMORY: u64 = 1 << 20;

const SCENARIO: &str = r#"
name = "fuzzed"
summary = "a drive for anybody"
[[host]]
name = "a"
machine = "dell-t430"
live = true
[[host.device]]
slot = "slot"
drive = "optane-900p"
"#;

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// A client of the drive.
struct DriveClient(UnixStream);

impl DriveClient {
    fn new(socket: &Path) -> io::Result<Self> {
        let stream = UnixStream::connect(socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self(stream))
    }

    /// Sends bytes with files, and takes what has been answered meanwhile.
    fn say(&mut self, bytes: &[u8], files: &[OwnedFd]) -> io::Result<()> {
        let fds: Vec<_> = files.iter().map(|file| file.as_fd()).collect();
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(&self.0, &[IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL)?;
        self.0.set_nonblocking(true)?;
        let mut taken = [0; 4096];
        while self.0.read(&mut taken).is_ok_and(|got| got > 0) {}
        self.0.set_nonblocking(false)
    }

    /// No more is said: the server reads all of it, and ends the connection.
    fn end(mut self) {
        let _ = self.0.shutdown(std::net::Shutdown::Write);
        let begun = Instant::now();
        let mut taken = [0; 4096];
        while matches!(self.0.read(&mut taken), Ok(got) if got > 0) {}
        assert!(begun.elapsed() < PATIENCE, "the server hangs");
    }

    fn ask(&mut self, command: u32, body: &[u8]) -> io::Result<Vec<u8>> {
        let head = words(&[command << 16, 16 + body.len() as u32, 0, 0]);
        self.0.write_all(&[&head[..], body].concat())?;
        let mut head = [0; 16];
        self.0.read_exact(&mut head)?;
        let size = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let mut body = vec![0; (size as usize).saturating_sub(head.len())];
        self.0.read_exact(&mut body)?;
        Ok(body)
    }
}

fn memory() -> io::Result<OwnedFd> {
    let memory = memfd_create("fuzzed", MemfdFlags::CLOEXEC)?;
    ftruncate(&memory, MEMORY)?;
    Ok(memory)
}

/// What an input's parts do to a server whose sockets are in a folder.
fn attack(folder: &Path, input: &[u8], steps: bool) -> io::Result<()> {
    let socket = folder.join("a-drive0.sock");
    let mut client = DriveClient::new(&socket)?;
    let (mut monitor, mut plugin) = (None, None);
    let page = folder.join("a.page");
    let mut rest = input;
    for _ in 0..MOST_PARTS {
        let Some((&[to, low, high], behind)) = rest.split_first_chunk() else { break };
        let length = usize::from(u16::from_le_bytes([low, high])).min(behind.len());
        let (bytes, behind) = behind.split_at(length);
        rest = behind;
        // Who is turned away is away: the rest is for the next one.
        let _ = match to % 8 {
            0 | 1 => client.say(bytes, &[]),
            2 => client.say(bytes, &[memory()?]),
            3 => {
                let files = (0..to / 8 % 16).map(|_| eventfd(0, EventfdFlags::CLOEXEC));
                client.say(bytes, &files.collect::<Result<Vec<_>, _>>()?)
            }
            4 => {
                client.end();
                client = DriveClient::new(&socket)?;
                client.ask(1, &words(&[0])).map(drop)
            }
            5 => match &mut monitor {
                None => UnixStream::connect(folder.join("a.monitor")).map(|own| monitor = Some(own)),
                Some(monitor) => monitor.write_all(bytes),
            },
            // A plugin counts on, as a guest does; the last count that it tells is of its own choice.
            _ if steps => match &mut plugin {
                None => UnixStream::connect(folder.join("a.clock")).map(|own| plugin = Some(own)),
                Some(plugin) => {
                    let page = std::fs::File::options().read(true).write(true).open(&page)?;
                    page.write_all_at(&bytes[..bytes.len().min(16)], 0)?;
                    plugin.write_all(&bytes[bytes.len().min(16)..])
                }
            },
            _ => Ok(()),
        };
    }
    drop((monitor, plugin));
    client.end();
    Ok(())
}

/// The server serves another client.
fn is_well(folder: &Path) {
    let next = DriveClient::new(&folder.join("a-drive0.sock")).and_then(|mut client| {
        client.ask(1, &words(&[0]))?;
        let identity = client.ask(9, &words(&[0, 0, 7, 4]))?;
        let version = client.ask(9, &words(&[8, 0, 0, 4]))?;
        Ok((identity, version))
    });
    let (identity, version) = next.expect("the next client is served");
    assert_ne!(identity[16..], [0xff; 4], "the drive is there");
    assert_eq!(version[18..], [1, 0], "and is an NVMe drive");
}

fn setup() -> ComputerSetup {
    let built_in = Library::built_in();
    let doc = Doc::<ComputerScenario>::from_text(&built_in, "fuzzed.toml", SCENARIO);
    ComputerSetup::load(&built_in, &doc).expect("a scenario")
}

thread_local! {
    static SETUP: ComputerSetup = setup();
}

/// Tests an input; its first bit chooses the clock.
pub fn run(input: &[u8]) {
    let Some((&first, input)) = input.split_first() else { return };
    let steps = first & 1 == 1;
    let Ok(folder) = tempfile::tempdir() else { return };
    let clock = if steps { LiveClock::LockStep { shift: 0 } } else { LiveClock::Wall };
    let options = ServeOptions {
        sockets: folder.path().to_owned(),
        once: false,
        hot_plug: !steps,
        iommu: false,
        clock,
        combining: Vec::new(),
        record: None,
        recording: None,
    };
    let Ok((mut stop, stops)) = UnixStream::pair() else { return };
    thread::scope(|scope| {
        let mut attacker = None;
        let served = SETUP.with(|setup| {
            serve(setup, &options, stops.as_fd(), |event| {
                if let LiveEvent::Ready(_) = event {
                    let (folder, stop) = (folder.path().to_owned(), stop.try_clone());
                    let input = input.to_vec();
                    attacker = Some(scope.spawn(move || {
                        let done = std::panic::catch_unwind(|| {
                            let _ = attack(&folder, &input, steps);
                            is_well(&folder);
                        });
                        let _ = stop.and_then(|mut stop| stop.write_all(&[1]));
                        if done.is_err() {
                            // A server that hangs does not come back to say so.
                            thread::sleep(Duration::from_secs(5));
                            std::process::abort();
                        }
                        done
                    }));
                }
            })
        });
        served.expect("the server goes on to its end");
        let attacked = attacker.map(|attacker| attacker.join().and_then(|done| done));
        assert!(matches!(attacked, Some(Ok(()))), "a client was let down");
    });
    let _ = stop.write_all(&[]);
    let left = std::fs::read_dir(folder.path()).map_or(0, Iterator::count);
    assert_eq!(left, 0, "no socket or page stays behind");
}
