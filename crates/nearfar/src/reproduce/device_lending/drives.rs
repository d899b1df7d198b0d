//! Reads of a drive from user space (section 7.4, Figure 19): 1024 blocks in a row, 8 blocks anywhere.

use super::super::Options;
use super::Values;
use super::rig::{Rig, of};
use super::topology::MACHINE;

/// The lender with its drive, which a program drives by itself.
fn host() -> String {
    format!(
        "[[host]]\nname = \"lender\"\nmachine = \"{MACHINE}\"\n[host.nvme_driver]\nuser_space = true\n\
         [[host.device]]\nname = \"drive\"\ndrive = \"optane-900p\"\nslot = \"slot\"\n"
    )
}

/// The local run.
pub fn run(options: &Options) -> Result<Values, String> {
    let rig = Rig::boot(options, &host())?;
    let sequential = rig.run(0, "nvm-latency --blocks=1024 --pattern=sequential --count=100")?;
    let random = rig.run(0, "nvm-latency --blocks=8 --pattern=random --count=1000")?;
    Ok([
        ("drive/NatLoc/sequential".to_owned(), of(&sequential, "bandwidth median")?),
        ("drive/NatLoc/random".to_owned(), of(&random, "latency median")?),
    ]
    .into())
}
