//! Named settings: plain types used by both machine and scenario files and the models, and the names that both give to
//! block devices.

mod disk;
mod isolation;

pub use disk::{BY_ID, disk_id, is_disk};
pub use isolation::{FunctionHolder, FunctionReach, IsolationRefusal, ReachExtent, isolation};

/// An enumeration whose variants have one spelling in files and messages.
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
            /// All variants with their spellings.
            pub const ALL: &'static [(&'static str, Self)] = &[$( ($spelling, Self::$variant) ),*];

            /// Spelling in files.
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
    /// IOMMU mode of a kernel.
    #[derive(Default)]
    pub enum DmaMode {
        /// Off (`iommu=off`).
        #[default]
        Off = "off",
        /// Functions use untranslated addresses (`iommu=pt`).
        PassThrough = "pass-through",
        /// Unmapped memory is inaccessible when `unmap` returns (`iommu.strict=1`).
        Strict = "strict",
        /// Unmapped memory becomes inaccessible soon after (`iommu.strict=0`).
        Lazy = "lazy",
    }
}

choices! {
    /// IOMMU mode of a run of pcie-bench.
    #[derive(Default, serde::Serialize, serde::Deserialize)]
    #[serde(rename_all = "kebab-case")]
    pub enum IommuMode {
        /// Off.
        #[default]
        Off = "off",
        /// On, with 4 KiB pages only (`intel_iommu=on,sp_off`).
        #[serde(rename = "4k")]
        Pages4k = "4k",
        /// On, with the largest pages that the IOMMU supports (`intel_iommu=on`).
        Superpages = "superpages",
    }
}

choices! {
    /// Order in which pending lines leave write-combining buffers.
    #[derive(Default)]
    pub enum EvictionOrder {
        /// In the order in which they became full or were evicted.
        #[default]
        AsTold = "as-told",
        /// In any order, as software may not rely on one (SDM 11.3.1). A line may be passed by as many others as there
        /// are combining buffers, then it leaves. Assumed: drawing afresh each time would not bound a line's wait, and
        /// hardware that selects among a few entries eventually serves the oldest.
        Any = "any",
    }
}

choices! {
    /// Replacement policy within a cache set.
    pub enum ReplacementPolicy {
        /// The least recently used line.
        Lru = "lru",
        /// A line not used since all others of its set were (one bit per line).
        NotRecentlyUsed = "not-recently-used",
        /// The line that a binary tree of last directions points to.
        TreePlru = "tree-plru",
        /// A random line.
        Random = "random",
    }
}

choices! {
    /// Whose IOMMU it is: formats of its tables and commands, and how the kernel's driver uses it.
    #[derive(Default)]
    pub enum IommuKind {
        /// Intel's VT-d.
        #[default]
        VtD = "vt-d",
        /// AMD's.
        AmdVi = "amd-vi",
        /// Arm's SMMUv3.
        SmmuV3 = "smmu-v3",
    }
}

choices! {
    /// Replacement policy within a set of a translation cache.
    #[derive(Default)]
    pub enum IotlbReplacement {
        /// The least recently used entry.
        #[default]
        Lru = "lru",
        /// The entry that a binary tree of last directions points to.
        TreePlru = "tree-plru",
        /// A random entry.
        Random = "random",
    }
}

choices! {
    /// Handling of slice hashes beyond the last slice if the number of slices is not a power of two.
    pub enum SliceFold {
        /// They wrap around: some slices get twice as many lines as others.
        Wrap = "wrap",
        /// A second hash spreads them over all slices.
        SecondHash = "second-hash",
    }
}

choices! {
    /// Notification of the LLC when a private cache evicts a line. As long as the LLC believes that a core owns a line,
    /// it snoops that core before it answers a device.
    pub enum EvictionNotice {
        /// Never: the LLC keeps treating the core as owner, even after a dirty eviction.
        Silent = "silent",
        /// Only for dirty evictions.
        Dirty = "dirty",
        /// For all evictions.
        Always = "always",
    }
}

choices! {
    /// Which other sockets a home node snoops before it answers.
    pub enum SnoopMode {
        /// All, for every line that misses in the requester's socket.
        Broadcast = "broadcast",
        /// Those that may have modified the line, according to a directory in the home node's memory, and those that
        /// share it. They are snooped while the directory is being read (opportunistic snoop broadcast).
        Directory = "directory",
        /// As `directory`, but only when the directory has been read: a modified line of another socket takes an access to
        /// memory longer (Intel from Skylake-SP).
        DirectoryFirst = "directory-first",
        /// As `directory`, from a directory that is not in memory and costs no accesses to it (AMD's probe filters).
        ProbeFilter = "probe-filter",
    }
}

