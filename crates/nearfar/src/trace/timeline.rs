//! What happened when, on tracks, and which slices belong to one story.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use units::Time;

/// A row of the timeline: a thread of a process, in the words of trace viewers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Track {
    /// What it is part of: a host, a link, a device.
    pub process: String,
    /// Its own name.
    pub name: String,
}

/// More about a slice.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Details {
    /// Its name says all.
    #[default]
    None,
    /// A property with its value.
    One(&'static str, Rc<str>),
    /// All fields of a packet, by its index in the capture.
    Packet(usize),
}

/// Something that took time on a track.
#[derive(Clone, Debug, PartialEq)]
pub struct Slice {
    /// The track's index.
    pub track: usize,
    /// When it began.
    pub begin: Time,
    /// When it ended.
    pub end: Time,
    /// What it is called.
    pub name: Rc<str>,
    /// More about it.
    pub details: Details,
    /// The stories that it is part of.
    pub flows: Vec<u64>,
}

/// Tracks with their slices.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// The tracks, in the order in which they are shown.
    pub tracks: Vec<Track>,
    /// The slices, in no order.
    pub slices: Vec<Slice>,
    next_flow: u64,
    /// Where each track is, by its process and its name.
    places: FxHashMap<String, FxHashMap<String, usize>>,
}

impl Timeline {
    /// The track of that name, made if there is none.
    pub fn track(&mut self, process: &str, name: &str) -> usize {
        if let Some(&place) = self.places.get(process).and_then(|tracks| tracks.get(name)) {
            return place;
        }
        let place = self.tracks.len();
        self.tracks.push(Track { process: process.to_owned(), name: name.to_owned() });
        self.places.entry(process.to_owned()).or_default().insert(name.to_owned(), place);
        place
    }

    /// Adds a slice; gives its index.
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

    /// The number of a new story.
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
