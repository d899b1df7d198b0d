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
    /// ECONNREFUSED: nobody listens there.
    Refused,
    /// ECONNRESET: the peer gave the connection up.
    Reset,
    /// EHOSTUNREACH: no way leads there, or nobody answers.
    Unreachable,
    /// EADDRINUSE: somebody else has the port.
    AddressInUse,
    /// EPIPE: the connection has ended.
    Ended,
    /// EMSGSIZE: too long for a packet.
    TooLong,
    /// EAGAIN: it would have to wait, and was asked not to.
    WouldBlock,
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
            Self::Refused => "connection refused",
            Self::Reset => "connection reset by peer",
            Self::Unreachable => "no route to host",
            Self::AddressInUse => "address already in use",
            Self::Ended => "the connection has ended",
            Self::TooLong => "message too long",
            Self::WouldBlock => "resource temporarily unavailable",
        })
    }
}

impl core::error::Error for Error {}
