//! Assignment of functions to domains: root and context tables of VT-d, AMD's device table, Arm's stream table.

use super::super::entries::{ContextEntry, Features, RootEntry, TranslationType};
use super::super::ids::TableFormat;
use super::{FrameAllocator, TABLE_BYTES, TableError, TableMemory, new_table, new_tables, set_word, word};
use crate::amdvi::device;
use crate::pcie::Bdf;
use crate::smmu::stream::{self, StreamEntry};
use units::HostPhysical;

/// Tables that assign functions to domains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextTables {
    root: HostPhysical,
    features: Features,
}

/// Binary logarithm of the frames of AMD's device table, which has an entry for each requester ID.
const DEVICE_TABLE_ORDER: u8 = 9;
/// The same of the stream table entries of a bus.
const STREAMS_ORDER: u8 = 2;

impl ContextTables {
    /// Creates empty tables, which block all functions, for an IOMMU with `features`.
    ///
    /// # Errors
    /// If there is no memory for the first table.
    pub fn new(
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        features: Features,
    ) -> Result<Self, TableError> {
        let is_amd = features.format == TableFormat::AmdVi;
        let root = new_tables(memory, frames, if is_amd { DEVICE_TABLE_ORDER } else { 0 })?;
        if is_amd {
            let entries = (TABLE_BYTES << DEVICE_TABLE_ORDER) / device::ENTRY_BYTES;
            for n in 0..entries {
                set_word(memory, root + n * device::ENTRY_BYTES, device::BLOCKED[0])?;
            }
        }
        Ok(Self { root, features })
    }

    /// Value for the register with the address of the first table.
    pub const fn root(&self) -> HostPhysical {
        self.root
    }

    /// Assigns a function to a domain. Replacing a present entry takes effect after a context-cache invalidation,
    /// adding an entry at once.
    ///
    /// # Errors
    /// If there is no memory for further tables.
    pub fn set(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        function: Bdf,
        entry: ContextEntry,
    ) -> Result<(), TableError> {
        let place = match self.place(memory, function)? {
            Some(place) => place,
            None => self.add_bus(memory, frames, function)?,
        };
        match self.features.format {
            TableFormat::VtD => set_pair(memory, place, entry.encode()),
            TableFormat::AmdVi => set_pair(memory, place, device::encode(entry)),
            TableFormat::SmmuV3 if entry.translation == TranslationType::PassThrough => {
                let context = StreamEntry::context_of(word(memory, place)?);
                let none = HostPhysical::new(0);
                set_pair(memory, place, StreamEntry::Bypass.encode(context.unwrap_or(none)))
            }
            TableFormat::SmmuV3 => {
                let context = match StreamEntry::context_of(word(memory, place)?) {
                    Some(context) => context,
                    None => new_table(memory, frames)?,
                };
                set_pair(memory, context, stream::encode_context(entry, self.features))?;
                let ats = entry.translation == TranslationType::WithAts;
                set_pair(memory, place, StreamEntry::Translate { context, ats }.encode(context))
            }
        }
    }

    /// Blocks a function and returns its previous entry. Takes effect after a context-cache invalidation.
    ///
    /// # Errors
    /// If a table is outside memory.
    pub fn block(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<ContextEntry>, TableError> {
        let old = self.get(memory, function)?;
        if let Some(place) = self.place(memory, function)? {
            let [low, high] = match self.features.format {
                TableFormat::VtD => ContextEntry::BLOCKED,
                TableFormat::AmdVi => device::BLOCKED,
                TableFormat::SmmuV3 => {
                    let context = StreamEntry::context_of(word(memory, place)?);
                    StreamEntry::Abort.encode(context.unwrap_or(HostPhysical::new(0)))
                }
            };
            set_word(memory, place, low)?;
            set_word(memory, place + 8, high)?;
        }
        Ok(old)
    }

    /// The context entry of a function; `None` if it is blocked.
    ///
    /// # Errors
    /// If a table is outside memory.
    pub fn get(
        &self,
        memory: &(impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<ContextEntry>, TableError> {
        let Some(place) = self.place(memory, function)? else { return Ok(None) };
        let words = pair(memory, place)?;
        let all = Features { host_address_bits: Features::ALL.host_address_bits, ..self.features };
        Ok(match self.features.format {
            TableFormat::VtD => ContextEntry::decode(words, Features::ALL).ok(),
            TableFormat::AmdVi => device::decode(words, all).ok(),
            TableFormat::SmmuV3 => match StreamEntry::decode(words, all) {
                Ok(StreamEntry::Bypass) => Some(stream::BYPASS_ENTRY),
                Ok(StreamEntry::Translate { context, ats }) => {
                    stream::decode_context(pair(memory, context)?, ats, all).ok()
                }
                Ok(StreamEntry::Abort) | Err(_) => None,
            },
        })
    }

    /// Where the entry of a function is, if its bus has a table.
    fn place(
        &self,
        memory: &(impl TableMemory + ?Sized),
        function: Bdf,
    ) -> Result<Option<HostPhysical>, TableError> {
        let (bus, within) = (u64::from(function.bus()), u64::from(function.bits() & 0xff));
        Ok(match self.features.format {
            TableFormat::VtD => {
                let words = pair(memory, self.root + bus * 16)?;
                RootEntry::decode(words, Features::ALL).ok().map(|root| root.context_table + within * 16)
            }
            TableFormat::AmdVi => Some(self.root + u64::from(function.bits()) * device::ENTRY_BYTES),
            TableFormat::SmmuV3 => {
                let table = stream::level_2(word(memory, self.root + bus * 8)?);
                table.map(|table| table + within * stream::ENTRY_BYTES)
            }
        })
    }

    /// Adds the table of a function's bus. Returns the place of the function's entry.
    fn add_bus(
        &self,
        memory: &mut (impl TableMemory + ?Sized),
        frames: &mut (impl FrameAllocator + ?Sized),
        function: Bdf,
    ) -> Result<HostPhysical, TableError> {
        let (bus, within) = (u64::from(function.bus()), u64::from(function.bits() & 0xff));
        if self.features.format == TableFormat::SmmuV3 {
            let table = new_tables(memory, frames, STREAMS_ORDER)?;
            for n in 0..1 << stream::SPLIT {
                let [low, _] = StreamEntry::Abort.encode(HostPhysical::new(0));
                set_word(memory, table + n * stream::ENTRY_BYTES, low)?;
            }
            set_word(memory, self.root + bus * 8, stream::level_1(table))?;
            return Ok(table + within * stream::ENTRY_BYTES);
        }
        let context_table = new_table(memory, frames)?;
        set_pair(memory, self.root + bus * 16, RootEntry { context_table }.encode())?;
        Ok(context_table + within * 16)
    }
}

/// Two words in a row.
fn pair(memory: &(impl TableMemory + ?Sized), at: HostPhysical) -> Result<[u64; 2], TableError> {
    Ok([word(memory, at)?, word(memory, at + 8)?])
}

/// Writes two words in a row, the first one, which makes them valid, last.
fn set_pair(
    memory: &mut (impl TableMemory + ?Sized),
    at: HostPhysical,
    [low, high]: [u64; 2],
) -> Result<(), TableError> {
    set_word(memory, at + 8, high)?;
    set_word(memory, at, low)
}
