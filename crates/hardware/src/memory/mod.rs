//! Memory of one host: caches, DRAM, interconnect.
