//! CPU time of a host, as clients and servers of network tests report it.

use std::rc::Rc;

use platform::cpu::{CpuId, Part};
use platform::kernel::Kernel;
use units::Duration;

/// Busy time of a host's cores by part.
pub(crate) type ByPart = [Duration; Part::ALL.len()];

/// Busy time so far.
pub(crate) fn busy(kernel: &Rc<dyn Kernel>) -> ByPart {
    let mut total = [Duration::ZERO; Part::ALL.len()];
    for cpu in 0..kernel.cpus() {
        for (sum, time) in total.iter_mut().zip(kernel.busy(CpuId(cpu))) {
            *sum += time;
        }
    }
    total
}

/// Busy time since `before`, all parts together.
pub(crate) fn busy_since(kernel: &Rc<dyn Kernel>, before: ByPart) -> Duration {
    busy(kernel).into_iter().zip(before).map(|(now, before)| now - before).sum()
}

/// Busy time of programs' own code since `before`.
pub(crate) fn user_since(kernel: &Rc<dyn Kernel>, before: ByPart) -> Duration {
    let all = busy(kernel).into_iter().zip(before).zip(Part::ALL);
    all.filter(|(_, part)| *part == Part::User).map(|((now, before), _)| now - before).sum()
}
