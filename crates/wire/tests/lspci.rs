//! An independent reader, pciutils' `lspci -F`, decodes our configuration spaces as meant.

use std::process::Command;

use needs::Need;
use wire::pcie::config::{ConfigSpace, examples, pcie_cap};

/// What lspci says about `spaces`.
fn lspci(name: &str, spaces: &[(&str, &ConfigSpace)]) -> String {
    let dump: String = spaces.iter().map(|(slot, space)| format!("{slot} function\n{space}\n")).collect();
    let file = std::env::temp_dir().join(format!("wire-{name}-{}.txt", std::process::id()));
    std::fs::write(&file, dump).expect("the temporary directory is writable");
    let output =
        Command::new("lspci").arg("-F").arg(&file).args(["-nvvv"]).output().expect("lspci is installed");
    std::fs::remove_file(&file).expect("the file was just written");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn check(text: &str, expected: &[&str]) {
    for line in expected {
        assert!(text.contains(line), "lspci does not say `{line}`:\n{text}");
    }
    for bad in ["invalid", "broken", "<?>", "Unknown"] {
        assert!(!text.contains(bad), "lspci says `{bad}`:\n{text}");
    }
}

fn endpoint() {
    let mut nic = examples::endpoint();
    nic.write(0x10, 0x0100_0000, 0xf);
    nic.write(0x14, 0x12, 0xf);
    nic.write(0x18, 0xd000_0000, 0xf);
    nic.write(4, 6, 3);
    let pcie = nic.pcie_offset().expect("it has one");
    nic.write(pcie + pcie_cap::DEVICE_CONTROL, 1 << 5 | 5 << 12 | 1 << 8, 3);
    let text = lspci("endpoint", &[("03:00.0", &nic)]);
    check(
        &text,
        &[
            "03:00.0 0200: 19ee:4000",
            "Subsystem: 19ee:4001",
            "Mem+ BusMaster+",
            "Region 0: Memory at 1201000000 (64-bit, prefetchable)",
            "Region 2: Memory at d0000000 (32-bit, non-prefetchable)",
            "Power Management version 3",
            "MSI: Enable- Count=1/8 Maskable+ 64bit+",
            "MSI-X: Enable- Count=64 Masked-",
            "Vector table: BAR=2 offset=00000000",
            "PBA: BAR=2 offset=00000800",
            "Express (v2) Endpoint, MSI 00",
            "MaxPayload 256 bytes, MaxReadReq 4096 bytes",
            "Speed 8GT/s, Width x8",
            "10BitTagComp+ 10BitTagReq+",
            "Advanced Error Reporting",
            "Device Serial Number 00-11-22-33-44-55-66-77",
            "Alternative Routing-ID Interpretation",
            "Next Function: 1",
            "Address Translation Service",
            "Invalidate Queue Depth: 00",
            "Access Control Services",
            "Single Root I/O Virtualization",
            "Initial VFs: 16, Total VFs: 16",
            "VF offset: 8, stride: 1, Device ID: 6003",
        ],
    );
}

fn root_port() {
    let mut port = examples::root_port();
    port.write(0x18, 0x0005_0300, 0xf);
    port.write(0x20, 0xdff0_d000, 0xf);
    let text = lspci("root-port", &[("00:02.0", &port)]);
    check(
        &text,
        &[
            "00:02.0 0604: 8086:2f04",
            "Bus: primary=00, secondary=03, subordinate=05",
            "Memory behind bridge: d0000000-dfffffff",
            "Express (v2) Root Port (Slot+)",
            "Speed 16GT/s, Width x16",
            "AttnBtn+ PwrCtrl+",
            "Slot #7, PowerLimit 75",
            "RootCap: CRSVisible+",
            "RootCmd: CERptEn-",
            "Access Control Services",
        ],
    );
}

needs::tests!(
    Need::Program("lspci");
    endpoint,
    root_port,
);
