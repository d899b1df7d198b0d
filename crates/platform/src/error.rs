//! Why a service of the kernel or a device failed.

use core::fmt;

/// What a driver's or a program's request met. The names follow the error numbers of POSIX.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// ENOMEM: no memory, or no address space of the wanted kind, is left.
    NoMemory,
    /// ENODEV: the device is gone.
    NoDevice,
    /// EBUSY: somebody else has it.
    Busy,
    /// EINVAL: the request makes no sense.
    Invalid,
    /// EIO: the device reported an error or answered nonsense.
    Io,
    /// ETIMEDOUT: the device did not answer in time.
    TimedOut,
    /// EOPNOTSUPP: the device or the kernel cannot do this.
    NotSupported,
    /// ENOSPC: a table or a ring is full.
    NoSpace,
    /// ECANCELED: the request was taken back.
    Cancelled,
    /// EPERM: not allowed.
    NotPermitted,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoMemory => "out of memory",
            Self::NoDevice => "no such device",
            Self::Busy => "busy",
            Self::Invalid => "invalid argument",
            Self::Io => "input/output error",
            Self::TimedOut => "timed out",
            Self::NotSupported => "not supported",
            Self::NoSpace => "no space left",
            Self::Cancelled => "cancelled",
            Self::NotPermitted => "not permitted",
        })
    }
}

impl core::error::Error for Error {}
