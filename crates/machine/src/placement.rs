//! Cores and memory of programs, as files name them.

/// Where a program's memory comes from (set_mempolicy(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryPolicy {
    /// The node of the requesting core.
    #[default]
    Local,
    /// Only this node.
    Bind(u8),
    /// This node first.
    Preferred(u8),
    /// All nodes in turn.
    Interleave,
}

impl MemoryPolicy {
    /// Describes the syntax of [`parse`](Self::parse).
    pub(crate) fn help(nodes: u32) -> String {
        let last = nodes - 1;
        format!(
            "`local`, `interleave`, or a node from `node0` to `node{last}`, alone or as `preferred node{last}`"
        )
    }

    /// Parses a scenario's syntax, on a machine with `nodes` nodes.
    pub(crate) fn parse(text: &str, nodes: u32) -> Result<Self, String> {
        let node = |text: &str| match text.trim().strip_prefix("node").map(str::parse::<u8>) {
            Some(Ok(node)) if u32::from(node) < nodes => Ok(node),
            Some(Ok(node)) => Err(format!("there is no node {node}")),
            _ => Err(format!("`{text}` is not a memory policy")),
        };
        match text.trim() {
            "local" => Ok(Self::Local),
            "interleave" => Ok(Self::Interleave),
            text => match text.strip_prefix("preferred ") {
                Some(text) => node(text).map(Self::Preferred),
                None => node(text).map(Self::Bind),
            },
        }
    }
}

/// Describes the syntax of [`cpu_list`] on a host with `cores` cores.
pub(crate) fn cores_help(cores: u32) -> String {
    format!("numbers and ranges from 0 to {}, such as `0-3,8`", cores - 1)
}

/// Parses cores in taskset syntax: `0-3,8`.
pub(crate) fn cpu_list(text: &str, cores: u32) -> Result<Vec<u16>, String> {
    let mut all = Vec::new();
    for piece in text.split(',') {
        let number = |text: &str| match text.trim().parse::<u32>() {
            Ok(number) if number < cores => Ok(number as u16),
            Ok(number) => Err(format!("there is no core {number}")),
            Err(_) => Err(format!("`{}` is not a core", text.trim())),
        };
        let (first, last) = piece.split_once('-').unwrap_or((piece, piece));
        let (first, last) = (number(first)?, number(last)?);
        if first > last {
            return Err(format!("`{piece}` counts down"));
        }
        // Duplicates count once.
        all.extend((first..=last).filter(|core| !all.contains(core)).collect::<Vec<_>>());
    }
    Ok(all)
}
