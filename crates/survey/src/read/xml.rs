//! What hwloc's and NCCL's XML have in common: how they are parsed.

use roxmltree::{Document, Node, ParsingOptions};

/// No tool writes so many elements of one machine.
const MOST_NODES: u32 = 2_000_000;
/// Elements within each other; no machine has so many.
pub const DEEPEST: usize = 128;

/// Parses a text. Entities of its own are refused: neither tool writes any, and they can expand without end.
pub fn parse(text: &str) -> Result<Document<'_>, String> {
    if text.contains("<!ENTITY") {
        return Err("it defines entities, which neither hwloc nor NCCL does; it is not expanded".into());
    }
    let options = ParsingOptions { allow_dtd: true, nodes_limit: MOST_NODES, ..ParsingOptions::default() };
    Document::parse_with_options(text, options).map_err(|error| format!("it is damaged: {error}"))
}

/// The elements directly below.
pub fn children<'a, 'i>(node: Node<'a, 'i>) -> impl Iterator<Item = Node<'a, 'i>> {
    node.children().filter(Node::is_element)
}
