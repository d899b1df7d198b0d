//! Functions that this host lends and borrows by the modules `linux/nearfar_lender` and `linux/nearfar_borrower`, through files in sysfs.

use std::io;

use serde::Serialize;

use crate::root::HostRoot;

const DRIVERS: &str = "/sys/bus/pci/drivers";
const DEVICES: &str = "/sys/bus/pci/devices";
/// The driver of NTB adapters, and the one that a function has while it is lent.
const ADAPTERS: &str = "/sys/bus/pci/drivers/nearfar_ntb";
const LENT: &str = "nearfar_lent";
/// What the module says of a function that nobody has borrowed.
const FREE: &str = "free";

/// A function that can be used over the cable, or is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct SharedFunction {
    /// Whose it is.
    pub owner: FunctionOwner,
    /// Its address: with the domain on this host, without on another one; if there are several, with the node behind `@`.
    pub address: String,
    /// Its IDs of vendor and device, such as `8086:2700`.
    pub device: String,
    /// `offered` here; `free` or `leased` there; the driver of a borrowed one, or `without a driver`.
    pub state: String,
    /// The NTB adapter that leads to its owner.
    pub adapter: Option<String>,
}

/// Whose a shared function is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FunctionOwner {
    /// This host, which lends it.
    This,
    /// The host at the other end of the cable.
    Other,
    /// The other host, from which this one has borrowed it; the address is the one that it has here.
    Borrowed,
}

/// Why a function is not lent, borrowed or returned.
#[derive(Debug, thiserror::Error)]
pub enum ExchangeError {
    /// There is no driver of adapters.
    #[error(
        "nothing is lent or borrowed without the modules nearfar_ntb, nearfar_lender and nearfar_borrower: `insmod` them (linux/README.md says how they are built)"
    )]
    NoModule,
    /// An adapter without a partner.
    #[error(
        "the other end of {0}'s cable does not answer: is it plugged in, and is the module loaded there? ({1})"
    )]
    NoPartner(String, io::Error),
    /// No such function.
    #[error("there is no function {0}{1}")]
    Unknown(String, String),
    /// Somebody has it.
    #[error("{0} is leased already")]
    Leased(String),
    /// The kernel refuses to let it go.
    #[error("{0} is in use: unmount its file systems or take its interface down first")]
    InUse(String),
    /// The kernel refuses.
    #[error("{0}: the kernel refuses `{1}`: {2}")]
    Refused(String, String, io::Error),
    /// Only root may.
    #[error("only root may write to {0}")]
    NotRoot(String),
}

/// The lending and borrowing of a host.
#[derive(Debug)]
pub struct LendingHost {
    root: HostRoot,
}

fn is_address(name: &str) -> bool {
    name.len() >= 12 && name.chars().all(|c| c.is_ascii_hexdigit() || matches!(c, ':' | '.'))
}

/// How the module wants a remote function named; people also write a domain of zeros.
fn remote(address: &str) -> &str {
    address.strip_prefix("0000:").unwrap_or(address)
}

impl LendingHost {
    /// Lending on a host.
    ///
    /// # Errors
    /// If the module is not loaded.
    pub fn new(root: HostRoot) -> Result<Self, ExchangeError> {
        if root.exists(ADAPTERS) { Ok(Self { root }) } else { Err(ExchangeError::NoModule) }
    }

    /// Addresses below a folder.
    fn addresses(&self, folder: &str) -> Vec<String> {
        self.root.list(folder).into_iter().filter(|name| is_address(name)).collect()
    }

    fn device(&self, folder: &str) -> String {
        let id = |file: &str| {
            let text = self.root.text(&format!("{folder}/{file}")).unwrap_or_default();
            text.trim_start_matches("0x").to_owned()
        };
        format!("{}:{}", id("vendor"), id("device"))
    }

    /// What is lent here, and through each adapter what the other host lends and this one has borrowed; and adapters whose
    /// other end does not answer.
    pub fn functions(&self) -> (Vec<SharedFunction>, Vec<ExchangeError>) {
        let offered =
            self.addresses(&format!("{DRIVERS}/{LENT}")).into_iter().map(|address| SharedFunction {
                owner: FunctionOwner::This,
                device: self.device(&format!("{DEVICES}/{address}")),
                state: "offered".to_owned(),
                adapter: None,
                address,
            });
        let (mut all, mut problems): (Vec<_>, _) = (offered.collect(), Vec::new());
        for adapter in self.addresses(ADAPTERS) {
            match self.remote(&adapter) {
                Ok(lent) => all.extend(lent),
                Err(problem) => problems.push(problem),
            }
            all.extend(self.borrowed(&adapter));
        }
        (all, problems)
    }

    fn remote(&self, adapter: &str) -> Result<Vec<SharedFunction>, ExchangeError> {
        let file = format!("{ADAPTERS}/{adapter}/lent");
        // A host that only lends.
        if !self.root.exists(&file) {
            return Ok(Vec::new());
        }
        let text = self.root.read(&file);
        let text = text.map_err(|error| ExchangeError::NoPartner(adapter.to_owned(), error))?;
        let function = |line: &str| {
            let mut words = line.split_whitespace().map(str::to_owned);
            let (address, device, state) = (words.next()?, words.next()?, words.next()?);
            let adapter = Some(adapter.to_owned());
            Some(SharedFunction { owner: FunctionOwner::Other, address, device, state, adapter })
        };
        Ok(text.lines().filter_map(function).collect())
    }

