//! What guests did and what came back, in order, as a file.
//!
//! A guest's accesses are kept with their times; what devices read from its memory with the bytes, which a guest's driver
//! wrote there without anybody seeing it; what they wrote, and their interrupts. The file is compressed with gzip: a mark,
//! then the head and the steps, each a length of 4 bytes (little-endian) and as many of postcard.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::Path;
use std::rc::Rc;

use files::Beside;
use flate2::Compression;
use flate2::bufread::GzDecoder;
use flate2::write::GzEncoder;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use units::Time;
use wire::pcie::Bdf;

/// What a recording begins with; the number is the format's.
const MARK: &[u8] = b"nearfar recording 1\n";
/// Most bytes of a step: the longest access of a client, and the rest of it.
const LONGEST: usize = 4 << 20;
/// Most bytes of all steps: what a compressed file becomes in memory.
const MOST: usize = 4 << 30;

/// What a recording is of.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RecordingHead {
    /// Path of the scenario.
    pub path: String,
    /// Its text.
    pub scenario: String,
    /// What was changed in it, as paths and values.
    pub changes: Vec<(String, String)>,
    /// Time of a guest's instruction in ns, if it was in lock-step; otherwise, guests' times mean nothing.
    pub instruction_ns: Option<u32>,
    /// The functions by which steps are numbered, such as `a-drive0`, each with the index of its host.
    pub functions: Vec<(u16, String)>,
}

/// What a guest does besides accesses.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ManagementAct {
    /// Takes all interrupts.
    Connect,
    /// Lets them go.
    Disconnect,
    /// Resets the function.
    Reset,
    /// Takes the legacy interrupt.
    ConnectLine,
    /// Masks or unmasks it.
    MaskLine(bool),
}

/// What has happened.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum RecordedStep {
    /// The guest reads registers or configuration space, and waits.
    Read {
        /// The function.
        function: u16,
        /// BAR, or 7 for configuration space.
        region: u32,
        /// Offset in it.
        offset: u64,
        /// Bytes.
        length: u32,
        /// When, in simulated picoseconds.
        at: u64,
    },
    /// What it reads comes back, or what it does is done.
    Returned {
        /// The function.
        function: u16,
        /// What comes back; nothing for what is no read.
        bytes: Vec<u8>,
        /// When.
        at: u64,
    },
    /// The guest writes.
    Write {
        /// The function.
        function: u16,
        /// BAR, or 7 for configuration space.
        region: u32,
        /// Offset in it.
        offset: u64,
        /// What it writes.
        bytes: Vec<u8>,
        /// When.
        at: u64,
    },
    /// The guest takes a function's interrupts, lets them go, or resets it; or its client has gone.
    Managed {
        /// The function.
        function: u16,
        /// What is done.
        act: ManagementAct,
        /// When.
        at: u64,
    },
    /// The device reads the guest's memory.
    Fetched {
        /// The function.
        function: u16,
        /// The address that it uses.
        address: u64,
        /// What was there.
        bytes: Vec<u8>,
    },
    /// The device writes the guest's memory.
    Stored {
        /// The function.
        function: u16,
        /// The address that it uses.
        address: u64,
        /// Bytes.
        length: u32,
    },
    /// The guest is told of an interrupt.
    Interrupted {
        /// The function.
        function: u16,
        /// Its vector.
        vector: u16,
        /// When.
        at: u64,
    },
}

impl RecordedStep {
    /// The function that it is of.
    pub const fn function(&self) -> u16 {
        match *self {
            Self::Read { function, .. }
            | Self::Returned { function, .. }
            | Self::Write { function, .. }
            | Self::Managed { function, .. }
            | Self::Fetched { function, .. }
            | Self::Stored { function, .. }
            | Self::Interrupted { function, .. } => function,
        }
    }
}

/// Why a file is no recording.
#[derive(Debug, Error)]
pub enum RecordingError {
    /// It cannot be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// It begins with something else.
    #[error("it is no recording of `nearfar live --record`, or one of another version")]
    NoRecording,
    /// A step is none.
    #[error("step {0} is damaged; what was recorded before it cannot be replayed alone")]
    Damaged(usize),
    /// It is too long.
    #[error("it has more than {} MiB of steps, which a replay keeps in memory", MOST >> 20)]
    TooLong,
}

