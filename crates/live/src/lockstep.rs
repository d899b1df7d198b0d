//! Simulated time after the guests' instructions.
//!
//! A plugin of QEMU (linux/qemu_lockstep) counts a guest's instructions and stops the guest where it is told. Simulated time
//! leads: a guest goes on until the next event of the simulation and not beyond, and the simulation is advanced to where the
//! guest is before its accesses are done. An access takes the guest as long as it takes in the simulation.
//!
//! Several guests are apart by at most [`APART`], which is less than it takes from one host's doorbell to another host's
//! memory.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::thread;
use std::time::Instant;

use rustix::event::Timespec;
use units::{Duration, Time};
use vfio_user::VfioSocket;

use crate::LiveError;
use crate::function::LiveFunction;
use crate::server::{Attendance, LiveEvent, listen, wait};
use crate::sockets::LiveSocket;

/// How far a guest may be ahead of another.
const APART: Duration = Duration::from_ns(500);
/// Shortest time between stops of a guest: it sees what a device does as much later.
const STEP: Duration = Duration::from_ns(50);
/// How long a plugin may take to send eight bytes, and QEMU to see an interrupt.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(5);

/// How far a guest has come.
#[derive(Clone, Debug)]
pub struct GuestTime {
    /// Index of its host in the scenario.
    pub host: usize,
    /// Instructions.
    pub instructions: u64,
    /// The time that these stand for.
    pub computed: Duration,
    /// The time that its accesses of devices took, which its own clock does not show.
    pub waited: Duration,
    /// How often it was stopped.
    pub stops: u64,
}

/// Where a host's plugin connects, and the page that it shares.
pub fn places(folder: &Path, host: &str) -> (PathBuf, PathBuf) {
    (folder.join(format!("{host}.clock")), folder.join(format!("{host}.page")))
}

/// Bytes of a page.
const PAGE: u64 = 4096;
/// The end of a page, behind what the plugin reads and writes: it was made here.
const MARK: &[u8] = b"nearfar lock-step";

/// A guest stops before its next block of instructions, which has some hundred at most (QEMU: `TCG_MAX_INSNS`, 512).
const LONGEST_BLOCK: u64 = 512;
/// The most that a guest goes on by itself, and the end of simulated time, in ns: a page that says otherwise is no guest's.
const LONGEST_STEP: Duration = Duration::from_ms(1000);
const LONGEST_RUN: u64 = 30 * 86_400 * 1_000_000_000;

/// Makes a page. One that a killed run has left is replaced, nothing else.
fn new_page(path: &Path) -> io::Result<File> {
    let left = path.symlink_metadata().is_ok_and(|known| known.is_file() && known.len() == PAGE);
    if left && std::fs::read(path)?.ends_with(MARK) {
        std::fs::remove_file(path)?;
    }
    let page = File::options().read(true).write(true).create_new(true).open(path)?;
    page.write_all_at(MARK, PAGE - MARK.len() as u64)?;
    Ok(page)
}

/// The time that instructions stand for, whatever a page says.
fn time_of(instructions: u64, shift: u32) -> Duration {
    const PS_PER_NS: u64 = 1000;
    Duration::from_ps(instructions.saturating_mul(PS_PER_NS << shift))
}

/// The clock of a live host's guest.
pub struct GuestClock {
    so_far: GuestTime,
    begins: Time,
    shift: u32,
    socket: LiveSocket,
    plugin: Option<UnixStream>,
    page: File,
    /// The page's path, as long as it is there.
    path: PathBuf,
    /// The most that the guest was allowed.
    allowed: u64,
    /// The guest waits to be told how far it may go.
    is_stopped: bool,
    /// The guest, or another part of its QEMU, waits for an answer.
    asks: bool,
    /// Its plugin is gone.
    has_ended: bool,
}

impl GuestClock {
    /// Makes the socket and the page of a host's guest, which begins at `begins`.
    ///
    /// # Errors
    /// If it cannot.
    pub fn new(folder: &Path, host: usize, name: &str, shift: u32, begins: Time) -> Result<Self, LiveError> {
        let (socket, path) = places(folder, name);
        let socket = listen(&socket)?;
        let page = new_page(&path).map_err(|problem| {
            let remedy = match problem.kind() {
                io::ErrorKind::AlreadyExists => "move that file away, or choose another folder by --sockets",
                _ => "choose a folder by --sockets in which files can be made",
            };
            LiveError::Socket { socket: path.display().to_string(), problem, remedy }
        })?;
        let none = Duration::ZERO;
        let so_far = GuestTime { host, instructions: 0, computed: none, waited: none, stops: 0 };
        Ok(Self {
            so_far,
            begins,
            shift,
            socket,
            plugin: None,
            page,
            path,
            allowed: 0,
            is_stopped: false,
            asks: false,
            has_ended: false,
        })
    }

