//! An epoch of training VGG19 on two K40c (section 7.5, Figure 21), composed from simulated steps.
//!
//! The paper gives the model, the data set (Kvasir), the GPUs, the drive and the host, but neither the number of
//! images nor batch size or rate. `published/device-lending.toml` states and explains the assumptions. An epoch makes
//! two passes over all images, as in transfer learning: the first trains only the classification block, the second
//! all layers.

use results::claims::ClaimFile;

use super::Values;
use super::topology::{MACHINE, adapter, chassis, cluster, cluster_by, device, guest, host};
use crate::Options;
use crate::rig::{Rig, of};

/// Bytes of weights to simulate; the full time is extrapolated, since copies scale linearly with size.
const SIMULATED: [u32; 2] = [2 << 20, 6 << 20];
/// Assumptions about the program.
#[derive(Clone, Copy, Debug)]
pub struct Training {
    /// Steps per pass.
    steps: f64,
    /// Bytes of the weights, and of their gradients.
    weights: f64,
    /// GPU time per image in each of the two passes, in microseconds.
    compute_us: [f64; 2],
    /// Core time per image, on a host and in a virtual machine.
    prepare_us: [f64; 2],
}

impl Training {
    /// Reads the assumptions from the paper's file.
    pub fn of(file: &ClaimFile) -> Self {
        let value = |name: &str| file.assumed(&format!("training/{name}"));
        Self {
            steps: value("images") / value("batch"),
            weights: value("weights"),
            compute_us: [value("forward"), value("trained")],
            prepare_us: [value("prepare"), value("prepare-in-guest")],
        }
    }

    /// A run of Figure 21.
    pub fn run(&self, options: &Options, name: &str) -> Result<Values, String> {
        let rig = Rig::boot(options, "device-lending", &hosts(name))?;
        let prepare = self.prepare_us[usize::from(name.starts_with("VM"))];
        let [first, second] = self.compute_us.map(|compute| self.step(&rig, prepare, compute));
        let seconds = (first? + second?) * self.steps / 1e3;
        Ok([(format!("training/{name}"), seconds), ("training/scale".to_owned(), self.steps)].into())
    }

    /// Milliseconds per step with all weights, for a given GPU time per image.
    fn step(&self, rig: &Rig, prepare_us: f64, compute_us: f64) -> Result<f64, String> {
        let mut times = Vec::new();
        for bytes in SIMULATED {
            let line =
                format!("gpu-train --weights={bytes} --prepare={prepare_us}us --compute={compute_us}us");
            let report = rig.run(&line)?;
            let parts = ["load", "in", "compute", "out", "update"].map(|part| of(&report, part));
            times.push(parts.into_iter().sum::<Result<f64, String>>()?);
        }
        let [less, more] = SIMULATED.map(f64::from);
        let each = (times[1] - times[0]) / (more - less);
        Ok(times[1] + each * (self.weights - more))
    }
}

/// The lender with the chassis: both GPUs, the drive and the adapter are below one switch. Remote runs add the
/// borrower; it has its own drive, unless a virtual machine borrows one.
fn hosts(name: &str) -> String {
    let gpus: String =
        (1..=2).map(|n| device(&format!("gpu{n}"), "gpu = \"k40c\"", &format!("chassis:{n}"))).collect();
    let iommu = if ["NatLoc", "NatRem-SW"].contains(&name) { "off" } else { "strict" };
    let lender = host("lender", MACHINE, iommu) + &chassis() + &gpus;
    let drive = |slot| device("drive", "drive = \"optane-p4800x\"", slot);
    match name {
        "NatLoc" => lender + &drive("chassis:3"),
        "VMLoc" => lender + &drive("chassis:3") + &guest(&["gpu1", "gpu2", "drive"]),
        "VMRem" => [
            host("borrower", MACHINE, "strict"),
            adapter("slot"),
            guest(&[]),
            lender,
            drive("chassis:3"),
            adapter("chassis:4"),
            cluster_by(
                &["borrower", "lender"],
                &["lender:gpu1", "lender:gpu2", "lender:drive"],
                "borrower/x",
            ),
        ]
        .concat(),
        _ => [
            host("borrower", MACHINE, "strict"),
            drive("slot"),
            adapter("slot.1"),
            lender,
            adapter("chassis:3"),
            cluster(&["borrower", "lender"], &["lender:gpu1", "lender:gpu2"]),
        ]
        .concat(),
    }
}