/// A recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GuestRecording {
    /// What it is of.
    pub head: RecordingHead,
    /// What happened, in order.
    pub steps: Vec<RecordedStep>,
}

impl GuestRecording {
    /// Reads a file.
    ///
    /// # Errors
    /// If it is none, damaged, or too long.
    pub fn open(path: &Path) -> Result<Self, RecordingError> {
        Self::read(BufReader::new(files::open(path)?))
    }

    /// Reads a recording.
    ///
    /// # Errors
    /// If it is none, damaged, or too long.
    pub fn read(from: impl io::BufRead) -> Result<Self, RecordingError> {
        let mut from = GzDecoder::new(from);
        let mut mark = [0; MARK.len()];
        if from.read_exact(&mut mark).is_err() || mark != MARK {
            return Err(RecordingError::NoRecording);
        }
        let (mut buffer, mut left) = (Vec::new(), MOST);
        let mut next = |number: usize| -> Result<Option<Vec<u8>>, RecordingError> {
            let mut length = [0; 4];
            match from.read(&mut length[..1])? {
                0 => return Ok(None),
                _ => from.read_exact(&mut length[1..]).map_err(|_| RecordingError::Damaged(number))?,
            }
            let length = u32::from_le_bytes(length) as usize;
            if length > LONGEST {
                return Err(RecordingError::Damaged(number));
            }
            left = left.checked_sub(length).ok_or(RecordingError::TooLong)?;
            buffer.resize(length, 0);
            from.read_exact(&mut buffer).map_err(|_| RecordingError::Damaged(number))?;
            Ok(Some(std::mem::take(&mut buffer)))
        };
        let head = next(0)?.ok_or(RecordingError::NoRecording)?;
        let head: RecordingHead = postcard::from_bytes(&head).map_err(|_| RecordingError::NoRecording)?;
        let mut steps = Vec::new();
        while let Some(bytes) = next(steps.len() + 1)? {
            let damaged = || RecordingError::Damaged(steps.len() + 1);
            let step: RecordedStep = postcard::from_bytes(&bytes).map_err(|_| damaged())?;
            if usize::from(step.function()) >= head.functions.len() {
                return Err(damaged());
            }
            steps.push(step);
        }
        Ok(Self { head, steps })
    }
}

/// Writes a part: its length and its bytes.
fn put(out: &mut impl Write, part: &impl Serialize) -> io::Result<()> {
    let bytes = postcard::to_stdvec(part).map_err(io::Error::other)?;
    out.write_all(&(bytes.len() as u32).to_le_bytes())?;
    out.write_all(&bytes)
}

/// A file that is being written.
struct RecordingFile {
    beside: Beside,
    out: GzEncoder<BufWriter<Box<dyn Write>>>,
}

/// Keeps what happens, until the disk is full.
pub struct StepRecorder {
    file: RefCell<Result<RecordingFile, Option<io::Error>>>,
    /// Number of a host's function by its address.
    numbers: BTreeMap<usize, BTreeMap<u16, u16>>,
}

impl StepRecorder {
    /// Begins a recording, of functions at these addresses of their hosts.
    ///
    /// # Errors
    /// If the file cannot be made.
    pub fn new(path: &Path, head: &RecordingHead, functions: &[(usize, Bdf)]) -> io::Result<Self> {
        let beside = Beside::new(path)?;
        let mut out: GzEncoder<BufWriter<Box<dyn Write>>> =
            GzEncoder::new(BufWriter::new(Box::new(beside.writer()?)), Compression::fast());
        out.write_all(MARK)?;
        put(&mut out, head)?;
        let mut numbers: BTreeMap<usize, BTreeMap<u16, u16>> = BTreeMap::new();
        for (n, (host, bdf)) in (0..).zip(functions) {
            numbers.entry(*host).or_default().insert(bdf.bits(), n);
        }
        Ok(Self { file: RefCell::new(Ok(RecordingFile { beside, out })), numbers })
    }

    /// Keeps a step.
    pub fn keep(&self, step: &RecordedStep) {
        let mut file = self.file.borrow_mut();
        if let Ok(open) = &mut *file
            && let Err(failed) = put(&mut open.out, step)
        {
            // Without its end, it would be no recording.
            *file = Err(Some(failed));
        }
    }

    /// The number of a host's function.
    fn number(&self, host: usize, requester: Bdf) -> Option<u16> {
        of_requester(self.numbers.get(&host)?, requester).copied()
    }

