//! Named files that drivers offer to programs, other than block and network devices.

use std::any::Any;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Files by name.
#[derive(Default)]
pub(crate) struct Files(RefCell<BTreeMap<String, Rc<dyn Any>>>);

impl Files {
    /// Adds a file under its kind and the first free number. Returns that name.
    pub fn add(&self, kind: &str, file: Rc<dyn Any>) -> String {
        let mut files = self.0.borrow_mut();
        let mut numbered = (0u32..).map(|number| format!("{kind}{number}"));
        let name = numbered.find(|name| !files.contains_key(name)).unwrap_or_default();
        files.insert(name.clone(), file);
        name
    }

    /// Opens a file by name, with or without `/dev/`.
    pub fn open(&self, name: &str) -> Option<Rc<dyn Any>> {
        self.0.borrow().get(name.strip_prefix("/dev/").unwrap_or(name)).cloned()
    }

    pub fn remove(&self, name: &str) {
        self.0.borrow_mut().remove(name);
    }
}
