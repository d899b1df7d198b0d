//! Reads of a drive from user space (section 7.4, Figure 19): 1024 sequential blocks, 8 random blocks.

use super::Values;
use super::topology::{MACHINE, adapter, cluster_by, device, guest, host, switch};
use crate::Options;
use crate::rig::{Rig, of};

/// User-space drivers.
const OWN: &str = "[host.nvme_driver]\nuser_space = true\n";

/// The drive below a switch on the board, as in all lenders of the paper (Figures 9 and 11), with user-space drivers.
fn drive() -> String {
    switch(0) + &device("drive", "drive = \"optane-900p\"", "sw0:1")
}

/// Reads by the first host.
fn reads(options: &Options, text: &str, name: &str) -> Result<Values, String> {
    let rig = Rig::boot(options, "device-lending", text)?;
    let sequential = rig.run("nvm-latency --blocks=1024 --pattern=sequential --count=100")?;
    let random = rig.run("nvm-latency --blocks=8 --pattern=random --count=1000")?;
    Ok([
        (format!("drive/{name}/sequential"), of(&sequential, "bandwidth median")?),
        (format!("drive/{name}/random"), of(&random, "latency median")?),
    ]
    .into())
}

/// On the lender itself.
pub fn local(options: &Options) -> Result<Values, String> {
    reads(options, &(host("lender", MACHINE, "off") + OWN + &drive()), "NatLoc")
}

/// From a host connected back to back.
pub fn remote(options: &Options) -> Result<Values, String> {
    lent(options, "off", ("", "borrower"), "NatRem")
}

/// From a virtual machine of that host.
pub fn remote_guest(options: &Options) -> Result<Values, String> {
    lent(options, "strict", (&guest(&[]), "borrower/x"), "VMRem")
}

fn lent(options: &Options, iommu: &str, (guest, by): (&str, &str), name: &str) -> Result<Values, String> {
    let lender = host("lender", MACHINE, iommu) + &drive() + &adapter("sw0:2");
    let text = host("borrower", MACHINE, "strict")
        + OWN
        + &adapter("slot")
        + guest
        + &lender
        + &cluster_by(&["borrower", "lender"], &["lender:drive"], by);
    reads(options, &text, name)
}
