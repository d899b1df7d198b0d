//! Hosts whose card has a link to each socket.

use super::host;

/// A team above both functions.
pub const TEAM: &str =
    "[[host.team]]\nname = \"team0\"\nmode = \"octo\"\nmembers = [\"octo:0\", \"octo:1\"]\n";

/// A link to each of two sockets.
pub const LINKS: &str = "{ slot = \"slot\", lanes = 8 }, { slot = \"slot-socket1\", lanes = 8 }";

/// Host `a`, with a card of these links, and other lines of it.
pub fn octo(links: &str, nic: &str, team: &str) -> String {
    octo_with("", links, nic, team)
}

/// As [`octo`], its functions being one network device of the driver's.
pub fn multi_pf(links: &str, nic: &str) -> String {
    octo_with("nic_driver.multi_pf = true\n", links, nic, "")
}

fn octo_with(keys: &str, links: &str, nic: &str, team: &str) -> String {
    let lines = format!(
        "change_kernel.steering = {{ rfs = true, arfs = true }}\n{keys}[[host.device]]\nname = \"octo\"\n\
         nic = \"{nic}\"\nlinks = [{links}]\n{team}"
    );
    host("a", "dell-t430", &lines)
}
