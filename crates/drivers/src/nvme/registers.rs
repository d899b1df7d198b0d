//! The registers of a controller, and the procedures that use them (sections 3.1 and 7.6).

use platform::Error;
use platform::cpu::Cpu;
use platform::mmio::{MemoryType, Mmio};
use platform::pci::PciDevice;
use units::Duration;
use wire::nvme::registers as regs;
use wire::nvme::{AdminQueues, Capabilities, Configuration, ControllerStatus};

/// Poll interval for CSTS while the controller starts or stops (Linux: 1 to 2 ms; real controllers need tens of
/// milliseconds, and nothing else depends on it).
const LOOK: Duration = Duration::from_us(100);

pub(super) struct Registers {
    pub mmio: Mmio,
    pub capabilities: Capabilities,
}

impl Registers {
    /// Maps the registers of a controller that this driver supports.
    pub async fn new(cpu: &Cpu, device: &PciDevice) -> Result<Self, Error> {
        let mmio = device.ioremap_bar(0, MemoryType::Uncached)?;
        device.set_master(cpu, true).await;
        device.dma().set_mask(64)?;
        let bits = mmio.read_u64(cpu, regs::CAP).await;
        if bits == u64::MAX {
            return Err(Error::NoDevice);
        }
        let capabilities = Capabilities::from_bits(bits);
        if !capabilities.nvm_command_set || capabilities.min_page_shift > 0 {
            return Err(Error::NotSupported);
        }
        Ok(Self { mmio, capabilities })
    }

    /// Most entries of a queue.
    pub fn max_entries(&self) -> u16 {
        self.capabilities.max_queue_entries.saturating_add(1)
    }

    /// The controller's status; `None` if it does not answer.
    pub async fn status(&self, cpu: &Cpu) -> Option<ControllerStatus> {
        let bits = self.mmio.read_u32(cpu, regs::CSTS).await;
        (bits != u32::MAX).then(|| ControllerStatus::from_bits(bits))
    }

    /// Disables the controller, which drops all its queues.
    pub async fn disable(&self, cpu: &Cpu) -> Result<(), Error> {
        let bits = self.mmio.read_u32(cpu, regs::CC).await;
        if bits == u32::MAX {
            return Err(Error::NoDevice);
        }
        let off = Configuration { enable: false, ..Configuration::from_bits(bits) };
        self.mmio.write_u32(cpu, regs::CC, off.to_bits());
        self.wait_ready(cpu, false).await
    }

    /// Enables the controller with an admin queue of this many entries at these addresses (section 7.6.1).
    pub async fn enable(
        &self,
        cpu: &Cpu,
        entries: u16,
        submission: u64,
        completion: u64,
    ) -> Result<(), Error> {
        let sizes = AdminQueues { submission: entries - 1, completion: entries - 1 };
        self.mmio.write_u32(cpu, regs::AQA, sizes.to_bits());
        self.mmio.write_u64(cpu, regs::ASQ, submission);
        self.mmio.write_u64(cpu, regs::ACQ, completion);
        self.mmio.write_u32(cpu, regs::CC, Configuration::enabled().to_bits());
        self.wait_ready(cpu, true).await
    }

    /// Shuts the controller down cleanly, so that no data is lost when power is removed (section 7.6.2).
    pub async fn shut_down(&self, cpu: &Cpu) -> Result<(), Error> {
        let normal = Configuration { shutdown: 1, ..Configuration::enabled() };
        self.mmio.write_u32(cpu, regs::CC, normal.to_bits());
        let complete = |bits| ControllerStatus::from_bits(bits).shutdown == 2;
        self.mmio.poll_u32(cpu, regs::CSTS, LOOK, self.patience(), complete).await.map(|_| ())
    }

    /// Timeout for enable and disable.
    fn patience(&self) -> Duration {
        Duration::from_ms(500) * (u64::from(self.capabilities.timeout) + 1)
    }

    /// Waits until CSTS.RDY equals `ready` (section 3.1.5).
    async fn wait_ready(&self, cpu: &Cpu, ready: bool) -> Result<(), Error> {
        let status = self
            .mmio
            .poll_u32(cpu, regs::CSTS, LOOK, self.patience(), |bits| {
                let status = ControllerStatus::from_bits(bits);
                status.ready == ready || ready && status.fatal
            })
            .await?;
        let status = ControllerStatus::from_bits(status);
        if ready && status.fatal { Err(Error::Io) } else { Ok(()) }
    }
}
