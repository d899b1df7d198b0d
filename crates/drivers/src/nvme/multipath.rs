//! One block device for a namespace that several controllers of the host reach (Linux: `nvme_core.multipath` with
//! `iopolicy=numa`). A request takes the path local to the submitting core, or another one if that path is gone.
//!
//! Two namespaces are the same if their controllers report the same subsystem and their IDs are equal (NVM Express
//! Base Specification 1.4, 5.15.2.1 NMIC, 7.10). Single paths have no block device of their own.

use std::cell::RefCell;
use std::rc::{Rc, Weak};

use platform::Error;
use platform::block::{BlockDriver, BlockLimits, BlockRequest};
use platform::cpu::{Async, Cpu, CpuId};
use platform::kernel::Kernel;
use platform::tags::TagSet;
use wire::nvme::Command;
use wire::pcie::FunctionAddress;

use super::controller::ControllerState;
use super::namespace::Namespace;

/// All namespaces that have, or may get, several paths.
#[derive(Default)]
pub(super) struct Heads {
    all: RefCell<Vec<Rc<Head>>>,
}

/// A namespace and its paths.
struct Head {
    me: Weak<Self>,
    subsystem: String,
    id: u32,
    limits: BlockLimits,
    tags: Rc<TagSet>,
    paths: RefCell<Vec<Rc<Namespace>>>,
    /// Name of the block device.
    name: RefCell<String>,
}

impl Heads {
    /// Adds a namespace as a path: to an existing block device, or to a new one.
    pub fn join(&self, kernel: &dyn Kernel, subsystem: &str, namespace: &Rc<Namespace>) {
        let known = self.find(subsystem, namespace.id());
        if let Some(head) = known {
            head.paths.borrow_mut().push(Rc::clone(namespace));
            return;
        }
        let limits = namespace.limits();
        let of_path = namespace.tags();
        let head = Rc::new_cyclic(|me| Head {
            me: me.clone(),
            subsystem: subsystem.to_owned(),
            id: namespace.id(),
            limits,
            // A path must have room for the requests of another path that fails.
            tags: Rc::new(TagSet::new(of_path.queues(), of_path.depth() / 2)),
            paths: RefCell::new(vec![Rc::clone(namespace)]),
            name: RefCell::default(),
        });
        self.all.borrow_mut().push(Rc::clone(&head));
        let name = kernel.register_block(Rc::clone(&head) as Rc<dyn BlockDriver>);
        *head.name.borrow_mut() = name;
    }

    /// Removes a path, and the block device with its last path.
    pub fn leave(&self, kernel: &dyn Kernel, namespace: &Rc<Namespace>) {
        let all = self.all.borrow();
        let head = all.iter().find(|head| head.paths.borrow().iter().any(|path| Rc::ptr_eq(path, namespace)));
        let Some(head) = head.cloned() else { return };
        drop(all);
        head.paths.borrow_mut().retain(|path| !Rc::ptr_eq(path, namespace));
        if head.paths.borrow().is_empty() {
            self.all.borrow_mut().retain(|other| !Rc::ptr_eq(other, &head));
            kernel.unregister_block(&head.name.borrow());
        }
    }

    fn find(&self, subsystem: &str, id: u32) -> Option<Rc<Head>> {
        self.all.borrow().iter().find(|head| head.subsystem == subsystem && head.id == id).cloned()
    }
}

impl Head {
    /// The best path for a core: first a live one on its node, then any live one, then one that may come back.
    fn path_for(&self, cpu: &Cpu) -> Option<Rc<Namespace>> {
        let distance = |path: &Rc<Namespace>| {
            let controller = path.controller()?;
            match controller.state() {
                ControllerState::Dead => None,
                ControllerState::Live => Some(u8::from(controller.node() != cpu.node())),
                ControllerState::Starting | ControllerState::Resetting => Some(2),
            }
        };
        let paths = self.paths.borrow();
        let usable = paths.iter().filter_map(|path| Some((distance(path)?, path)));
        usable.min_by_key(|&(distance, _)| distance).map(|(_, path)| Rc::clone(path))
    }

    /// Submits a request to a path. If the controller goes away, it moves to another path, at most once per path.
    fn give(&self, cpu: &Cpu, queue: u16, request: BlockRequest, tries: usize) -> Result<(), BlockRequest> {
        let Some(path) = self.path_for(cpu) else {
            request.end(cpu, Err(Error::NoDevice));
            return Ok(());
        };
        let BlockRequest { op, sector, sectors, segments, tag, done } = request;
        let (me, again) = (self.me.clone(), segments.clone());
        let ended = move |cpu: &Cpu, result: Result<(), Error>| match me.upgrade() {
            Some(head) if result == Err(Error::NoDevice) && tries > 0 => {
                let request = BlockRequest { op, sector, sectors, segments: again, tag, done };
                if let Err(request) = head.give(cpu, queue, request, tries - 1) {
                    request.end(cpu, Err(Error::NoDevice));
                }
                head.commit(cpu, queue);
            }
            _ => done(cpu, result),
        };
        let request = BlockRequest { op, sector, sectors, segments, tag, done: Box::new(ended) };
        path.submit(cpu, path.queue_of(queue), request)
    }
}

impl BlockDriver for Head {
    fn limits(&self) -> BlockLimits {
        self.limits.clone()
    }

    fn tags(&self) -> Rc<TagSet> {
        Rc::clone(&self.tags)
    }

    fn function(&self) -> Option<FunctionAddress> {
        self.paths.borrow().first()?.function()
    }

    fn admin<'a>(&'a self, cpu: &'a Cpu, command: Command, length: u64) -> Async<'a, Result<Vec<u8>, Error>> {
        Box::pin(async move {
            let path = self.paths.borrow().first().cloned().ok_or(Error::NoDevice)?;
            path.admin(cpu, command, length).await
        })
    }

    fn queue_for(&self, cpu: CpuId) -> u16 {
        self.paths.borrow().first().map_or(0, |path| path.queue_for(cpu))
    }

    fn submit(&self, cpu: &Cpu, queue: u16, request: BlockRequest) -> Result<(), BlockRequest> {
        let others = self.paths.borrow().len();
        self.give(cpu, queue, request, others)
    }

    fn commit(&self, cpu: &Cpu, queue: u16) {
        if let Some(path) = self.path_for(cpu) {
            path.commit(cpu, path.queue_of(queue));
        }
    }

    fn poll(&self, cpu: &Cpu, queue: u16) -> usize {
        let paths = self.paths.borrow().clone();
        paths.iter().map(|path| path.poll(cpu, path.queue_of(queue))).sum()
    }

    fn timed_out(self: Rc<Self>, cpu: &Cpu, queue: u16, tag: u16) {
        let paths = self.paths.borrow().clone();
        for path in paths {
            let queue = path.queue_of(queue);
            path.timed_out(cpu, queue, tag);
        }
    }
}
