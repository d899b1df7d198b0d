//! A device whose registers and firmware are written in Python, in a slot of a simulated host.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use nearfar::prototype::{Prototype as Rig, Socket};
use platform::device::{
    BarAccess, Device, DeviceBus, Dma, DmaAttributes, DmaError, Function, FunctionIndex, PortIndex, Reset,
    Token,
};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use units::{Duration, Iova, Time};
use wire::pcie::config::{ConfigSpace, PcieParams};
use wire::pcie::{Generation, Width};

use crate::failure::Failure;
use crate::file::Library;

/// Most bytes of one access or DMA request: what is larger is a mistake.
const MOST_BYTES: u32 = 1 << 20;

/// What a device asks for in one of its methods. It is done when the method has returned.
enum Asked {
    Read { address: u64, length: u32, token: u64 },
    Write { address: u64, data: Vec<u8>, token: u64 },
    Interrupt { vector: u16 },
    Wake { at: Time, token: u64 },
}

/// What a device can do to the world, for as long as one of its methods runs.
#[pyclass(module = "nearfar._nearfar")]
pub struct Bus {
    now: Time,
    asked: Vec<Asked>,
    is_over: bool,
}

impl Bus {
    fn ask(&mut self, asked: Asked) -> PyResult<()> {
        if self.is_over {
            return Err(PyValueError::new_err(
                "this bus is of a method that has returned; use the one that the method at work was given",
            ));
        }
        self.asked.push(asked);
        Ok(())
    }
}

fn bounded(length: usize) -> PyResult<u32> {
    match u32::try_from(length).ok().filter(|length| (1..=MOST_BYTES).contains(length)) {
        Some(length) => Ok(length),
        None => Err(PyValueError::new_err(format!("{length} bytes at once; from 1 to {MOST_BYTES}"))),
    }
}

#[pymethods]
impl Bus {
    /// The time, in nanoseconds since the computer was switched on.
    #[getter]
    fn now_ns(&self) -> f64 {
        self.now.since(Time::ZERO).as_ns_f64()
    }

    /// Reads memory by DMA; `read_done` brings the data.
    #[pyo3(signature = (address, length, token=0))]
    fn read(&mut self, address: u64, length: usize, token: u64) -> PyResult<()> {
        let length = bounded(length)?;
        self.ask(Asked::Read { address, length, token })
    }

    /// Writes memory by DMA; `write_done` says when the data has left the device.
    #[pyo3(signature = (address, data, token=0))]
    fn write(&mut self, address: u64, data: Vec<u8>, token: u64) -> PyResult<()> {
        bounded(data.len())?;
        self.ask(Asked::Write { address, data, token })
    }

    /// Raises an interrupt. It arrives behind the writes before it.
    #[pyo3(signature = (vector=0))]
    fn interrupt(&mut self, vector: u16) -> PyResult<()> {
        self.ask(Asked::Interrupt { vector })
    }

    /// Calls `timer` after so many nanoseconds.
    #[pyo3(signature = (delay_ns, token=0))]
    fn wake_in(&mut self, delay_ns: f64, token: u64) -> PyResult<()> {
        let at = self.now + nanoseconds(delay_ns)?;
        self.ask(Asked::Wake { at, token })
    }
}

/// A time from Python.
fn nanoseconds(ns: f64) -> PyResult<Duration> {
    // A thousand seconds are more than anybody simulates.
    match (0.0..=1e12).contains(&ns) {
        true => Ok(Duration::from_ps((ns * 1e3).round() as u64)),
        false => Err(PyValueError::new_err(format!("{ns} ns; from 0 to 1e12"))),
    }
}

/// The first exception that one of a device's methods raised.
#[derive(Clone, Default)]
struct Raised {
    error: Rc<RefCell<Option<PyErr>>>,
    is_there: Rc<Cell<bool>>,
    calls: Rc<Cell<u64>>,
}

impl Raised {
    fn keep(&self, error: PyErr) {
        self.is_there.set(true);
        self.error.borrow_mut().get_or_insert(error);
    }

    fn take(&self) -> PyResult<()> {
        self.error.borrow_mut().take().map_or(Ok(()), Err)
    }
}

/// A device in Python, as the simulator sees it.
struct Adapter {
    object: Py<PyAny>,
    config: ConfigSpace,
    raised: Raised,
}

