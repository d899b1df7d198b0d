//! Errors of kernel services and devices.

use core::fmt;

/// An error for a driver or program. Names follow POSIX error numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Error {
    /// ENOMEM: out of memory or address space.
    NoMemory,
    /// ENODEV: the device does not exist or is gone.
    NoDevice,
    /// EBUSY: in use.
    Busy,
    /// EINVAL: invalid argument.
    Invalid,
    /// EIO: the device reported an error or an invalid answer.
    Io,
    /// ETIMEDOUT: no answer in time.
    TimedOut,
    /// EOPNOTSUPP: not supported by the device or the kernel.
    NotSupported,
    /// ENOSPC: a table or a ring is full.
    NoSpace,
    /// ECANCELED: the request was cancelled.
    Cancelled,
    /// EPERM: not allowed.
    NotPermitted,
    /// ECONNREFUSED: no listener.
    Refused,
    /// ECONNRESET: reset by the peer.
    Reset,
    /// EHOSTUNREACH: no route, or no answer.
    Unreachable,
    /// EADDRINUSE: the port is in use.
    AddressInUse,
    /// EPIPE: the connection has ended.
    Ended,
    /// EMSGSIZE: too long for a packet.
    TooLong,
    /// EAGAIN: would block.
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