    /// What tells that its plugin comes, or the guest stops.
    fn fd(&self) -> BorrowedFd<'_> {
        self.plugin.as_ref().map_or(self.socket.as_fd(), |plugin| plugin.as_fd())
    }

    /// Takes its plugin, or notes that the guest has stopped or ended.
    fn hear(&mut self) {
        let Some(plugin) = &mut self.plugin else {
            self.plugin = self.socket.accept().filter(|stream| {
                stream.set_read_timeout(Some(PATIENCE)).is_ok()
                    && stream.set_write_timeout(Some(PATIENCE)).is_ok()
            });
            return;
        };
        self.is_stopped = plugin.read_exact(&mut [0; 8]).is_ok();
        self.has_ended = !self.is_stopped;
    }

    fn is_held(&self) -> bool {
        self.is_stopped || self.asks
    }

    /// Whether what its functions are asked comes at the guest's time.
    fn is_present(&self) -> bool {
        self.plugin.is_some() && !self.has_ended
    }

    /// Reads the guest's count; it is held.
    fn look(&mut self) {
        let mut count = [0; 8];
        if self.page.read_exact_at(&mut count, 0).is_ok() {
            // A page that says more than a guest can do does not take the simulation there.
            let most = self.allowed.saturating_add(LONGEST_BLOCK).min(LONGEST_RUN >> self.shift);
            let most = most.max(self.so_far.instructions);
            let instructions = u64::from_ne_bytes(count).clamp(self.so_far.instructions, most);
            self.so_far.instructions = instructions;
            self.so_far.computed = time_of(instructions, self.shift);
        }
    }

    /// Where the guest is.
    fn time(&self) -> Time {
        self.begins + self.so_far.computed + self.so_far.waited
    }

    /// Says how far the guest may go, at least a step.
    fn allow(&mut self, until: Time) {
        let until = until.clamp(self.time() + STEP, self.time() + LONGEST_STEP);
        let own = until.since(self.begins).as_ps().saturating_sub(self.so_far.waited.as_ps());
        let count = own.div_ceil(1000 << self.shift);
        self.allowed = self.allowed.max(count);
        // A guest without its page has ended.
        let _ = self.page.write_all_at(&count.to_ne_bytes(), 8);
    }

    /// The guest stops before its next block.
    fn allow_none(&self) {
        let _ = self.page.write_all_at(&0u64.to_ne_bytes(), 8);
    }

    /// Lets a stopped guest go on.
    fn go(&mut self) {
        if std::mem::take(&mut self.is_stopped) {
            self.so_far.stops += 1;
            if let Some(plugin) = &mut self.plugin {
                let _ = plugin.write_all(&[0; 8]);
            }
        }
    }
}

