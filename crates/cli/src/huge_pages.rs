//! Memory in huge pages, which the C library has to be asked for before the program starts.

use std::env;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// Where glibc is told, see "Memory Allocation Tunables" in its manual.
const TUNABLES: &str = "GLIBC_TUNABLES";
const HUGE_PAGES: &str = "glibc.malloc.hugetlb";

/// Starts the program anew with huge pages, unless the user has chosen already. Where this fails, it goes on without.
///
/// The state of 64 hosts takes half a gigabyte, touched all over: with pages of 4 KiB, a fifth of the time goes to TLB
/// misses of the machine that runs the simulation.
pub fn ask() {
    let set = match env::var(TUNABLES) {
        Ok(set) if set.contains(HUGE_PAGES) => return,
        Ok(set) => set + ":",
        Err(env::VarError::NotPresent) => String::new(),
        Err(env::VarError::NotUnicode(_)) => return,
    };
    let mut arguments = env::args_os();
    let Some(name) = arguments.next() else { return };
    // It comes back only if it has failed.
    let _ = Command::new("/proc/self/exe")
        .arg0(name)
        .args(arguments)
        .env(TUNABLES, format!("{set}{HUGE_PAGES}=1"))
        .exec();
}