    /// Functions on the buses below an adapter.
    fn borrowed(&self, adapter: &str) -> Vec<SharedFunction> {
        let above = format!("{ADAPTERS}/{adapter}");
        let buses = self.root.list(&above).into_iter().filter(|name| name.starts_with("pci"));
        let folders = buses.map(|bus| format!("{above}/{bus}"));
        let functions = folders.flat_map(|bus| {
            self.addresses(&bus).into_iter().map(move |address| (format!("{bus}/{address}"), address))
        });
        let function = |(folder, address): (String, String)| SharedFunction {
            owner: FunctionOwner::Borrowed,
            device: self.device(&folder),
            state: self.root.leads_to(&format!("{folder}/driver")).unwrap_or("without a driver".to_owned()),
            adapter: Some(adapter.to_owned()),
            address,
        };
        functions.map(function).collect()
    }

    fn write(&self, function: &str, file: &str, text: &str) -> Result<(), ExchangeError> {
        self.root.write(file, text).map_err(|error| match error.kind() {
            io::ErrorKind::ResourceBusy => ExchangeError::InUse(function.to_owned()),
            io::ErrorKind::PermissionDenied => ExchangeError::NotRoot(file.to_owned()),
            _ => ExchangeError::Refused(function.to_owned(), file.to_owned(), error),
        })
    }

    /// The folder of a function of this host.
    fn own(&self, address: &str) -> Result<String, ExchangeError> {
        let folder = format!("{DEVICES}/{address}");
        if is_address(address) && self.root.exists(&folder) {
            return Ok(folder);
        }
        let help = " on this host; `lspci -D` lists them".to_owned();
        Err(ExchangeError::Unknown(address.to_owned(), help))
    }

    /// Takes a function from its driver and lends it. If that fails, its driver has it again.
    ///
    /// # Errors
    /// If there is no such function, or the kernel refuses.
    pub fn offer(&self, address: &str) -> Result<(), ExchangeError> {
        let folder = self.own(address)?;
        let driver = self.root.leads_to(&format!("{folder}/driver"));
        if driver.as_deref() == Some(LENT) {
            return Ok(());
        }
        if driver.is_some() {
            self.write(address, &format!("{folder}/driver/unbind"), address)?;
        }
        let bound = self
            .write(address, &format!("{folder}/driver_override"), LENT)
            .and_then(|()| self.write(address, &format!("{DRIVERS}/{LENT}/bind"), address));
        bound.inspect_err(|_| drop(self.give_to_its_driver(address, &folder)))
    }

    /// Takes a lent function back, whether or not the other host uses it, and gives it to its own driver.
    ///
    /// # Errors
    /// If it is not lent, or the kernel refuses.
    pub fn revoke(&self, address: &str) -> Result<(), ExchangeError> {
        let folder = self.own(address)?;
        if self.root.leads_to(&format!("{folder}/driver")).as_deref() != Some(LENT) {
            return Err(ExchangeError::Unknown(address.to_owned(), " that is lent".to_owned()));
        }
        self.write(address, &format!("{DRIVERS}/{LENT}/unbind"), address)?;
        self.give_to_its_driver(address, &folder)
    }

    fn give_to_its_driver(&self, address: &str, folder: &str) -> Result<(), ExchangeError> {
        self.write(address, &format!("{folder}/driver_override"), "")?;
        self.write(address, "/sys/bus/pci/drivers_probe", address)
    }

    /// A function that the other host lends, and its adapter's folder.
    fn lent(&self, address: &str) -> Result<(SharedFunction, String), ExchangeError> {
        let mut there = Vec::new();
        for adapter in self.addresses(ADAPTERS) {
            let folder = format!("{ADAPTERS}/{adapter}");
            let mut lent = self.remote(&adapter)?;
            if let Some(found) = lent.iter().position(|function| function.address == address) {
                return Ok((lent.swap_remove(found), folder));
            }
            there.extend(lent.into_iter().map(|function| function.address));
        }
        let help = match there.is_empty() {
            true => " at the other host, which lends none (`nearfar lend offer` there)".to_owned(),
            false => format!(" at the other host; it lends {}", there.join(", ")),
        };
        Err(ExchangeError::Unknown(address.to_owned(), help))
    }

    /// Borrows a function of the other host, named as there.
    ///
    /// # Errors
    /// If it is not lent, somebody has it, or the kernel refuses.
    pub fn borrow(&self, address: &str) -> Result<(), ExchangeError> {
        let (function, adapter) = self.lent(remote(address))?;
        if function.state != FREE {
            return Err(ExchangeError::Leased(function.address));
        }
        self.write(&function.address, &format!("{adapter}/borrow"), &function.address)
    }

    /// Returns a borrowed function, named as at the other host.
    ///
    /// # Errors
    /// If it is not borrowed, or in use here.
    pub fn give_back(&self, address: &str) -> Result<(), ExchangeError> {
        let (function, adapter) = self.lent(remote(address))?;
        if function.state == FREE {
            return Err(ExchangeError::Unknown(function.address, " that is borrowed".to_owned()));
        }
        self.write(&function.address, &format!("{adapter}/return"), &function.address)
    }
}
