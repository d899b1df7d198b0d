//! Names of block devices, which scenarios use before a kernel gives them.

/// Folder of the names that follow from a drive's serial number, below `/dev`.
pub const BY_ID: &str = "disk/by-id/";

/// Name of a drive's namespace, counted from 1, in [`BY_ID`]: it does not depend on when the drive is found (udev:
/// `nvme-MODEL_SERIAL_NAMESPACE`, here without the model).
pub fn disk_id(serial: &str, namespace: u32) -> String {
    match namespace {
        1 => format!("nvme-{serial}"),
        other => format!("nvme-{serial}_{other}"),
    }
}

/// Whether a path below `/dev` means the block device with this kernel name and this name in [`BY_ID`], if it has one.
pub fn is_disk(path: &str, name: &str, id: Option<&str>) -> bool {
    match path.strip_prefix(BY_ID) {
        Some(wanted) => id == Some(wanted),
        None => path == name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_known_by_both_of_its_names_and_by_no_other() {
        let (first, second) = (disk_id("b:ssd", 1), disk_id("b:ssd", 2));
        for (path, name, id, is_it) in [
            ("nvme0n1", "nvme0n1", None, true),
            ("nvme0n1", "nvme1n1", Some(&*first), false),
            ("disk/by-id/nvme-b:ssd", "nvme0n1", Some(&*first), true),
            ("disk/by-id/nvme-b:ssd", "nvme0n2", Some(&*second), false),
            ("disk/by-id/nvme-b:ssd_2", "nvme0n2", Some(&*second), true),
            ("disk/by-id/nvme-b:ssd", "nvme0n1", None, false),
            ("nvme-b:ssd", "nvme0n1", Some(&*first), false),
            ("disk/by-id/nvme0n1", "nvme0n1", Some(&*first), false),
        ] {
            assert_eq!(is_disk(path, name, id), is_it, "{path}: {name}, {id:?}");
        }
    }
}