    /// Ends the recording.
    ///
    /// # Errors
    /// If it could not be written; nothing is left of it then.
    pub fn finish(&self) -> io::Result<()> {
        match std::mem::replace(&mut *self.file.borrow_mut(), Err(None)) {
            Ok(RecordingFile { beside, out }) => {
                out.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?.flush()?;
                beside.keep()
            }
            Err(Some(failed)) => Err(failed),
            Err(None) => Ok(()),
        }
    }
}

/// What a requester has among functions by their IDs. Requesters behind an NTB have IDs of its bus, and what it has.
pub fn of_requester<T>(functions: &BTreeMap<u16, T>, requester: Bdf) -> Option<&T> {
    let adapter = Bdf::new(requester.bus(), 0, 0);
    functions.get(&requester.bits()).or_else(|| functions.get(&adapter.bits()))
}

/// Keeps what one host's devices do to its guest's memory.
pub struct MemoryRecorder {
    /// Where it is kept.
    pub recorder: Rc<StepRecorder>,
    /// The host.
    pub host: usize,
}

impl MemoryRecorder {
    /// A device has read.
    pub fn fetched(&self, requester: Bdf, address: u64, bytes: &[u8]) {
        if let Some(function) = self.recorder.number(self.host, requester) {
            self.recorder.keep(&RecordedStep::Fetched { function, address, bytes: bytes.to_vec() });
        }
    }

    /// A device has written.
    pub fn stored(&self, requester: Bdf, address: u64, length: usize) {
        if let Some(function) = self.recorder.number(self.host, requester) {
            self.recorder.keep(&RecordedStep::Stored { function, address, length: length as u32 });
        }
    }
}

/// Keeps what one function's guest does.
#[derive(Clone)]
pub struct FunctionRecorder {
    recorder: Rc<StepRecorder>,
    function: u16,
}

impl FunctionRecorder {
    /// For the function with this number.
    pub fn new(recorder: &Rc<StepRecorder>, function: usize) -> Self {
        Self { recorder: Rc::clone(recorder), function: function as u16 }
    }

    /// Keeps a step of the function with this number.
    pub fn keep(&self, step: impl FnOnce(u16) -> RecordedStep) {
        self.recorder.keep(&step(self.function));
    }

    /// The guest is told of an interrupt.
    pub fn interrupted(&self, vector: usize, at: Time) {
        self.keep(|function| RecordedStep::Interrupted { function, vector: vector as u16, at: at.as_ps() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head() -> RecordingHead {
        let functions = vec![(0, "a-drive0".to_owned()), (0, "a-nic0".to_owned())];
        let (path, scenario) = ("x.toml".to_owned(), "name = \"x\"".to_owned());
        RecordingHead { path, scenario, changes: Vec::new(), instruction_ns: Some(1), functions }
    }

    #[test]
    fn what_is_kept_is_read_again_and_what_is_damaged_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.rec");
        let (drive, nic) = (Bdf::new(1, 0, 0), Bdf::new(2, 0, 0));
        let recorder = Rc::new(StepRecorder::new(&path, &head(), &[(0, drive), (0, nic)]).unwrap());
        let memory = MemoryRecorder { recorder: Rc::clone(&recorder), host: 0 };
        memory.fetched(nic, 0x1000, &[1, 2, 3]);
        memory.stored(Bdf::new(1, 7, 0), 0x2000, 64);
        memory.stored(Bdf::new(9, 0, 0), 0x2000, 64);
        FunctionRecorder::new(&recorder, 1).interrupted(3, Time::from_ps(7));
        assert!(!path.exists(), "it is there when it is whole");
        recorder.finish().unwrap();
        let steps = vec![
            RecordedStep::Fetched { function: 1, address: 0x1000, bytes: vec![1, 2, 3] },
            RecordedStep::Stored { function: 0, address: 0x2000, length: 64 },
            RecordedStep::Interrupted { function: 1, vector: 3, at: 7 },
        ];
        assert_eq!(GuestRecording::open(&path).unwrap(), GuestRecording { head: head(), steps });
        let bytes = std::fs::read(&path).unwrap();
        for length in 0..bytes.len() {
            assert!(GuestRecording::read(&bytes[..length]).is_err(), "{length} bytes");
        }
        assert!(matches!(GuestRecording::read(&b"name = 1"[..]), Err(RecordingError::NoRecording)));
    }
}
