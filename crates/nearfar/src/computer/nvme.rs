//! What drives say of themselves: the pages of Identify and of their logs, as their driver reads them.

use kernel::BlockDevice;
use machine::ComputerSetup;
use platform::Error;
use platform::cpu::{Cpu, Part};
use platform::kernel::TaskParams;
use wire::nvme::admin::cns;
use wire::nvme::{ALL_NAMESPACES, AdminCommand, IDENTIFY_LEN, IdentifyController, log};

use super::{ComputerError, Computers};

/// A drive's pages.
#[derive(Debug)]
pub struct NvmePages {
    /// The host's name in the scenario.
    pub host: String,
    /// What its kernel calls the drive.
    pub device: String,
    /// Each page with the name of the command by which nvme-cli shows it; a page that the drive does not have is not there.
    pub pages: Vec<(&'static str, Vec<u8>)>,
}

/// Boots a scenario's hosts and asks each drive for its pages. No program runs.
///
/// # Errors
/// If the computers cannot be put together or do not boot.
pub fn nvme_pages(setup: &ComputerSetup) -> Result<Vec<NvmePages>, ComputerError> {
    let computers = Computers::new(setup)?;
    computers.boot()?;
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

/// All that a drive has of them; nothing of one that knows no such commands.
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
