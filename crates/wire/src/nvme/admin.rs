//! Admin commands (section 5): opcodes and their command doublewords, typed.

use super::command::Command;

/// Opcodes ("Opcodes for Admin Commands").
pub mod opcode {
    /// Delete I/O Submission Queue (5.6).
    pub const DELETE_SQ: u8 = 0x00;
    /// Create I/O Submission Queue (5.4).
    pub const CREATE_SQ: u8 = 0x01;
    /// Get Log Page (5.14).
    pub const GET_LOG_PAGE: u8 = 0x02;
    /// Delete I/O Completion Queue (5.5).
    pub const DELETE_CQ: u8 = 0x04;
    /// Create I/O Completion Queue (5.3).
    pub const CREATE_CQ: u8 = 0x05;
    /// Identify (5.15).
    pub const IDENTIFY: u8 = 0x06;
    /// Abort (5.1).
    pub const ABORT: u8 = 0x08;
    /// Set Features (5.21).
    pub const SET_FEATURES: u8 = 0x09;
    /// Get Features (5.13).
    pub const GET_FEATURES: u8 = 0x0a;
    /// Asynchronous Event Request (5.2).
    pub const ASYNC_EVENT_REQUEST: u8 = 0x0c;
    /// Namespace Management (5.20).
    pub const NAMESPACE_MANAGEMENT: u8 = 0x0d;
    /// Namespace Attachment (5.19).
    pub const NAMESPACE_ATTACHMENT: u8 = 0x15;
    /// Format NVM (5.23).
    pub const FORMAT: u8 = 0x80;
}

/// Identify data structures (CNS, section 5.15).
pub mod cns {
    /// Identify Namespace data structure of an attached namespace.
    pub const NAMESPACE: u8 = 0x00;
    /// Identify Controller data structure.
    pub const CONTROLLER: u8 = 0x01;
    /// Active namespaces after the given one.
    pub const ACTIVE_NAMESPACES: u8 = 0x02;
    /// Namespace identification descriptors.
    pub const NAMESPACE_DESCRIPTORS: u8 = 0x03;
    /// Allocated namespaces after the given one.
    pub const ALLOCATED_NAMESPACES: u8 = 0x10;
    /// Identify Namespace data structure of an allocated namespace.
    pub const ALLOCATED_NAMESPACE: u8 = 0x11;
    /// Controllers attached to a namespace.
    pub const ATTACHED_CONTROLLERS: u8 = 0x12;
    /// Controllers of the subsystem.
    pub const CONTROLLERS: u8 = 0x13;
}

