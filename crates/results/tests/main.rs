//! Files of pcie-bench, and what papers published.

mod bad_files;
mod published_device_lending;
mod published_ioctopus;
mod published_kpio_wc;
mod published_pciebench;
mod statements;
mod tools;
