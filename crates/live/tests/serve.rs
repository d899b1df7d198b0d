//! Functions over their sockets, with a client of the test's own in place of QEMU.

use std::io::{BufRead, BufReader, IoSlice, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::thread;

use live::recording::{GuestRecording, RecordedStep, RecordingHead};
use live::replay::replay;
use live::server::LiveEvent;
use live::{LiveClock, LiveError, LiveOutcome, ServeOptions, serve};
use machine::{ComputerSetup, Library};
use nearfar::Experiment;
use nearfar::trace::{Decoded, Row, Span};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

fn scenario(path: &str) -> ComputerSetup {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    match Experiment::load(&Library::built_in(), path.to_str().unwrap(), "set", &[]) {
        Ok(Experiment::Computers(setup)) => *setup,
        _ => panic!("a scenario with computers"),
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}

struct Client(UnixStream);

impl Client {
    fn new(socket: &Path) -> Self {
        let mut client = Self(UnixStream::connect(socket).unwrap());
        client.ask(1, &words(&[0])).unwrap();
        client
    }

    fn ask(&mut self, command: u32, body: &[u8]) -> Result<Vec<u8>, u32> {
        self.ask_with(command, body, &[])
    }

    /// The same with a file.
    fn ask_with(&mut self, command: u32, body: &[u8], file: &[BorrowedFd<'_>]) -> Result<Vec<u8>, u32> {
        let head = words(&[command << 16, 16 + body.len() as u32, 0, 0]);
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        ancillary.push(SendAncillaryMessage::ScmRights(file));
        let bytes = [&head[..], body].concat();
        sendmsg(&self.0, &[IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
        let mut head = [0; 16];
        self.0.read_exact(&mut head).unwrap();
        let word = |at: usize| u32::from_le_bytes(head[at..at + 4].try_into().unwrap());
        let mut body = vec![0; word(4) as usize - 16];
        self.0.read_exact(&mut body).unwrap();
        if word(8) & 0x20 != 0 { Err(word(12)) } else { Ok(body) }
    }

    fn read(&mut self, region: u32, offset: u32, count: u32) -> Vec<u8> {
        self.ask(9, &words(&[offset, 0, region, count])).unwrap()[16..].to_vec()
    }

    fn write(&mut self, region: u32, offset: u32, value: u32) {
        self.ask(10, &words(&[offset, 0, region, 4, value])).unwrap();
    }
}

/// Sockets in a folder, for clients that come again, with a guest's own stores and no record.
fn options_in(folder: &Path, clock: LiveClock) -> ServeOptions {
    ServeOptions {
        sockets: folder.to_owned(),
        once: false,
        hot_plug: false,
        iommu: false,
        clock,
        combining: Vec::new(),
        record: None,
        recording: None,
    }
}

/// Serves a scenario in a folder while `act` is a client of its first function.
fn while_served(
    path: &str,
    folder: &Path,
    act: impl FnOnce(&Path) + Send + 'static,
) -> Result<(), LiveError> {
    let options = options_in(folder, LiveClock::Wall);
    while_told(path, &options, |_| {}, act).map(drop)
}

/// The same with options, and what happens.
fn while_told(
    path: &str,
    options: &ServeOptions,
    mut told: impl FnMut(&LiveEvent<'_>),
    act: impl FnOnce(&Path) + Send + 'static,
) -> Result<LiveOutcome, LiveError> {
    let setup = scenario(path);
    let (stop, stops) = UnixStream::pair().unwrap();
    let mut act = Some((act, stops));
    let mut client = None;
    let served = serve(&setup, options, stop.as_fd(), |event| {
        told(&event);
        if let LiveEvent::Ready(functions) = event {
            let socket: PathBuf = functions[0].socket.clone();
            client = act.take().map(|(act, mut stops)| {
                thread::spawn(move || {
                    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| act(&socket)));
                    stops.write_all(&[1]).unwrap();
                    done.unwrap();
                })
            });
        }
    });
    if let Some(client) = client {
        client.join().unwrap();
    }
    served
}

#[test]
fn a_client_reads_the_drive() {
    let folder = tempfile::tempdir().unwrap();
    while_served("tools/live/nvme.toml", folder.path(), |socket| {
        assert_eq!(socket.file_name().unwrap(), "a-drive0.sock");
        let mut client = Client::new(socket);
        assert_eq!(client.read(7, 8, 4)[1..], [2, 8, 1], "the class of NVMe controllers");
        let version = client.read(0, 8, 4);
        assert_eq!(version[2..], [1, 0], "NVMe 1.x: {version:?}");
    })
    .unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "no socket stays behind");
}

#[test]
fn what_a_guest_writes_to_its_own_bits_stays_with_it() {
    let folder = tempfile::tempdir().unwrap();
    while_served("tools/live/nvme.toml", folder.path(), |socket| {
        let mut client = Client::new(socket);
        let capabilities = client.read(0, 0, 8);
        client.write(7, 0x10, u32::MAX);
        client.write(7, 4, 0x406);
        assert_eq!(client.read(7, 4, 2), [6, 4]);
        assert_eq!(client.read(0, 0, 8), capabilities, "the function is where it was");
        drop(client);
        let mut next = Client::new(socket);
        assert_eq!(next.read(7, 4, 2), [0, 0], "as before the first one came");
        assert_eq!(next.read(0, 0, 8), capabilities);
    })
    .unwrap();
}

#[test]
fn a_line_is_told_again_until_its_cause_is_seen_to() {
    // Of set-irqs: kind 0, one vector; by a file, or masked and unmasked.
    let line = |flags: u32| words(&[20, flags, 0, 0, 1]);
    const UNMASK: u32 = 0x11;
    let folder = tempfile::tempdir().unwrap();
    while_served("tools/live/nvme.toml", folder.path(), move |socket| {
        let mut client = Client::new(socket);
        assert_eq!(client.read(7, 0x3d, 1), [1], "pin A");
        let memory = shared_memory(&mut client);
        let told = connect_line(&mut client);
        let count = || {
            let mut count = [0; 8];
            (&told).read_exact(&mut count).map_or(0, |()| u64::from_ne_bytes(count))
        };
        client.write(7, 4, 6);
        assert_eq!(count(), 0, "nothing is complete");
        identify(&mut client, &memory);
        while !is_pending(&mut client) {}
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(count(), 1);
        assert_eq!(client.read(7, 4, 2), [6, 0], "that it is masked meanwhile is the host's business");
        client.ask(8, &line(UNMASK)).unwrap();
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(count(), 1, "its cause is still there");
        client.write(0, 0x1004, 1);
        while is_pending(&mut client) {}
        client.ask(8, &line(UNMASK)).unwrap();
        // The guest's own mask.
        client.write(7, 4, 0x406);
        client.write(0, 0x1000, 2);
        while !is_pending(&mut client) {}
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(count(), 0, "masked by the guest");
        client.write(7, 4, 6);
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(count(), 1);
    })
    .unwrap();
}

/// Memory of a client, which its function may access from address 0 on.
fn shared_memory(client: &mut Client) -> std::fs::File {
    let memory = tempfile::tempfile().unwrap();
    memory.set_len(0x1_0000).unwrap();
    let map = [&words(&[32, 3])[..], &[0; 16], &0x1_0000u64.to_le_bytes()].concat();
    client.ask_with(2, &map, &[memory.as_fd()]).unwrap();
    memory
}

/// Starts the controller, with queues at 4096 and 8192, and a command that identifies it.
fn identify(client: &mut Client, memory: &std::fs::File) {
    let command = [&words(&[6, 0, 0, 0, 0, 0, 0x3000, 0, 0, 0, 1])[..], &[0; 20]].concat();
    memory.write_all_at(&command, 0x1000).unwrap();
    for (register, value) in [(0x24, 0x000f_000f), (0x28, 0x1000), (0x30, 0x2000), (0x14, 0x0046_0001)] {
        client.write(0, register, value);
    }
    while client.read(0, 0x1c, 1)[0] & 1 == 0 {}
    client.write(0, 0x1000, 1);
}

/// Connects the legacy interrupt.
fn connect_line(client: &mut Client) -> std::fs::File {
    let told = eventfd(0, EventfdFlags::NONBLOCK).unwrap();
    client.ask_with(8, &words(&[20, 0x24, 0, 0, 1]), &[told.as_fd()]).unwrap();
    told.into()
}

fn is_pending(client: &mut Client) -> bool {
    client.read(7, 6, 1)[0] & 8 != 0
}

#[test]
fn a_line_that_is_active_when_it_is_connected_is_told() {
    let folder = tempfile::tempdir().unwrap();
    while_served("tools/live/nvme.toml", folder.path(), |socket| {
        let mut client = Client::new(socket);
        let memory = shared_memory(&mut client);
        client.write(7, 4, 6);
        identify(&mut client, &memory);
        while !is_pending(&mut client) {}
        let mut told = connect_line(&mut client);
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(told.read(&mut [0; 8]).unwrap(), 8);
        // A reset of the function ends its cause, and what follows is told.
        client.ask(13, &[]).unwrap();
        client.ask(8, &words(&[20, 0x11, 0, 0, 1])).unwrap();
        assert!(!is_pending(&mut client));
        client.write(7, 4, 6);
        identify(&mut client, &memory);
        while !is_pending(&mut client) {}
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(told.read(&mut [0; 8]).unwrap(), 8);
    })
    .unwrap();
}

#[test]
fn what_a_client_had_turned_on_and_off_is_not_the_next_ones() {
    let folder = tempfile::tempdir().unwrap();
    while_served("tools/live/nvme.toml", folder.path(), |socket| {
        let mut first = Client::new(socket);
        let memory = shared_memory(&mut first);
        let _told = connect_line(&mut first);
        first.write(7, 4, 0x406);
        identify(&mut first, &memory);
        drop(first);
        let mut next = Client::new(socket);
        let memory = shared_memory(&mut next);
        assert_eq!((next.read(7, 4, 2), is_pending(&mut next)), (vec![0, 0], false));
        let mut told = connect_line(&mut next);
        // The controller starts without reading memory, and its command waits for bus mastering, which fails it.
        identify(&mut next, &memory);
        thread::sleep(std::time::Duration::from_millis(20));
        let mut completion = [0; 16];
        memory.read_exact_at(&mut completion, 0x2000).unwrap();
        assert_eq!(completion, [0; 16], "it is no bus master");
        next.write(0, 0x14, 0);
        next.write(7, 4, 6);
        identify(&mut next, &memory);
        while !is_pending(&mut next) {}
        thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(told.read(&mut [0; 8]).unwrap(), 8);
    })
    .unwrap();
}

#[test]
fn what_cannot_be_served_is_told_with_a_remedy() {
    let folder = tempfile::tempdir().unwrap();
    let nobody = while_served("scenarios/ping.toml", folder.path(), |_| {}).unwrap_err();
    assert!(nobody.to_string().contains("add `live = true`"), "{nobody}");
    let taken = std::os::unix::net::UnixListener::bind(folder.path().join("a-drive0.sock")).unwrap();
    let in_use = while_served("tools/live/nvme.toml", folder.path(), |_| {}).unwrap_err();
    assert!(in_use.to_string().contains("another server listens there"), "{in_use}");
    // Its socket stays, and takes nobody.
    drop(taken);
    while_served("tools/live/nvme.toml", folder.path(), |socket| drop(Client::new(socket))).unwrap();
}

/// A guest's clock, as QEMU's plugin keeps it.
struct Plugin {
    socket: UnixStream,
    page: std::fs::File,
}

impl Plugin {
    fn new(folder: &Path) -> Self {
        let page = std::fs::File::options().read(true).write(true).open(folder.join("a.page")).unwrap();
        Self { socket: UnixStream::connect(folder.join("a.clock")).unwrap(), page }
    }

    /// The guest has executed as many instructions. Returns how far it may go.
    fn stop_at(&mut self, count: u64) -> u64 {
        self.page.write_all_at(&count.to_ne_bytes(), 0).unwrap();
        self.socket.write_all(&count.to_ne_bytes()).unwrap();
        self.socket.read_exact(&mut [0; 8]).unwrap();
        self.limit()
    }

    fn limit(&self) -> u64 {
        let mut limit = [0; 8];
        self.page.read_exact_at(&mut limit, 8).unwrap();
        u64::from_ne_bytes(limit)
    }
}

#[test]
fn in_lock_step_a_read_takes_a_guest_as_long_as_the_device() {
    let folder = tempfile::tempdir().unwrap();
    let clock = LiveClock::LockStep { shift: 1 };
    let options = options_in(folder.path(), clock);
    let mut ended = Vec::new();
    let told = |event: &LiveEvent<'_>| {
        if let LiveEvent::Clocked(guest) = event {
            ended.push((*guest).clone());
        }
    };
    while_told("tools/live/nvme.toml", &options, told, |socket| {
        let mut plugin = Plugin::new(socket.parent().unwrap());
        let mut client = Client::new(socket);
        assert!(plugin.stop_at(10) > 10);
        // Bus mastering, then the version: the guest stops right after an access, whatever it was allowed before.
        client.write(7, 4, 6);
        assert!(plugin.stop_at(500) > 500);
        assert_eq!(client.read(0, 8, 4)[2..], [1, 0]);
        assert_eq!(plugin.limit(), 0);
        assert!(plugin.stop_at(1000) > 1000);
        // The function is reset for its next client before the server hears that the plugin has gone too.
        drop(client);
        thread::sleep(std::time::Duration::from_millis(50));
    })
    .unwrap();
    let [guest] = &ended[..] else { panic!("{ended:?}") };
    assert_eq!((guest.host, guest.instructions, guest.computed.as_ns_f64()), (0, 1000, 2000.0));
    // A read of a register passes a link of some hundred nanoseconds, twice.
    let waited = guest.waited.as_ns_f64();
    assert!((400.0..100_000.0).contains(&waited), "{waited} ns");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "neither socket nor page stays behind");
}

/// A folder's scenario with a drive, `ssd`, and what happens to it when.
fn with_events(folder: &Path, events: &[(&str, &str)]) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/live/nvme.toml");
    let mut text = std::fs::read_to_string(own).unwrap().replace("slot = ", "name = \"ssd\"\nslot = ");
    for (at, deed) in events {
        text += &format!("[[event]]\nat = \"{at}\"\ndo = \"{deed}\"\nwhat = \"a:ssd\"\n");
    }
    let scenario = folder.join("events.toml");
    std::fs::write(&scenario, text).unwrap();
    scenario
}

