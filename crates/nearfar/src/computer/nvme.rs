//! Identify and log pages of drives, as their driver reads them.

use kernel::BlockDevice;
use machine::ComputerSetup;
use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::kernel::TaskParams;
use wire::nvme::admin::cns;
use wire::nvme::{ALL_NAMESPACES, AdminCommand, IDENTIFY_LEN, IdentifyController, log};

use super::checks::checked;
use super::error::ComputerError;

/// Pages of a drive.
#[derive(Debug)]
pub struct NvmePages {
    /// Host name in the scenario.
    pub host: String,
    /// Name of the drive in its kernel.
    pub device: String,
    /// Pages with the nvme-cli command that shows each. Pages that the drive lacks are omitted.
    pub pages: Vec<(&'static str, Vec<u8>)>,
}

/// Boots a scenario's hosts and reads the pages of each drive. No program runs.
///
/// # Errors
/// If the computers cannot be assembled or do not boot, or cannot run the programs.
pub fn nvme_pages(setup: &ComputerSetup) -> Result<Vec<NvmePages>, ComputerError> {
    let computers = checked(setup)?;
    let mut all = Vec::new();
    for host in computers.hosts() {
        for device in host.kernel.block().devices() {
            let name = device.name().to_owned();
            let read =
                host.kernel.run(TaskParams::named("nvme"), async move |cpu| pages(&cpu, &device).await);
            let pages = computers.simulation().block_on(async move { read.wait().await })?;
            if !pages.is_empty() {
                all.push(NvmePages { host: host.name.clone(), device: name, pages });
            }
        }
    }
    Ok(all)
}

/// All pages of a drive; empty if it does not support the commands.
async fn pages(cpu: &Cpu, device: &BlockDevice) -> Vec<(&'static str, Vec<u8>)> {
    let _part = cpu.book(Part::User);
    let wanted = &device.limits().name;
    let namespace = wanted.rsplit_once('n').and_then(|(_, id)| id.parse().ok()).unwrap_or(1);
    let identify = async |cns, namespace| {
        let command = AdminCommand::Identify { cns, controller: 0 }.command(0, namespace);
        device.admin(cpu, command, IDENTIFY_LEN as u64).await
    };
    let log_page = async |log, length: usize| {
        let length = length as u64;
        let command = AdminCommand::GetLogPage { log, specific: 0, retain_event: true, length, offset: 0 };
        device.admin(cpu, command.command(0, ALL_NAMESPACES), length).await
    };
    let Ok(controller) = identify(cns::CONTROLLER, 0).await else { return Vec::new() };
    let errors = controller
        .first_chunk()
        .map_or(1, |page| usize::from(IdentifyController::parse(page).error_entries) + 1);
    let others: [(&'static str, Result<Vec<u8>, Error>); 8] = [
        ("id-ns", identify(cns::NAMESPACE, namespace).await),
        ("list-ns", identify(cns::ACTIVE_NAMESPACES, 0).await),
        ("ns-descs", identify(cns::NAMESPACE_DESCRIPTORS, namespace).await),
        ("error-log", log_page(log::ERROR, log::ERROR_LEN * errors).await),
        ("smart-log", log_page(log::SMART, log::SMART_LEN).await),
        ("fw-log", log_page(log::FIRMWARE_SLOT, log::FIRMWARE_SLOT_LEN).await),
        ("changed-ns-list-log", log_page(log::CHANGED_NAMESPACES, log::CHANGED_NAMESPACES_LEN).await),
        ("effects-log", log_page(log::COMMAND_EFFECTS, log::COMMAND_EFFECTS_LEN).await),
    ];
    let others = others.into_iter().filter_map(|(name, page)| Some((name, page.ok()?)));
    std::iter::once(("id-ctrl", controller)).chain(others).collect()
}
