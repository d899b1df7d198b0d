//! Entries of one table that extend each other, as a machine's slots do.

use crate::diagnostic::Diagnostic;
use crate::suggest;
use crate::tree::{self, Entry, Node, Table, Value};

/// Fills each entry of the table at `path` with what it does not say itself and the entry that it `extends` says.
/// Entries whose `slots` are 0 are removed afterwards.
pub(crate) fn resolve(root: &mut Node, path: [&str; 2]) -> Result<(), Box<Diagnostic>> {
    let mut node = root;
    for key in path {
        let Value::Table(table) = &mut node.value else { return Ok(()) };
        let Some(entry) = table.get_mut(key) else { return Ok(()) };
        node = &mut entry.node;
    }
    let Value::Table(table) = &mut node.value else { return Ok(()) };
    let written = table.clone();
    for (name, entry) in table.iter_mut() {
        entry.node = filled(&written, name)?;
    }
    table.retain(|_, entry| !is_none(&entry.node));
    Ok(())
}

/// The entry with all that it inherits.
fn filled(all: &Table, name: &str) -> Result<Node, Box<Diagnostic>> {
    let mut layers = vec![all[name].node.clone()];
    while let Some(parent) = extended(layers.last().expect("never empty")) {
        let Value::Text(wanted) = &parent.node.value else { break };
        let Some(next) = all.get(wanted.as_str()) else {
            let known = all.keys().map(String::as_str).filter(|known| *known != name);
            let help = suggest::among(wanted, known, "it can extend");
            return Err(Diagnostic::new(&parent.node.place, format!("there is no `{wanted}` to extend"))
                .help(help)
                .into());
        };
        if layers.len() > all.len() {
            return Err(Diagnostic::new(&parent.node.place, "`extends` goes in a circle")
                .label("extends itself in the end")
                .into());
        }
        let mut next = next.node.clone();
        // How many there are is said of each by itself.
        if let Value::Table(table) = &mut next.value {
            table.remove("slots");
        }
        layers.push(next);
    }
    let mut node = layers.pop().expect("never empty");
    while let Some(layer) = layers.pop() {
        tree::overlay(&mut node, layer);
    }
    Ok(node)
}

fn extended(node: &Node) -> Option<&Entry> {
    let Value::Table(table) = &node.value else { return None };
    table.get("extends")
}

/// Whether its `slots`, a number or a figure, are 0.
fn is_none(node: &Node) -> bool {
    let of = |node: &Node, key: &str| match &node.value {
        Value::Table(table) => table.get(key).map(|entry| entry.node.clone()),
        _ => None,
    };
    let Some(slots) = of(node, "slots") else { return false };
    matches!(of(&slots, "value").unwrap_or(slots).value, Value::Integer(0))
}
