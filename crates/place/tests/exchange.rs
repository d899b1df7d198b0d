//! Functions that are lent and borrowed, on a host as files.

use std::fs;
use std::path::PathBuf;

use place::{ExchangeError, FunctionOwner, HostRoot, LendingHost};

/// A host with a drive at 0000:01:00.0 and an adapter at 0000:02:00.0 whose partner lends two functions, one of which this
/// host has.
struct Host(tempfile::TempDir);

const BORROWED: &str = "sys/devices/pci0000:00/0000:02:00.0/pci10000:00/10000:00:00.0";

impl Host {
    fn new() -> Self {
        let host = Self(tempfile::tempdir().unwrap());
        let devices = "sys/devices/pci0000:00";
        for (place, vendor, device) in
            [(&*format!("{devices}/0000:01:00.0"), "0x8086", "0x2700"), (BORROWED, "0x144d", "0xa808")]
        {
            host.file(&format!("{place}/vendor"), vendor);
            host.file(&format!("{place}/device"), device);
            host.file(&format!("{place}/driver_override"), "(null)");
            host.link(&format!("{place}/driver"), "/sys/bus/pci/drivers/nvme");
        }
        host.file("sys/bus/pci/drivers/nvme/unbind", "");
        for file in ["bind", "unbind"] {
            host.file(&format!("sys/bus/pci/drivers/nearfar_lent/{file}"), "");
        }
        host.file("sys/bus/pci/drivers_probe", "");
        host.link("sys/bus/pci/devices/0000:01:00.0", &format!("/{devices}/0000:01:00.0"));
        host.link("sys/bus/pci/drivers/nearfar_ntb/0000:02:00.0", &format!("/{devices}/0000:02:00.0"));
        for file in ["borrow", "return"] {
            host.file(&format!("{devices}/0000:02:00.0/{file}"), "");
        }
        host.file(
            &format!("{devices}/0000:02:00.0/lent"),
            "05:00.0 10de:1234 free\n06:00.0 144d:a808 leased\n",
        );
        host
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        fs::write(self.path(name), text).unwrap();
    }

    /// A link to a place of the host.
    fn link(&self, name: &str, to: &str) {
        fs::create_dir_all(self.path(name).parent().unwrap()).unwrap();
        let _ = fs::remove_file(self.path(name));
        std::os::unix::fs::symlink(self.path(&to[1..]), self.path(name)).unwrap();
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap().trim().to_owned()
    }

    fn lending(&self) -> LendingHost {
        LendingHost::new(HostRoot::new(self.0.path()).unwrap()).unwrap()
    }
}

#[test]
fn what_is_lent_and_borrowed_is_listed() {
    let host = Host::new();
    let (listed, problems) = host.lending().functions();
    assert!(problems.is_empty());
    let found: Vec<_> =
        listed.iter().map(|one| (one.owner, &*one.address, &*one.device, &*one.state)).collect();
    let expected = [
        (FunctionOwner::Other, "05:00.0", "10de:1234", "free"),
        (FunctionOwner::Other, "06:00.0", "144d:a808", "leased"),
        (FunctionOwner::Borrowed, "10000:00:00.0", "144d:a808", "nvme"),
    ];
    assert_eq!(found, expected);
}

#[test]
fn an_adapter_without_a_partner_does_not_hide_the_rest() {
    let host = Host::new();
    let lent = host.path("sys/devices/pci0000:00/0000:02:00.0/lent");
    fs::remove_file(&lent).unwrap();
    // A host that does not borrow asks nobody.
    assert!(host.lending().functions().1.is_empty());
    fs::create_dir(&lent).unwrap();
    let (listed, problems) = host.lending().functions();
    assert_eq!(listed.iter().map(|one| one.owner).collect::<Vec<_>>(), [FunctionOwner::Borrowed]);
    assert!(matches!(&problems[..], [ExchangeError::NoPartner(adapter, _)] if adapter == "0000:02:00.0"));
}

#[test]
fn a_function_is_offered_and_revoked() {
    let host = Host::new();
    let lending = host.lending();
    lending.offer("0000:01:00.0").unwrap();
    assert_eq!(host.text("sys/bus/pci/drivers/nvme/unbind"), "0000:01:00.0");
    assert_eq!(host.text("sys/bus/pci/devices/0000:01:00.0/driver_override"), "nearfar_lent");
    assert_eq!(host.text("sys/bus/pci/drivers/nearfar_lent/bind"), "0000:01:00.0");
    // What the kernel does then.
    host.link("sys/devices/pci0000:00/0000:01:00.0/driver", "/sys/bus/pci/drivers/nearfar_lent");
    lending.revoke("0000:01:00.0").unwrap();
    assert_eq!(host.text("sys/bus/pci/drivers/nearfar_lent/unbind"), "0000:01:00.0");
    assert_eq!(host.text("sys/bus/pci/devices/0000:01:00.0/driver_override"), "");
    assert_eq!(host.text("sys/bus/pci/drivers_probe"), "0000:01:00.0");
}

#[test]
fn an_offer_that_fails_leaves_the_function_to_its_driver() {
    let host = Host::new();
    fs::remove_file(host.path("sys/bus/pci/drivers/nearfar_lent/bind")).unwrap();
    let refused = host.lending().offer("0000:01:00.0").unwrap_err();
    assert!(matches!(refused, ExchangeError::Refused(..)), "{refused}");
    assert_eq!(host.text("sys/bus/pci/devices/0000:01:00.0/driver_override"), "");
    assert_eq!(host.text("sys/bus/pci/drivers_probe"), "0000:01:00.0");
}

#[test]
fn functions_are_borrowed_and_returned_by_the_other_hosts_names() {
    let host = Host::new();
    let lending = host.lending();
    let adapter = "sys/bus/pci/drivers/nearfar_ntb/0000:02:00.0";
    lending.borrow("0000:05:00.0").unwrap();
    assert_eq!(host.text(&format!("{adapter}/borrow")), "05:00.0");
    lending.give_back("06:00.0").unwrap();
    assert_eq!(host.text(&format!("{adapter}/return")), "06:00.0");
}

#[test]
fn what_cannot_be_is_said() {
    let host = Host::new();
    let lending = host.lending();
    let said = |result: Result<(), ExchangeError>| result.unwrap_err().to_string();
    assert_eq!(said(lending.borrow("06:00.0")), "06:00.0 is leased already");
    assert_eq!(
        said(lending.borrow("07:00.0")),
        "there is no function 07:00.0 at the other host; it lends 05:00.0, 06:00.0"
    );
    assert_eq!(said(lending.give_back("05:00.0")), "there is no function 05:00.0 that is borrowed");
    assert!(said(lending.offer("0000:09:00.0")).contains("on this host"));
    assert!(said(lending.offer("../../../etc")).contains("on this host"));
    assert!(said(lending.revoke("0000:01:00.0")).contains("that is lent"));
    let without = tempfile::tempdir().unwrap();
    let missing = LendingHost::new(HostRoot::new(without.path()).unwrap()).unwrap_err();
    assert!(matches!(missing, ExchangeError::NoModule));
}