#[test]
fn what_a_kernel_logged_last_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = with_events(folder.path(), &[("20 ms", "remove")]);
    let clock = LiveClock::LockStep { shift: 1 };
    let options = options_in(folder.path(), clock);
    let mut lines = Vec::new();
    let told = |event: &LiveEvent<'_>| {
        if let LiveEvent::Logged { line, .. } = event {
            lines.push((*line).to_owned());
        }
    };
    // The end comes soon after the fault: within 30 ms of the beginning.
    while_told(scenario.to_str().unwrap(), &options, told, |socket| {
        let (mut plugin, mut at) = (Plugin::new(socket.parent().unwrap()), 0);
        while at < 15_000_000 {
            at = plugin.stop_at(at).min(15_000_000);
        }
        plugin.stop_at(at);
    })
    .unwrap();
    assert!(lines.iter().any(|line| line.contains("slot empty")), "{lines:?}");
}

#[test]
fn a_page_that_is_far_ahead_does_not_take_the_simulation_there() {
    let folder = tempfile::tempdir().unwrap();
    let options = options_in(folder.path(), LiveClock::LockStep { shift: 1 });
    let mut counted = 0;
    let told = |event: &LiveEvent<'_>| {
        if let LiveEvent::Clocked(guest) = event {
            counted = guest.instructions;
        }
    };
    while_told("tools/live/nvme.toml", &options, told, |socket| {
        let mut plugin = Plugin::new(socket.parent().unwrap());
        let limit = plugin.stop_at(10);
        assert!(plugin.stop_at(u64::MAX / 2) < limit + 100_000_000);
        // It ends while it is asked: its function is served on.
        let mut client = Client::new(socket);
        drop(plugin);
        assert_eq!(client.read(0, 8, 4)[2..], [1, 0]);
    })
    .unwrap();
    assert!(counted < 1 << 40, "{counted}");
}

