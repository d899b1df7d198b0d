//! Devices that must be somewhere, where sources do not say where: those of nvidia-smi's matrix, and a NIC if there is nothing at all.

use wire::pcie::Bdf;

use crate::fact::{Origin, Sourced};
use crate::model::Survey;
use crate::pci::{PciAddress, PciClass, PciFunction, PciNumber, PortKind};

/// The first segment of made-up addresses: no machine has one there.
const FIRST: u32 = 0xfff0_0000;

/// Where their facts were read: nowhere.
pub(super) const FROM: &str = "made up";

struct AssumedDevice {
    name: String,
    class: PciClass,
    vendor: u16,
    node: Option<u32>,
}

impl Survey {
    /// Gives addresses to devices that sources name without, so that those below one switch are as near to each other as a matrix has
    /// them.
    pub(crate) fn add_named_devices(&mut self) {
        let mut left: Vec<AssumedDevice> = Vec::new();
        for (name, device) in self.devices.iter().filter(|(_, device)| device.function.get().is_none()) {
            let (class, vendor) = match device.kind.get().map(String::as_str) {
                Some("gpu") => (PciClass(0x0302), 0x10de),
                Some("infiniband") => (PciClass(0x0207), 0x15b3),
                _ => continue,
            };
            left.push(AssumedDevice { name: name.clone(), class, vendor, node: device.node.value() });
        }
        if left.is_empty() || !self.plugged().is_empty() {
            return;
        }
        let mut segment = FIRST;
        // One group for each switch.
        while let Some(first) = left.pop() {
            let mut group = vec![first];
            let mut place = 0;
            while let Some(name) = group.get(place).map(|own| own.name.clone()) {
                let (near, others) =
                    left.into_iter().partition(|other| self.is_below_one_switch(&name, &other.name));
                group.extend::<Vec<_>>(near);
                left = others;
                place += 1;
            }
            group.sort_by(|a, b| a.name.cmp(&b.name));
            self.add_assumed(segment, &group);
            segment += 1;
        }
        self.doubt(
            "addresses",
            "the sources name devices without their addresses: which switch and socket each is at is as the sources have it, and the \
             addresses are made up; lspci -vvv tells them",
        );
    }

    /// Whether addresses are those that `add_named_devices` makes up.
    pub(super) fn has_made_up_addresses(&self) -> bool {
        self.functions.keys().any(|address| address.segment >= FIRST)
    }

    /// The machine with a NIC at its first node.
    pub(super) fn with_assumed_nic(&self) -> Self {
        let mut survey = self.clone();
        let nic = AssumedDevice {
            name: "nic".into(),
            class: PciClass(0x0200),
            vendor: 0,
            node: self.nodes_with_cpus().first().copied(),
        };
        survey.add_assumed(FIRST, &[nic]);
        survey
    }

    /// nvidia-smi's words for ways that pass no root: one bridge, or several.
    fn is_below_one_switch(&self, a: &str, b: &str) -> bool {
        let path = self.paths.get(&(a.to_owned(), b.to_owned()));
        path.is_some_and(|path| ["PIX", "PXB"].contains(&path.as_str()))
    }

    /// Adds a root port with a device, or with a switch that has several.
    fn add_assumed(&mut self, segment: u32, group: &[AssumedDevice]) {
        let from = Origin { source: 0, what: FROM };
        let node = group.iter().find_map(|device| device.node);
        let mut add = |bus: u8, device: u8, above: Option<PciAddress>, kind: PortKind, class: PciClass| {
            let address = PciAddress { segment, bdf: Bdf::new(bus, device, 0) };
            let mut function = PciFunction::default();
            function.class.set(class, from);
            function.kind.set(kind, from);
            above.into_iter().for_each(|above| function.parent.set(above, from));
            node.into_iter().for_each(|node| function.node.set(node as i32, from));
            self.functions.insert(address, function);
            address
        };
        const BRIDGE: PciClass = PciClass(0x0604);
        let root = add(0, 1, None, PortKind::RootPort, BRIDGE);
        let upstream = (group.len() > 1).then(|| add(1, 0, Some(root), PortKind::Upstream, BRIDGE));
        let mut addresses = Vec::new();
        // A bus has 32 devices.
        for (place, device) in group.iter().take(32).enumerate() {
            let place = place as u8;
            let above = upstream.map(|upstream| add(2, place, Some(upstream), PortKind::Downstream, BRIDGE));
            addresses.push(add(3 + place, 0, above.or(Some(root)), PortKind::Endpoint, device.class));
        }
        for (address, device) in addresses.into_iter().zip(group) {
            let function = self.functions.entry(address).or_default();
            if device.vendor != 0 {
                function.vendor.set(PciNumber(device.vendor), from);
            }
            function.name.set(device.name.clone(), from);
            let own = self.devices.entry(device.name.clone()).or_default();
            own.function = Sourced::default();
            own.function.set(address, from);
        }
    }
}
