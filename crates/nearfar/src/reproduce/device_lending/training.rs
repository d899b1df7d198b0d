//! An epoch of training VGG19 on two K40c (section 7.5, Figure 21), composed from simulated steps.
//!
//! The paper gives the model, the data set (Kvasir), the GPUs, the drive and the host, and no number of images, no batch and no
//! rate. What is assumed stands here, with why. The epoch has two passes over all images, as transfer learning has them: the first
//! trains the classification block alone, the second all layers.

use super::Values;
use super::topology::{MACHINE, adapter, chassis, cluster, cluster_by, device, guest, host};
use crate::reproduce::Options;
use crate::reproduce::rig::{Rig, of};

/// Images (assumed: the first version of Kvasir, 8 classes of 500), and of each step (assumed: Keras's default).
const IMAGES: f64 = 4_000.0;
const BATCH: f64 = 32.0;
/// Bytes of the weights and of their gradients: VGG19 without its own classification block, 20.0 million of four bytes.
const WEIGHTS: f64 = 80.1e6;
/// Bytes of weights that are simulated, from which all of them follow: copies take so much longer for each byte more.
const SIMULATED: [u32; 2] = [2 << 20, 6 << 20];
/// What a K40c takes for an image, forward and in training (assumed: 39.3 GFLOP forward and twice that backward, at half of the
/// 4.29 TFLOP/s of its data sheet).
const FORWARD_US: u32 = 18_300;
const TRAINED_US: u32 = 54_900;
/// What a core takes to decode, scale and hand over an image (fitted by hand: Figure 21, NatLoc; that Keras prepares images with one
/// thread, and that the GPUs wait for them, is assumed: the paper's epochs get longer with slower GPUs).
const PREPARE_US: u32 = 88_500;
/// The same in a virtual machine (fitted by hand: Figure 21, VMLoc; exits cannot explain it, nor do four cores instead of six where
/// one thread prepares images: the paper suspects virtualisation, memory and cores without telling them apart).
const PREPARE_IN_GUEST_US: u32 = 193_900;

/// The lender with the chassis, in which both GPUs, the drive and the adapter are below one switch; and for the remote runs the
/// borrower, where the drive is its own unless a virtual machine borrows it, too.
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

/// Milliseconds of a step with all weights, where a GPU computes so long for an image.
fn step(rig: &Rig, prepare_us: u32, compute_us: u32) -> Result<f64, String> {
    let mut times = Vec::new();
    for bytes in SIMULATED {
        let line = format!("gpu-train --weights={bytes} --prepare={prepare_us}us --compute={compute_us}us");
        let report = rig.run(&line)?;
        let parts = ["load", "in", "compute", "out", "update"].map(|part| of(&report, part));
        times.push(parts.into_iter().sum::<Result<f64, String>>()?);
    }
    let [less, more] = SIMULATED.map(f64::from);
    let each = (times[1] - times[0]) / (more - less);
    Ok(times[1] + each * (WEIGHTS - more))
}

/// A run of Figure 21.
pub fn run(options: &Options, name: &str) -> Result<Values, String> {
    let rig = Rig::boot(options, "device-lending", &hosts(name))?;
    let (steps, prepare) =
        (IMAGES / BATCH, if name.starts_with("VM") { PREPARE_IN_GUEST_US } else { PREPARE_US });
    let seconds = (step(&rig, prepare, FORWARD_US)? + step(&rig, prepare, TRAINED_US)?) * steps / 1e3;
    Ok([(format!("training/{name}"), seconds), ("training/scale".to_owned(), steps)].into())
}
