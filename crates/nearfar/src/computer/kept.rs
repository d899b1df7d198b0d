//! Results of programs on computers in the [`cache`].

use machine::{ComputerSetup, DeviceFile};

use super::finished::Counts;
use crate::cache;

/// Whether a scenario has no side effects, such as captures or a drive's backing file.
pub(crate) fn is_repeatable(setup: &ComputerSetup) -> bool {
    let keeps = |device: &DeviceFile| device.drive().is_some_and(|drive| drive.backing.is_some());
    let mut devices = setup.hosts.iter().flat_map(|host| &host.devices);
    setup.network.captures.is_empty() && !devices.any(|device| keeps(&device.kind))
}

/// Cache key of a scenario's results; `None` if it has side effects.
pub(super) fn key(setup: &ComputerSetup) -> Option<String> {
    if !is_repeatable(setup) {
        return None;
    }
    let mut setup = setup.clone();
    // The command line does not affect results.
    setup.network.comment.clear();
    // Nor does a folder in which nothing is written.
    setup.folder = files::Folder::default();
    cache::key("computers", &[&cache::digest(&setup)])
}

/// Gets the results for a key.
pub(super) fn get(key: Option<&str>) -> Option<Counts> {
    cache::get(key)
}

/// Stores results, unless a program failed.
pub(super) fn put(key: Option<&str>, counts: &Counts) {
    if counts.done.iter().all(|done| done.outcome.is_ok()) {
        cache::put(key, counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::computer::run_counted;
    use crate::progress::Silent;
    use machine::{ComputerScenario, Doc, Library};

    /// Results come back bit for bit.
    #[test]
    fn results_come_back_as_they_were() {
        let library = Library::built_in();
        let doc = Doc::<ComputerScenario>::load(&library, "dd-verify").unwrap();
        let setup = ComputerSetup::load(&library, &doc).unwrap_or_else(|error| panic!("{error}"));
        let counts = run_counted(&setup, &Silent).unwrap();
        let bytes = postcard::to_allocvec(&counts).unwrap();
        let back: Counts = postcard::from_bytes(&bytes).unwrap();
        assert!(!counts.done.is_empty() && !counts.links.is_empty());
        assert_eq!(format!("{counts:?}"), format!("{back:?}"));
        assert_eq!(key(&setup), None, "there is no cache here");
    }
}