#[test]
fn a_drive_that_is_pulled_answers_with_all_ones_until_it_is_back() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = with_events(folder.path(), &[("50 ms", "remove"), ("100 ms", "plug")]);
    let sockets = folder.path().join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    // Simulated time goes on by itself, while nothing happens as well.
    while_served(scenario.to_str().unwrap(), &sockets, |socket| {
        let mut client = Client::new(socket);
        let identity = client.read(7, 0, 4);
        let version = client.read(0, 8, 4);
        while client.read(7, 0, 4) != [0xff; 4] {}
        assert_eq!(client.read(0, 8, 4), [0xff; 4]);
        while client.read(7, 0, 4) != identity {}
        assert_eq!(client.read(0, 8, 4), version);
    })
    .unwrap();
}

/// The monitor of a QEMU.
struct Monitor(BufReader<UnixStream>);

impl Monitor {
    fn new(folder: &Path) -> Self {
        let stream = UnixStream::connect(folder.join("a.monitor")).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_secs(20))).unwrap();
        let mut own = Self(BufReader::new(stream));
        own.say(r#"{"QMP": {"version": {}, "capabilities": []}}"#);
        assert_eq!(own.asked()["execute"], "qmp_capabilities");
        own.say(r#"{"return": {}}"#);
        own
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    fn asked(&mut self) -> serde_json::Value {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        serde_json::from_str(&line).unwrap()
    }
}

#[test]
fn a_guest_is_asked_to_let_a_drive_go_and_given_it_again() {
    let folder = tempfile::tempdir().unwrap();
    let scenario = with_events(folder.path(), &[("50 ms", "remove"), ("100 ms", "plug")]);
    let sockets = folder.path().join("sockets");
    std::fs::create_dir(&sockets).unwrap();
    let options = ServeOptions { once: true, hot_plug: true, ..options_in(&sockets, LiveClock::Wall) };
    let mut steps = Vec::new();
    let told = |event: &LiveEvent<'_>| {
        if let LiveEvent::Plug { function, step } = event {
            steps.push(format!("{}: {step:?}", function.name));
        }
    };
    while_told(scenario.to_str().unwrap(), &options, told, |socket| {
        let mut monitor = Monitor::new(socket.parent().unwrap());
        let mut client = Client::new(socket);
        let identity = client.read(7, 0, 4);
        let request = monitor.asked();
        assert_eq!(
            (&request["execute"], &request["arguments"]["id"]),
            (&"device_del".into(), &"latch1".into())
        );
        // A QEMU that is busy is asked again.
        monitor.say(r#"{"error": {"class": "GenericError", "desc": "the guest is busy"}}"#);
        assert_eq!(monitor.asked(), request);
        monitor.say(r#"{"return": {}}"#);
        monitor.say(r#"{"event": "DEVICE_DELETED", "data": {"device": "latch1", "path": "/x"}}"#);
        let device = monitor.asked();
        assert_eq!(device["execute"], "device_add");
        let device = &device["arguments"];
        assert_eq!((&device["id"], &device["bus"]), (&"latch1".into(), &"port1".into()));
        monitor.say(r#"{"return": {}}"#);
        assert_eq!(client.read(7, 0, 4), identity);
        // It ejects the device by itself, and is not given it again.
        monitor.say(r#"{"event": "DEVICE_DELETED", "data": {"device": "latch1", "path": "/x"}}"#);
        monitor.0.get_mut().set_read_timeout(Some(std::time::Duration::from_millis(200))).unwrap();
        assert!(monitor.0.read_line(&mut String::new()).is_err());
        monitor.say("good bye");
    })
    .unwrap();
    let refused = "a-ssd: Refused(\"the guest is busy\")";
    let expected = ["a-ssd: Asked", refused, "a-ssd: Asked", "a-ssd: Left", "a-ssd: Given", "a-ssd: Left"];
    assert_eq!(steps, expected);
    assert_eq!(std::fs::read_dir(&sockets).unwrap().count(), 0, "no socket stays behind");
}

#[test]
fn a_clients_accesses_are_packets_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let span = Span { packets: 1000, filter: "TLP".parse().unwrap(), ..Span::default() };
    let record = Some((span, vec!["slot".to_owned()]));
    let options = ServeOptions { record, ..options_in(folder.path(), LiveClock::Wall) };
    let act = |socket: &Path| {
        Client::new(socket).read(0, 8, 4);
    };
    let seen = while_told("tools/live/nvme.toml", &options, |_| {}, act).unwrap();
    let capture = seen.packets.unwrap();
    let kinds: Vec<String> = Row::all(&capture).map(|row| row.kind().to_string()).collect();
    let read = kinds.iter().position(|kind| kind.starts_with("MRd"));
    assert!(read.is_some_and(|read| kinds[read..].iter().any(|kind| kind == "CplD")), "{kinds:?}");
    let counted = seen.counted.host("a").unwrap();
    let completions = counted.counters.iter().find(|c| c.name == "drive0/link-up-tlps/completion").unwrap();
    assert!(completions.value >= 1);
    let wrong = ServeOptions { record: Some((Span::default(), vec!["nowhere".to_owned()])), ..options };
    let told = while_told("tools/live/nvme.toml", &wrong, |_| {}, |_| {}).unwrap_err().to_string();
    assert!(told.contains("nowhere") && told.contains("slot"), "{told}");
}

/// Data of the packets that leave, when a client stores eight bytes at each of these offsets and then reads a register.
fn writes(combining: &[&str], stores: &'static [u32]) -> Result<Vec<usize>, LiveError> {
    const WINDOW: u32 = 2;
    let folder = tempfile::tempdir().unwrap();
    let span = Span { packets: 10_000, filter: "TLP".parse().unwrap(), ..Span::default() };
    let options = ServeOptions {
        combining: combining.iter().map(|bar| (*bar).to_owned()).collect(),
        record: Some((span, vec!["slot#0".to_owned()])),
        ..options_in(folder.path(), LiveClock::Wall)
    };
    let seen = while_told(
        "tools/live/kpio.toml",
        &options,
        |_| {},
        move |socket| {
            let mut client = Client::new(socket);
            client.write(7, 4, 6);
            for &at in stores {
                client.ask(10, &words(&[at, 0, WINDOW, 8, at, at])).unwrap();
            }
            client.read(0, 0, 4);
        },
    )?;
    let capture = seen.packets.unwrap();
    let written = Row::all(&capture).filter(|row| row.direction() == "down" && row.kind().starts_with("MWr"));
    let length = |row: Row<'_>| match row.decoded {
        Decoded::Tlp { payload, .. } => payload.len(),
        _ => 0,
    };
    Ok(written.map(length).collect())
}

#[test]
fn stores_of_a_line_leave_as_one_packet_where_guests_combine_them() {
    let line = &[0, 8, 16, 24, 32, 40, 48, 56];
    assert_eq!(writes(&[], line).unwrap(), [8; 8]);
    assert_eq!(writes(&["a-near/2"], line).unwrap(), [64]);
    // Half a line leaves when an uncached access fences, in as many packets as its bytes need.
    assert_eq!(writes(&["a-near/2"], &[0, 8, 16, 24]).unwrap().iter().sum::<usize>(), 32);
    // Lines of one position that collide in a buffer do not mix.
    assert_eq!(
        writes(&["a-near/2"], &[0, 64, 8, 72, 16, 80, 24, 88, 32, 96, 40, 104, 48, 112, 56, 120]).unwrap(),
        [64, 64]
    );
    let told = writes(&["a-near/5"], line).unwrap_err().to_string();
    assert!(told.contains("a-near/5") && told.contains("`a-near/2`"), "{told}");
}

/// What a client does to the drive in lock-step, recorded: it enables the controller, and looks until that is ready.
fn recorded(folder: &Path) -> GuestRecording {
    let file = folder.join("drive.rec");
    let (sockets, path) = (folder.join("sockets"), String::new());
    std::fs::create_dir(&sockets).unwrap();
    let head = RecordingHead {
        path,
        scenario: String::new(),
        changes: Vec::new(),
        instruction_ns: Some(2),
        functions: Vec::new(),
    };
    let recording = Some((file.clone(), head));
    let options = ServeOptions { recording, ..options_in(&sockets, LiveClock::LockStep { shift: 1 }) };
    let seen = while_told(
        "tools/live/nvme.toml",
        &options,
        |_| {},
        |socket| {
            let mut plugin = Plugin::new(socket.parent().unwrap());
            let mut client = Client::new(socket);
            let mut count = 10;
            plugin.stop_at(count);
            client.write(7, 4, 6);
            // Queues of 32 entries somewhere, then the controller.
            for (register, value) in [(0x24, 0x1f_001f), (0x28, 0x1000), (0x30, 0x2000), (0x14, 0x46_0001)] {
                client.write(0, register, value);
            }
            while client.read(0, 0x1c, 4) != [1, 0, 0, 0] {
                count += 500;
                plugin.stop_at(count);
            }
            assert_eq!(client.read(0, 8, 4)[2..], [1, 0]);
        },
    );
    seen.unwrap().recorded.unwrap();
    GuestRecording::open(&file).unwrap()
}

/// The same machine takes as long as it did, and another link longer for the same accesses.
#[test]
fn what_was_recorded_is_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let recording = recorded(folder.path());
    assert_eq!(recording.head.functions, [(0, "a-drive0".to_owned())]);
    let same = replay(&scenario("tools/live/nvme.toml"), &recording, 1.0).unwrap();
    let [before, now] = same.functions[0].counts;
    assert_eq!((before.accesses, same.stuck, same.values.0, same.order.0), (now.accesses, None, 0, 0));
    let [recorded, replayed] = same.took.map(|time| time.as_ns_f64());
    assert!(before.accesses > 10 && (replayed / recorded - 1.0).abs() < 0.1, "{recorded} {replayed}");
    let changed = |path: &str, value: &str| {
        let changes = [(path.to_owned(), value.to_owned())];
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/live/nvme.toml");
        match Experiment::load(&Library::built_in(), path.to_str().unwrap(), "set", &changes) {
            Ok(Experiment::Computers(setup)) => *setup,
            _ => panic!("a scenario with computers"),
        }
    };
    // Reads of the version, with nothing in between: by a narrower link, each takes longer.
    let is_version = |step: &RecordedStep| matches!(step, RecordedStep::Read { region: 0, offset: 8, .. });
    let version = recording.steps.iter().position(is_version).unwrap();
    let one = &recording.steps[version..version + 2];
    let steps = (0..20).flat_map(|_| one.iter().cloned()).collect();
    let reads = GuestRecording { head: recording.head.clone(), steps };
    let quick = |setup: &ComputerSetup| replay(setup, &reads, 0.0).unwrap().took[1].as_ns_f64();
    let slow = changed("host.a.device.0.change.link.width", "1");
    let [slow, fast] = [slow, scenario("tools/live/nvme.toml")].map(|setup| quick(&setup));
    assert!(slow > fast + 20.0 * 10.0, "{slow} and {fast} ns");
    let other = changed("host.a.device.0.name", "ssd");
    let lacks = replay(&other, &recording, 1.0).unwrap_err().to_string();
    assert!(lacks.contains("`a-drive0`"), "{lacks}");
}