/// An admin command without identifier and data pointer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AdminCommand {
    /// Deletes an I/O submission queue (5.6).
    DeleteSubmissionQueue {
        /// Queue identifier.
        queue: u16,
    },
    /// Creates an I/O submission queue (5.4).
    CreateSubmissionQueue {
        /// Queue identifier.
        queue: u16,
        /// Number of entries, minus one.
        size: u16,
        /// Physically contiguous.
        contiguous: bool,
        /// 0 urgent, 1 high, 2 medium, 3 low.
        priority: u8,
        /// Completion queue to use.
        completion_queue: u16,
    },
    /// Reads a log (5.14).
    GetLogPage {
        /// Log page identifier.
        log: u8,
        /// Log-specific field.
        specific: u8,
        /// Do not clear the event that announced this log.
        retain_event: bool,
        /// Bytes to transfer.
        length: u64,
        /// Start offset in the log in bytes.
        offset: u64,
    },
    /// Deletes an I/O completion queue (5.5).
    DeleteCompletionQueue {
        /// Queue identifier.
        queue: u16,
    },
    /// Creates an I/O completion queue (5.3).
    CreateCompletionQueue {
        /// Queue identifier.
        queue: u16,
        /// Number of entries, minus one.
        size: u16,
        /// Physically contiguous.
        contiguous: bool,
        /// Enables interrupts.
        interrupts: bool,
        /// Interrupt vector.
        vector: u16,
    },
    /// Reads an identify data structure (5.15).
    Identify {
        /// Data structure to return, one of [`cns`].
        cns: u8,
        /// Controller that the request refers to.
        controller: u16,
    },
    /// Aborts a command (5.1).
    Abort {
        /// Its submission queue.
        queue: u16,
        /// Its identifier.
        id: u16,
    },
    /// Changes a feature (5.21).
    SetFeatures {
        /// Feature identifier.
        feature: u8,
        /// Keep the value across resets and power cycles.
        save: bool,
        /// The value (doubleword 11).
        value: u32,
    },
    /// Asks for a feature's value (5.13).
    GetFeatures {
        /// Feature identifier.
        feature: u8,
        /// Value to return: 0 current, 1 default, 2 saved, 3 capabilities.
        select: u8,
        /// Doubleword 11, which some features use.
        value: u32,
    },
    /// Waits for an event (5.2).
    AsyncEventRequest,
    /// Creates (0) or deletes (1) a namespace (5.20).
    NamespaceManagement {
        /// 0 creates, 1 deletes.
        select: u8,
    },
    /// Attaches (0) a namespace to controllers or detaches (1) it (5.19).
    NamespaceAttachment {
        /// 0 attaches, 1 detaches.
        select: u8,
    },
    /// Formats namespaces (5.23).
    Format {
        /// LBA format.
        format: u8,
        /// Secure erase: 0 none, 1 user data, 2 cryptographic.
        secure_erase: u8,
        /// Protection information and metadata settings, bits 8 to 4 of doubleword 10.
        protection: u8,
    },
}

impl AdminCommand {
    /// Decodes a queue entry; `None` if the opcode is not supported.
    pub fn parse(command: &Command) -> Option<Self> {
        let (dw10, dw11) = (command.word(10), command.word(11));
        let low = dw10 as u16;
        let high = (dw10 >> 16) as u16;
        Some(match command.opcode {
            opcode::DELETE_SQ => Self::DeleteSubmissionQueue { queue: low },
            opcode::CREATE_SQ => Self::CreateSubmissionQueue {
                queue: low,
                size: high,
                contiguous: dw11 & 1 == 1,
                priority: (dw11 >> 1) as u8 & 3,
                completion_queue: (dw11 >> 16) as u16,
            },
            opcode::GET_LOG_PAGE => {
                let doublewords = u64::from(high) | u64::from(dw11 as u16) << 16;
                Self::GetLogPage {
                    log: dw10 as u8,
                    specific: (dw10 >> 8) as u8 & 0xf,
                    retain_event: dw10 >> 15 & 1 == 1,
                    length: (doublewords + 1) * 4,
                    offset: u64::from(command.word(12)) | u64::from(command.word(13)) << 32,
                }
            }
            opcode::DELETE_CQ => Self::DeleteCompletionQueue { queue: low },
            opcode::CREATE_CQ => Self::CreateCompletionQueue {
                queue: low,
                size: high,
                contiguous: dw11 & 1 == 1,
                interrupts: dw11 >> 1 & 1 == 1,
                vector: (dw11 >> 16) as u16,
            },
            opcode::IDENTIFY => Self::Identify { cns: dw10 as u8, controller: high },
            opcode::ABORT => Self::Abort { queue: low, id: high },
            opcode::SET_FEATURES => {
                Self::SetFeatures { feature: dw10 as u8, save: dw10 >> 31 == 1, value: dw11 }
            }
            opcode::GET_FEATURES => {
                Self::GetFeatures { feature: dw10 as u8, select: (dw10 >> 8) as u8 & 7, value: dw11 }
            }
            opcode::ASYNC_EVENT_REQUEST => Self::AsyncEventRequest,
            opcode::NAMESPACE_MANAGEMENT => Self::NamespaceManagement { select: dw10 as u8 & 0xf },
            opcode::NAMESPACE_ATTACHMENT => Self::NamespaceAttachment { select: dw10 as u8 & 0xf },
            opcode::FORMAT => Self::Format {
                format: dw10 as u8 & 0xf,
                secure_erase: (dw10 >> 9) as u8 & 7,
                protection: (dw10 >> 4) as u8 & 0x1f,
            },
            _ => return None,
        })
    }

