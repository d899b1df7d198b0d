//! Slices on tracks over time, and the stories that connect them.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use units::Time;

/// A track of the timeline: a thread of a process, in trace viewer terms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Track {
    /// Group: a host, a link or a device.
    pub process: String,
    /// Its own name.
    pub name: String,
}

/// Details of a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Details {
    /// None besides the name.
    #[default]
    None,
    /// A property and its value.
    One(&'static str, Rc<str>),
    /// All fields of a packet, by its index in the capture.
    Packet(usize),
}

/// An interval on a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The track's index.
    pub track: usize,
    /// Start.
    pub begin: Time,
    pub end: Time,
    /// Text shown on it.
    pub name: Rc<str>,
    /// What is shown when it is selected.
    pub details: Details,
    /// Stories that include it.
    pub flows: Vec<u64>,
}

/// Tracks and their slices.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Tracks in display order.
    pub tracks: Vec<Track>,
    /// Slices in no particular order.
    pub slices: Vec<Slice>,
    next_flow: u64,
    /// Index of each track, by process and name.
    places: FxHashMap<String, FxHashMap<String, usize>>,
}

impl Timeline {
    /// Finds or creates a track.
    pub fn track(&mut self, process: &str, name: &str) -> usize {
        if let Some(&place) = self.places.get(process).and_then(|tracks| tracks.get(name)) {
            return place;
        }
        let place = self.tracks.len();
        self.tracks.push(Track { process: process.to_owned(), name: name.to_owned() });
        self.places.entry(process.to_owned()).or_default().insert(name.to_owned(), place);
        place
    }

    /// Adds a slice. Returns its index.
    pub fn slice(&mut self, track: usize, (begin, end): (Time, Time), name: impl Into<Rc<str>>) -> usize {
        self.slices.push(Slice {
            track,
            begin,
            end,
            name: name.into(),
            details: Details::None,
            flows: Vec::new(),
        });
        self.slices.len() - 1
    }

    /// Allocates a story number.
    pub fn flow(&mut self) -> u64 {
        self.next_flow += 1;
        self.next_flow
    }

    /// Slices of each story, in order of time.
    pub fn stories(&self) -> BTreeMap<u64, Vec<usize>> {
        let mut stories: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (index, slice) in self.slices.iter().enumerate() {
            for &flow in &slice.flows {
                stories.entry(flow).or_default().push(index);
            }
        }
        for slices in stories.values_mut() {
            slices.sort_by_key(|&index| (self.slices[index].begin, index));
        }
        stories
    }
}
