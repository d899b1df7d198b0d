//! Tests that need measured data or other programs.

mod accuracy;
mod bad_days;
mod lspci;
mod lstopo;
mod nvme;
mod pages;
mod your_machine;

needs::main!(accuracy, bad_days, lspci, lstopo, nvme, pages, your_machine);