    /// The value of [`opcode`] in its doubleword 0.
    pub const fn opcode(&self) -> u8 {
        match self {
            Self::DeleteSubmissionQueue { .. } => opcode::DELETE_SQ,
            Self::CreateSubmissionQueue { .. } => opcode::CREATE_SQ,
            Self::GetLogPage { .. } => opcode::GET_LOG_PAGE,
            Self::DeleteCompletionQueue { .. } => opcode::DELETE_CQ,
            Self::CreateCompletionQueue { .. } => opcode::CREATE_CQ,
            Self::Identify { .. } => opcode::IDENTIFY,
            Self::Abort { .. } => opcode::ABORT,
            Self::SetFeatures { .. } => opcode::SET_FEATURES,
            Self::GetFeatures { .. } => opcode::GET_FEATURES,
            Self::AsyncEventRequest => opcode::ASYNC_EVENT_REQUEST,
            Self::NamespaceManagement { .. } => opcode::NAMESPACE_MANAGEMENT,
            Self::NamespaceAttachment { .. } => opcode::NAMESPACE_ATTACHMENT,
            Self::Format { .. } => opcode::FORMAT,
        }
    }

    /// A queue entry without data pointer.
    pub fn command(&self, id: u16, namespace: u32) -> Command {
        let pair = |low: u16, high: u16| u32::from(low) | u32::from(high) << 16;
        let words = match *self {
            Self::DeleteSubmissionQueue { queue } | Self::DeleteCompletionQueue { queue } => {
                [pair(queue, 0), 0, 0, 0, 0, 0]
            }
            Self::CreateSubmissionQueue { queue, size, contiguous, priority, completion_queue } => {
                let flags = u16::from(contiguous) | u16::from(priority & 3) << 1;
                [pair(queue, size), pair(flags, completion_queue), 0, 0, 0, 0]
            }
            Self::GetLogPage { log, specific, retain_event, length, offset } => {
                let doublewords = (length / 4).saturating_sub(1);
                let low = u16::from(log) | u16::from(specific & 0xf) << 8 | u16::from(retain_event) << 15;
                let length = [doublewords as u16, (doublewords >> 16) as u16];
                [pair(low, length[0]), u32::from(length[1]), offset as u32, (offset >> 32) as u32, 0, 0]
            }
            Self::CreateCompletionQueue { queue, size, contiguous, interrupts, vector } => {
                let flags = u16::from(contiguous) | u16::from(interrupts) << 1;
                [pair(queue, size), pair(flags, vector), 0, 0, 0, 0]
            }
            Self::Identify { cns, controller } => [pair(u16::from(cns), controller), 0, 0, 0, 0, 0],
            Self::Abort { queue, id } => [pair(queue, id), 0, 0, 0, 0, 0],
            Self::SetFeatures { feature, save, value } => {
                [u32::from(feature) | u32::from(save) << 31, value, 0, 0, 0, 0]
            }
            Self::GetFeatures { feature, select, value } => {
                [u32::from(feature) | u32::from(select & 7) << 8, value, 0, 0, 0, 0]
            }
            Self::AsyncEventRequest => [0; 6],
            Self::NamespaceManagement { select } | Self::NamespaceAttachment { select } => {
                [u32::from(select & 0xf), 0, 0, 0, 0, 0]
            }
            Self::Format { format, secure_erase, protection } => {
                let word = u32::from(format & 0xf)
                    | u32::from(protection & 0x1f) << 4
                    | u32::from(secure_erase & 7) << 9;
                [word, 0, 0, 0, 0, 0]
            }
        };
        Command::new(self.opcode(), id, namespace, words)
    }
}
