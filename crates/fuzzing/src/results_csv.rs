//! Any bytes as a pcie-bench results file: rows or a diagnostic that names the file, never a panic.

use std::path::Path;

use results::pciebench::read_bytes;

/// The name encodes the expected content; a label that does not match the content is one of the faults.
const NAMES: [&str; 4] =
    ["lat_dma_sizes.csv", "bw_dma_sz_sweep.csv", "lat_dma_details_cdf.csv", "something_else.csv"];

/// Tests an input.
pub fn run(data: &[u8]) {
    let Some((&which, bytes)) = data.split_first() else { return };
    let name = NAMES[usize::from(which) % NAMES.len()];
    match read_bytes(Path::new(name), bytes) {
        // Run and value of each row can be queried.
        Ok(file) => file.rows().iter().for_each(|row| {
            let _ = (row.run().to_string(), row.headline());
        }),
        Err(error) => assert!(error.to_string().contains(name)),
    }
}