/// What a device's class says of itself, under `name`.
fn said<T>(object: &Bound<'_, PyAny>, name: &str, wanted: &str) -> PyResult<T>
where
    T: for<'a, 'py> FromPyObject<'a, 'py>,
{
    let value = object.getattr(name)?;
    value.extract().map_err(|_| {
        let found = value.repr().map(|repr| repr.to_string()).unwrap_or_default();
        PyTypeError::new_err(format!("the device's `{name}` is {found}; it has to be {wanted}"))
    })
}

impl Adapter {
    fn new(object: &Bound<'_, PyAny>, raised: Raised) -> PyResult<Self> {
        let vendor: u16 = said(object, "vendor", "a number of 16 bits")?;
        let device: u16 = said(object, "device", "a number of 16 bits")?;
        let class: u32 = said(object, "class_code", "a number of 24 bits")?;
        let vectors: u8 = said(object, "vectors", "0, 1, 2, 4, 8, 16 or 32")?;
        let bars = object.getattr("bars")?;
        let bars = bars.cast::<PyDict>().map_err(|_| {
            PyTypeError::new_err(
                "the device's `bars` has to be a dict: a BAR's number with its size in bytes",
            )
        })?;
        let mut builder = ConfigSpace::endpoint(vendor, device, class);
        for (number, size) in bars.iter() {
            builder = builder.bar64(number.extract()?, size.extract()?, false);
        }
        builder = builder.power_management();
        if vectors > 0 {
            builder = builder.msi(vectors);
        }
        // What the link can do is the card's; this says what the function announces.
        let announced = PcieParams {
            max_payload: 4096,
            extended_tags: true,
            ..PcieParams::endpoint(Generation::Gen3, Width::X8)
        };
        let config = builder.pcie(announced).aer().build();
        let config =
            config.map_err(|error| PyValueError::new_err(format!("such a device cannot be: {error}")))?;
        Ok(Self { object: object.clone().unbind(), config, raised })
    }

    /// Calls a method of the device, unless one has failed before, and does what it asks for.
    fn call<T>(
        &mut self,
        bus: &mut dyn DeviceBus,
        method: impl FnOnce(&Bound<'_, PyAny>, &Bound<'_, Bus>) -> PyResult<T>,
    ) -> Option<T> {
        if self.raised.is_there.get() {
            return None;
        }
        self.raised.calls.set(self.raised.calls.get() + 1);
        let (outcome, asked) = Python::attach(|py| {
            let own = match Bound::new(py, Bus { now: bus.now(), asked: Vec::new(), is_over: false }) {
                Ok(own) => own,
                Err(error) => return (Err(error), Vec::new()),
            };
            let outcome = method(self.object.bind(py), &own);
            let mut own = own.borrow_mut();
            own.is_over = true;
            (outcome, std::mem::take(&mut own.asked))
        });
        for asked in asked {
            let dma = |address, length, token| Dma {
                function: FunctionIndex(0),
                address: Iova::new(address),
                length,
                token: Token(token),
                attributes: DmaAttributes::default(),
            };
            match asked {
                Asked::Read { address, length, token } => bus.read(dma(address, length, token)),
                Asked::Write { address, data, token } => {
                    bus.write(dma(address, data.len() as u32, token), &data)
                }
                Asked::Interrupt { vector } => bus.interrupt(FunctionIndex(0), vector),
                Asked::Wake { at, token } => bus.wake_at(at, Token(token)),
            }
        }
        outcome.map_err(|error| self.raised.keep(error)).ok()
    }
}

impl Device for Adapter {
    fn functions(&self) -> Vec<Function> {
        vec![Function { port: PortIndex(0), config: self.config.clone() }]
    }

    fn reset(&mut self, bus: &mut dyn DeviceBus, _reset: Reset) {
        self.call(bus, |object, bus| object.call_method1("reset", (bus,)).map(drop));
    }

    fn bar_read(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &mut [u8]) -> Duration {
        let length = data.len();
        let answer = self.call(bus, |object, bus| {
            let answer = object.call_method1("bar_read", (bus, at.bar, at.offset.get(), length))?;
            let wrong = |_| {
                let found = answer.repr().map(|repr| repr.to_string()).unwrap_or_default();
                PyTypeError::new_err(format!(
                    "bar_read gave {found}; it has to give bytes, or bytes and nanoseconds"
                ))
            };
            let (bytes, ns) = match answer.extract::<Vec<u8>>() {
                Ok(bytes) => (bytes, 0.0),
                Err(_) => answer.extract::<(Vec<u8>, f64)>().map_err(wrong)?,
            };
            match bytes.len() == length {
                true => Ok((bytes, nanoseconds(ns)?)),
                false => {
                    Err(PyValueError::new_err(format!("bar_read gave {} bytes of {length}", bytes.len())))
                }
            }
        });
        answer.map_or(Duration::ZERO, |(bytes, took)| {
            data.copy_from_slice(&bytes);
            took
        })
    }

    fn bar_write(&mut self, bus: &mut dyn DeviceBus, at: BarAccess, data: &[u8]) {
        self.call(bus, |object, bus| {
            let data = PyBytes::new(object.py(), data);
            object.call_method1("bar_write", (bus, at.bar, at.offset.get(), data)).map(drop)
        });
    }

    fn read_done(&mut self, bus: &mut dyn DeviceBus, token: Token, outcome: Result<&[u8], DmaError>) {
        self.call(bus, |object, bus| {
            let data = outcome.ok().map(|data| PyBytes::new(object.py(), data));
            object.call_method1("read_done", (bus, token.0, data)).map(drop)
        });
    }

    fn write_done(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.call(bus, |object, bus| object.call_method1("write_done", (bus, token.0)).map(drop));
    }

    fn timer(&mut self, bus: &mut dyn DeviceBus, token: Token) {
        self.call(bus, |object, bus| object.call_method1("timer", (bus, token.0)).map(drop));
    }
}

/// A booted host with a device of Python's in its slot. It belongs to the thread that made it.
#[pyclass(unsendable, module = "nearfar._nearfar")]
pub struct Prototype {
    rig: Rig,
    raised: Raised,
}

impl Prototype {
    /// What came out, unless the device raised an exception meanwhile.
    fn unless_raised<T>(&self, outcome: Result<T, nearfar::prototype::PrototypeError>) -> PyResult<T> {
        self.raised.take()?;
        if self.raised.is_there.get() {
            return Err(Failure::Run("the device has failed before; make a new prototype".into()).into());
        }
        Ok(outcome.map_err(Failure::from)?)
    }
}

#[pymethods]
impl Prototype {
    #[new]
    fn new(
        library: &Library,
        device: &Bound<'_, PyAny>,
        machine: &str,
        card: &str,
        iommu: &str,
        seed: u64,
    ) -> PyResult<Self> {
        let raised = Raised::default();
        let adapter = Adapter::new(device, raised.clone())?;
        let socket = Socket { machine, card, iommu, seed };
        let rig = Rig::new(&library.files(), &socket, Box::new(adapter), Rc::clone(&raised.is_there));
        // What the device raised while the host booted says more than that it was not found.
        raised.take()?;
        Ok(Self { rig: rig.map_err(Failure::from)?, raised })
    }

    #[getter]
    fn now_ns(&self) -> f64 {
        self.rig.now().since(Time::ZERO).as_ns_f64()
    }

    /// Events simulated so far, and calls of the device's methods.
    #[getter]
    fn work(&self) -> (u64, u64) {
        (self.rig.events(), self.raised.calls.get())
    }

    fn read(&self, bar: u8, offset: u64, length: usize) -> PyResult<(Vec<u8>, f64)> {
        let length = bounded(length)?;
        let (data, took) = self.unless_raised(self.rig.read(bar, offset, length))?;
        Ok((data, took.as_ns_f64()))
    }

    fn write(&self, bar: u8, offset: u64, data: Vec<u8>) -> PyResult<f64> {
        bounded(data.len())?;
        Ok(self.unless_raised(self.rig.write(bar, offset, data))?.as_ns_f64())
    }

    /// Where the core and where the device find new memory.
    fn allocate(&self, length: usize) -> PyResult<(u64, u64)> {
        let length = bounded(length)?;
        let memory = self.unless_raised(self.rig.allocate(length.into()))?;
        Ok((memory.cpu.0, memory.bus.get()))
    }

    fn load(&self, address: u64, length: usize) -> PyResult<(Vec<u8>, f64)> {
        let length = bounded(length)?;
        let (data, took) = self.unless_raised(self.rig.load(platform::memory::PhysAddr(address), length))?;
        Ok((data, took.as_ns_f64()))
    }

    fn store(&self, address: u64, data: Vec<u8>) -> PyResult<f64> {
        bounded(data.len())?;
        Ok(self.unless_raised(self.rig.store(platform::memory::PhysAddr(address), data))?.as_ns_f64())
    }

    fn run_for(&self, ns: f64) -> PyResult<()> {
        self.rig.run_for(nanoseconds(ns)?);
        self.unless_raised(Ok(()))
    }

    fn interrupts(&self, vector: u16) -> PyResult<u64> {
        self.unless_raised(self.rig.interrupts(vector))
    }

    fn wait_for_interrupt(&self, vector: u16, seen: u64, longest_ns: f64) -> PyResult<bool> {
        self.unless_raised(self.rig.wait_for_interrupt(vector, seen, nanoseconds(longest_ns)?))
    }
}
