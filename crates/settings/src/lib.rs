//! Settings by name: plain types that machine and scenario files spell and that models use, each of them here alone.

/// A choice among names, spelt the same in files and messages.
#[macro_export]
macro_rules! choices {
    (
        $(#[$attribute:meta])*
        pub enum $name:ident {
            $( $(#[$variant_attribute:meta])* $variant:ident = $spelling:literal, )*
        }
    ) => {
        $(#[$attribute])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $( $(#[$variant_attribute])* $variant, )*
        }

        impl $name {
            /// Every choice with its spelling.
            pub const ALL: &'static [(&'static str, Self)] = &[$( ($spelling, Self::$variant) ),*];

            /// How files spell it.
            pub const fn as_str(self) -> &'static str {
                match self { $( Self::$variant => $spelling, )* }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

choices! {
    /// How a kernel uses its IOMMU.
    #[derive(Default)]
    pub enum DmaMode {
        /// Not at all (`iommu=off`).
        #[default]
        Off = "off",
        /// Every function passes with its addresses as they are (`iommu=pt`).
        PassThrough = "pass-through",
        /// Unmapped memory is out of reach when `unmap` returns (`iommu.strict=1`).
        Strict = "strict",
        /// Unmapped memory is out of reach soon (`iommu.strict=0`).
        Lazy = "lazy",
    }
}

choices! {
    /// In which order lines leave write-combining buffers that wait to.
    #[derive(Default)]
    pub enum EvictionOrder {
        /// In the order in which they were full or driven out.
        #[default]
        AsTold = "as-told",
        /// In any: the order that software may rely on is none (SDM 11.3.1). As many lines may pass one as there are
        /// buffers that combine, then it leaves: assumed, because drawing each time afresh would set no limit to a line's
        /// wait, and hardware that chooses among a few entries lets the oldest of them go at last.
        Any = "any",
    }
}

choices! {
    /// Which line of a set makes room for a new one.
    pub enum ReplacementPolicy {
        /// The least recently used line.
        Lru = "lru",
        /// A line not used since all others of its set were (one bit for each line).
        NotRecentlyUsed = "not-recently-used",
        /// The line that a binary tree of last directions points at.
        TreePlru = "tree-plru",
        /// Any line.
        Random = "random",
    }
}

choices! {
    /// What happens to slice hashes beyond the last slice, where the number of slices is not a power of two.
    pub enum SliceFold {
        /// They wrap around: some slices get twice as many lines as others.
        Wrap = "wrap",
        /// A second hash spreads them over all slices.
        SecondHash = "second-hash",
    }
}

choices! {
    /// What a private cache tells the LLC when it evicts a line. As long as the LLC believes that a core owns a line, it asks that
    /// core before it answers a device.
    pub enum EvictionNotice {
        /// Nothing: the LLC keeps believing that the core owns the line, even after a dirty eviction.
        Silent = "silent",
        /// Dirty evictions tell, clean ones are silent.
        Dirty = "dirty",
        /// All evictions tell.
        Always = "always",
    }
}

choices! {
    /// Which other sockets a home node asks for a line before it answers.
    pub enum SnoopMode {
        /// All of them, for every line that the requester's socket misses.
        Broadcast = "broadcast",
        /// Those that may have changed the line, as a directory in the home node's memory says, and those that share it. They
        /// are asked while the directory is being read (opportunistic snoop broadcast).
        Directory = "directory",
    }
}

choices! {
    /// What a read costs whose line another socket's cache holds.
    pub enum RemoteHit {
        /// The cache answers; DRAM is not read.
        FromCache = "from-cache",
        /// The home node reads DRAM while it snoops the cache and answers when both are back, so that a remote hit costs as
        /// much as remote DRAM.
        AsMemory = "as-memory",
    }
}

choices! {
    /// In which order translations leave the IOMMU.
    #[derive(Default)]
    pub enum PipelineOrder {
        /// Each as soon as it is known.
        Unordered = "unordered",
        /// Reads in the order of reads, writes in the order of writes (non-posted and posted queues).
        PerDirection = "per-direction",
        /// All in the order of their arrival.
        #[default]
        Global = "global",
    }
}

choices! {
    /// Whether TCP uses explicit congestion notification (RFC 3168).
    #[derive(Default)]
    pub enum EcnMode {
        /// Never.
        Off = "off",
        /// If the peer asks for it.
        #[default]
        Accept = "accept",
        /// Own connections ask for it, too.
        Ask = "ask",
    }
}

choices! {
    /// How a core stores lines into a device's window for programmed I/O.
    #[derive(Default)]
    pub enum Stores {
        /// Through write-combining buffers, which lines leave when they are full.
        #[default]
        Combining = "combining",
        /// Uncached, eight bytes at a time.
        Uncached = "uncached",
        /// Directly, 64 bytes at a time (`movdir64b`).
        Direct = "direct",
    }
}

choices! {
    /// How a core fetches frames that stay in the device.
    #[derive(Default)]
    pub enum Loads {
        /// Streaming loads of whole lines from a write-combining mapping (`movntdqa`), as many at once as the core has buffers.
        #[default]
        Streaming = "streaming",
        /// Uncached loads of eight bytes, one after the other.
        Uncached = "uncached",
    }
}
