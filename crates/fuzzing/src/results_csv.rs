//! Any bytes as a file of pcie-bench results: rows or a complaint that names the file, never a panic.

use std::path::Path;

use results::pciebench::read_bytes;

/// The name says what a file should hold; a label that does not fit its content is one of the faults.
const NAMES: [&str; 4] =
    ["lat_dma_sizes.csv", "bw_dma_sz_sweep.csv", "lat_dma_details_cdf.csv", "something_else.csv"];

/// Tries `data`.
pub fn run(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    let name = NAMES[usize::from(which) % NAMES.len()];
    match read_bytes(Path::new(name), bytes) {
        // What was read can be asked for its run and its value.
        Ok(file) => file.rows().iter().for_each(|row| {
            let _ = (row.run().to_string(), row.headline());
        }),
        Err(error) => assert!(error.to_string().contains(name)),
    }
}
