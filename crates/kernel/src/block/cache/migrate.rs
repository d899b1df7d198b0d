//! Moving pages of the cache to another node.

use std::rc::Rc;

use platform::Error;
use platform::cpu::{Cpu, Node};
use platform::memory::PageMoves;

use super::{Cache, CachePage, Content, touched};

impl Cache {
    /// Moves the pages of a range that nobody holds. No program maps them, so that no core has to forget anything.
    pub(in crate::block) fn migrate_cached(
        &self,
        cpu: &Cpu,
        offset: u64,
        length: u64,
        to: Node,
    ) -> Result<PageMoves, Error> {
        self.in_range(offset, length)?;
        self.requests.driver()?;
        let mut moves = PageMoves::default();
        let pages = self.pages.borrow();
        for page in pages.range(touched(offset, length)).map(|(_, page)| page) {
            if self.base.memory.node_of(page.frame.get().start) == Some(to) {
                continue;
            }
            // Who holds it knows where it is; so does the device while it comes or is written.
            let at_rest = |page: &Rc<CachePage>| {
                Rc::strong_count(page) == 1 && page.content.get() == Content::There && !page.is_writing()
            };
            if at_rest(page) {
                page.frame.set(self.base.memory.replace(cpu, page.frame.get(), to)?);
                moves.moved += 1;
            } else {
                moves.busy += 1;
            }
        }
        Ok(moves)
    }
}
