//! The kinds of files. Everything that treats all kinds alike goes through [`KINDS`].

use std::sync::LazyLock;

use crate::computer::{ComputerScenario, device_kinds};
use crate::file_kind::FileKind;
use crate::host::Machine;
use crate::kernel::KernelFile;
use crate::ntb::ClusterSwitch;
use crate::pcie_switch::PcieSwitch;
use crate::scenario::Scenario;

/// All kinds, in the order of lists.
pub static KINDS: LazyLock<Vec<FileKind>> = LazyLock::new(|| {
    let others = [
        FileKind::of::<ClusterSwitch>(),
        FileKind::of::<PcieSwitch>(),
        FileKind::of::<KernelFile>(),
        FileKind::of::<Scenario>(),
        FileKind::of::<ComputerScenario>(),
    ];
    [FileKind::of::<Machine>()].into_iter().chain(device_kinds()).chain(others).collect()
});

impl FileKind {
    /// The kind with this word.
    pub fn by_word(word: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.word == word)
    }
}