impl Drop for GuestClock {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Lets simulated time follow the guests' instructions.
///
/// # Errors
/// If the simulation cannot go on.
pub fn follow(
    attendance: &mut Attendance<'_, '_>,
    mut clocks: Vec<GuestClock>,
    stop: BorrowedFd<'_>,
) -> Result<(), LiveError> {
    while !attendance.is_over() {
        if !hear(attendance, &mut clocks, stop)? {
            break;
        }
        advance(attendance, &mut clocks)?;
    }
    let present = clocks.iter().filter(|clock| !clock.has_ended);
    present.for_each(|clock| (attendance.tell)(LiveEvent::Clocked(&clock.so_far)));
    Ok(())
}

/// Waits until a guest is held that was not, if there is one. Returns false if it was told to stop.
fn hear(
    attendance: &mut Attendance<'_, '_>,
    clocks: &mut [GuestClock],
    stop: BorrowedFd<'_>,
) -> Result<bool, LiveError> {
    // Those held have nothing new to say.
    let asks = |host: usize| {
        clocks.iter().any(|clock| clock.so_far.host == host && clock.is_present() && clock.asks)
    };
    let mut functions: Vec<usize> = (0..attendance.endpoints.len()).collect();
    functions.retain(|&number| !asks(attendance.endpoints[number].info.host));
    let mut running: Vec<usize> = (0..clocks.len()).collect();
    running.retain(|&n| !clocks[n].has_ended && !clocks[n].is_held());
    let at_once = running.is_empty().then_some(Timespec { tv_sec: 0, tv_nsec: 0 });
    let fds = functions.iter().map(|&number| attendance.endpoints[number].as_fd());
    let fds = fds.chain(running.iter().map(|&n| clocks[n].fd())).chain(attendance.monitors.fds());
    // Without guests, only clients are waited for.
    let timeout = at_once.filter(|_| clocks.iter().any(|clock| !clock.has_ended));
    let (stopped, ready) = wait(fds, stop, timeout)?;
    for ready in ready {
        match functions.get(ready) {
            Some(&number) => {
                let endpoint = &attendance.endpoints[number];
                let own = clocks.iter_mut().find(|clock| clock.so_far.host == endpoint.info.host);
                match own.filter(|own| endpoint.client.is_some() && own.is_present()) {
                    Some(own) => own.asks = true,
                    // It has no time of its own.
                    None => attendance.attend(number),
                }
            }
            None => match running.get(ready - functions.len()) {
                Some(&running) => {
                    let clock = &mut clocks[running];
                    clock.hear();
                    if clock.has_ended {
                        (attendance.tell)(LiveEvent::Clocked(&clock.so_far));
                    }
                }
                None => attendance.attend_monitors(),
            },
        }
    }
    Ok(!stopped)
}

/// Advances the simulation to the guest that is behind the others, if all are held, and does what it asks or lets it go on.
fn advance(attendance: &mut Attendance<'_, '_>, clocks: &mut [GuestClock]) -> Result<(), LiveError> {
    let mut present: Vec<&mut GuestClock> = clocks.iter_mut().filter(|clock| !clock.has_ended).collect();
    if !present.iter().all(|clock| clock.is_held()) {
        return Ok(());
    }
    present.iter_mut().for_each(|clock| clock.look());
    present.sort_by_key(|clock| clock.time());
    let [clock, others @ ..] = &mut present[..] else { return Ok(()) };
    let now = attendance.session.simulation().now();
    attendance.run_until(clock.time().max(now))?;
    let host = clock.so_far.host;
    if std::mem::take(&mut clock.asks) {
        // What the access causes comes before the guest's next instructions.
        clock.allow_none();
        let functions = functions_of(attendance, host);
        for &number in &functions {
            attendance.attend(number);
        }
        // An access has taken as long as it took. No guest waits for the reset of a function that its client has left.
        if functions_of(attendance, host) == functions {
            let done = attendance.session.simulation().now();
            clock.so_far.waited += done.since(clock.time().min(done));
        }
        return Ok(());
    }
    for number in functions_of(attendance, host) {
        let function = Rc::clone(&attendance.endpoints[number].function);
        if function.interrupts.has_raised() {
            settle(attendance, number, &function)?;
        }
    }
    let next = attendance.session.simulation().next_time().unwrap_or(Time::NEVER);
    let apart = others.first().map_or(Time::NEVER, |other| other.time() + APART);
    clock.allow(next.min(apart));
    clock.go();
    Ok(())
}

/// Numbers of a host's functions that have clients.
fn functions_of(attendance: &Attendance<'_, '_>, host: usize) -> Vec<usize> {
    let own = |&number: &usize| {
        let endpoint = &attendance.endpoints[number];
        endpoint.info.host == host && endpoint.client.is_some()
    };
    (0..attendance.endpoints.len()).filter(own).collect()
}

/// Waits until QEMU has handed a function's interrupts to the guest's processor: it has taken their counts, and has answered
/// a question since.
fn settle(
    attendance: &mut Attendance<'_, '_>,
    number: usize,
    function: &LiveFunction,
) -> Result<(), LiveError> {
    let begun = Instant::now();
    while !function.interrupts.are_seen() && begun.elapsed() < PATIENCE {
        thread::yield_now();
    }
    let endpoint = &mut attendance.endpoints[number];
    let Some(client) = &mut endpoint.client else { return Ok(()) };
    // One that is gone is found to be when it is attended to.
    let _ = client.ask();
    while begun.elapsed() < PATIENCE {
        attendance.attend(number);
        let endpoint = &attendance.endpoints[number];
        if !endpoint.client.as_ref().is_some_and(VfioSocket::is_asked) {
            break;
        }
        let fd = endpoint.as_fd();
        wait([].into_iter(), fd, Some(Timespec { tv_sec: 0, tv_nsec: 10_000_000 }))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_only_what_a_killed_run_left() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // No run removes its page when it is killed.
        drop(new_page(&at("a.page")).unwrap());
        let again = new_page(&at("a.page")).unwrap();
        again.write_all_at(&[0xff; 16], 0).unwrap();
        assert_eq!(std::fs::read(at("a.page")).unwrap().len() as u64, PAGE);
        std::fs::write(at("notes"), "mine").unwrap();
        std::fs::write(at("b.page"), [7; PAGE as usize]).unwrap();
        std::os::unix::fs::symlink("notes", at("c.page")).unwrap();
        std::os::unix::fs::symlink("a.page", at("d.page")).unwrap();
        std::fs::create_dir(at("e.page")).unwrap();
        for name in ["notes", "b.page", "c.page", "d.page", "e.page"] {
            assert_eq!(new_page(&at(name)).unwrap_err().kind(), io::ErrorKind::AlreadyExists, "{name}");
        }
        assert_eq!(std::fs::read(at("notes")).unwrap(), b"mine");
        assert!(at("c.page").is_symlink() && at("d.page").is_symlink());
    }

    #[test]
    fn counts_of_a_page_never_wrap() {
        assert_eq!(time_of(3, 2), Duration::from_ns(12));
        for (instructions, shift) in [(u64::MAX, 0), (u64::MAX, 10), (1 << 60, 10), (1 << 54, 10)] {
            assert_eq!(time_of(instructions, shift), Duration::from_ps(u64::MAX));
        }
    }
}
