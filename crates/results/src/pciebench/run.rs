//! The test and parameters of a row.

use core::fmt;
use core::str::FromStr;
use serde::{Deserialize, Serialize};
use units::Bytes;

/// A word that is not in pcie-bench's vocabulary.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not one of {allowed}")]
pub struct UnknownWord {
    /// The word as given.
    pub text: String,
    /// The words that would be valid, for the message.
    pub allowed: String,
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$vdoc])* #[serde(rename = $word)] $variant,)+
        }
        impl $name {
            /// All values, in pcie-bench's order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];
            /// The word used in CSV files.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.as_str())
            }
        }
        impl FromStr for $name {
            type Err = UnknownWord;
            fn from_str(text: &str) -> Result<Self, UnknownWord> {
                match text {
                    $($word => Ok(Self::$variant),)+
                    _ => Err(UnknownWord { text: text.into(), allowed: [$($word),+].join(", ") }),
                }
            }
        }
    };
}

words! {
    /// The micro-benchmark. Latency tests have one transaction in flight, bandwidth tests as many as the device
    /// supports.
    Test {
        /// Read latency of the device's command interface.
        LatCmdRd = "LAT_CMD_RD",
        /// Latency of a posted write followed by a read of the same address, command interface.
        LatCmdWrRd = "LAT_CMD_WRRD",
        /// Read latency of the device's DMA engine.
        LatDmaRd = "LAT_DMA_RD",
        /// Latency of a posted write followed by a read of the same address, DMA engine.
        LatDmaWrRd = "LAT_DMA_WRRD",
        /// Read bandwidth.
        BwDmaRd = "BW_DMA_RD",
        /// Write bandwidth.
        BwDmaWr = "BW_DMA_WR",
        /// Bandwidth of alternating reads and writes, counted per direction.
        BwDmaRw = "BW_DMA_RW",
    }
}

words! {
    /// The order in which a window is accessed.
    Pattern {
        /// In ascending order.
        Sequential = "Seq",
        /// In random order.
        Random = "Rand",
    }
}

words! {
    /// Preparation of the host's caches before the test.
    Cache {
        /// The host thrashed its last-level cache.
        Cold = "Cold",
        /// The device accessed other memory to evict the window.
        DeviceThrash = "DThrash",
        /// The device wrote the window first.
        DeviceWarm = "DWarm",
        /// A program on the host wrote the window first.
        HostWarm = "HWarm",
    }
}

impl Test {
    /// Whether the test measures latency; otherwise it measures bandwidth.
    pub const fn is_latency(self) -> bool {
        matches!(self, Self::LatCmdRd | Self::LatCmdWrRd | Self::LatDmaRd | Self::LatDmaWrRd)
    }
    /// Whether the test uses the command interface rather than the DMA engine.
    pub const fn is_command(self) -> bool {
        matches!(self, Self::LatCmdRd | Self::LatCmdWrRd)
    }
}

/// The parameters of one row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Run {
    /// The micro-benchmark.
    pub test: Test,
    /// The order of accesses.
    pub pattern: Pattern,
    /// The state of the caches.
    pub cache: Cache,
    /// Offset from a cache line's start in host memory, in bytes.
    pub host_offset: u64,
    /// Offset from a cache line's start in device memory, in bytes.
    pub device_offset: u64,
    /// The accessed part of the host buffer.
    pub window: Bytes,
    /// The size of one transaction.
    pub transfer: Bytes,
}

/// The host buffer of pcie-bench: 16 chunks of 4 MiB.
const BUFFER_BYTES: u64 = 64 << 20;
/// Maximum size of a transfer including its host offset; the firmware rejects more.
const UNIT_BYTES: u64 = 4096;

impl Run {
    /// Checks that pcie-bench could have run this: its firmware rejects a transfer that, including its host offset,
    /// exceeds 4 KiB or the window, and its buffer has 64 MiB.
    ///
    /// # Errors
    /// What is impossible, and the limit.
    pub fn check(&self) -> Result<(), String> {
        let (transfer, window, offset) = (self.transfer.get(), self.window.get(), self.host_offset);
        let far = transfer.saturating_add(offset);
        let at = if offset == 0 { String::new() } else { format!(" at host offset {offset} B") };
        if transfer == 0 {
            return Err("a transfer size of zero".into());
        }
        if window < far {
            return Err(format!(
                "a window of {} is smaller than a transfer of {}{at}",
                self.window, self.transfer
            ));
        }
        if window > BUFFER_BYTES {
            let buffer = Bytes::new(BUFFER_BYTES);
            return Err(format!(
                "a window of {} is larger than pcie-bench's buffer of {buffer}",
                self.window
            ));
        }
        if far > UNIT_BYTES {
            let page = Bytes::new(UNIT_BYTES);
            return Err(format!(
                "a transfer of {}{at} ends beyond {page}, which pcie-bench refuses",
                self.transfer
            ));
        }
        if self.device_offset >= UNIT_BYTES {
            return Err(format!("a device offset of {} B is more than a page", self.device_offset));
        }
        Ok(())
    }
}

impl fmt::Display for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, pattern, cache, host_offset, device_offset, window, transfer } = self;
        write!(f, "{test} {pattern} {cache}, {transfer} in {window}")?;
        if *host_offset != 0 {
            write!(f, ", host offset {host_offset} B")?;
        }
        if *device_offset != 0 {
            write!(f, ", device offset {device_offset} B")?;
        }
        Ok(())
    }
}
