//! Memory: pages by node, and small pieces of them.

mod buddy;
mod pages;
mod pool;

pub use pages::NodeMemory;
pub(crate) use pages::PageAllocator;
pub(crate) use pool::Pool;