choices! {
    /// Cost of a read of a line that is cached in another socket.
    pub enum RemoteHit {
        /// The cache answers, without a DRAM read.
        FromCache = "from-cache",
        /// The home node reads DRAM while it snoops the cache, and answers when both are done, so a remote hit costs as
        /// much as remote DRAM.
        AsMemory = "as-memory",
    }
}

choices! {
    /// Destination of a device's writes to another socket's memory.
    pub enum RemoteWrite {
        /// The LLC of the device's socket, as for local writes, after requesting ownership from the home node.
        AllocateAtDeviceSocket = "allocate-at-device-socket",
        /// Ownership is requested from the home node, which records it in its I/O directory cache. The line then goes
        /// to the home node's DRAM, with the directory state, and a clean copy stays in the LLC of the device's socket
        /// (US patent 9,170,946).
        WriteHomeKeepCopy = "write-home-keep-copy",
        /// The LLC of the home socket, across the interconnect.
        AllocateAtHomeSocket = "allocate-at-home-socket",
        /// DRAM, across the interconnect; cached copies are invalidated ("DDIO does not work remotely").
        ToHomeMemory = "to-home-memory",
    }
}

choices! {
    /// Order in which translations leave the IOMMU.
    #[derive(Default)]
    pub enum PipelineOrder {
        /// As soon as each is complete.
        Unordered = "unordered",
        /// Reads in the order of reads, writes in the order of writes (non-posted and posted queues).
        PerDirection = "per-direction",
        /// All in order of arrival.
        #[default]
        Global = "global",
    }
}

choices! {
    /// Use of explicit congestion notification by TCP (RFC 3168).
    #[derive(Default)]
    pub enum EcnMode {
        /// Never.
        Off = "off",
        /// If the peer asks for it.
        #[default]
        Accept = "accept",
        /// Own connections request it as well.
        Ask = "ask",
    }
}

choices! {
    /// How a core stores lines into a device's programmed I/O window.
    #[derive(Default)]
    pub enum Stores {
        /// Through write-combining buffers, which a line leaves when it is full.
        #[default]
        Combining = "combining",
        /// Uncached, eight bytes at a time.
        Uncached = "uncached",
        /// Directly, 64 bytes at a time (`movdir64b`).
        Direct = "direct",
    }
}

choices! {
    /// How a core reads frames that stay in the device.
    #[derive(Default)]
    pub enum Loads {
        /// Streaming loads of whole lines from a write-combining mapping (`movntdqa`), as many at once as the core has
        /// buffers.
        #[default]
        Streaming = "streaming",
        /// Uncached loads of eight bytes, one after the other.
        Uncached = "uncached",
    }
}

choices! {
    /// How a team uses its members.
    pub enum TeamMode {
        /// Members are functions of one card with one MAC address, each local to a node (IOctopus).
        Octo = "octo",
        /// Members are links of one channel to a switch (IEEE 802.3ad), over which flows are distributed by hash.
        Bond = "bond-802.3ad",
    }
}

choices! {
    /// What a channel's transmitter hashes to choose a member for a packet (Linux: `xmit_hash_policy`).
    #[derive(Default)]
    pub enum HashPolicy {
        /// Ethernet addresses and protocol: all packets to one station leave by one member.
        #[default]
        Layer2 = "layer2",
        /// These and IP addresses.
        Layer23 = "layer2+3",
        /// IP addresses and ports.
        Layer34 = "layer3+4",
        /// As `layer2+3`, of the inner packet in a tunnel.
        Encap23 = "encap2+3",
        /// As `layer3+4`, of the inner packet in a tunnel.
        Encap34 = "encap3+4",
        /// VLAN and source address.
        VlanSrcmac = "vlan+srcmac",
    }
}

/// Which packets a NIC's driver sends by programmed I/O rather than by descriptors, if they are short enough.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PacketSelect {
    /// None.
    #[default]
    None,
    /// All packets.
    All,
    /// Packets of TCP connections with one port in this range.
    TcpPorts {
        /// First port of the range.
        first: u16,
        /// Last port of the range, inclusive.
        last: u16,
    },
    /// Packets of at most so many bytes.
    UpTo(u32),
}
