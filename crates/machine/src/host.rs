//! What a machine file says: one host.

use crate::doc::Kindred;
use crate::figure::Figure;
use crate::read::record;
use crate::scalar::Count;

record! {
    /// A host as a machine file describes it.
    pub struct Machine {
        /// The name by which it is referred to: the file's without `.toml`.
        name: String,
        /// The machine file whose contents this one changes and adds to.
        extends: Option<String>,
        /// What the machine is, in a line.
        summary: String,
        /// The host's hardware.
        host: Host,
    }
}

impl Kindred for Machine {
    const WHAT: &'static str = "machine";
    const FOLDER: &'static str = "machines";
}

record! {
    /// A host's hardware.
    pub struct Host {
        /// Number of sockets.
        sockets: Figure<Count>,
    }
}
