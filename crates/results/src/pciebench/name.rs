//! Information in the name of a file about its rows.

use super::Run;
use super::error::Problem;

/// What a file's name says about its rows; nothing if it is not one of pcie-bench's names.
pub(super) struct Promise<'a> {
    name: &'a str,
    interface: Option<&'a str>,
    direction: Option<&'a str>,
    transfer: Option<u64>,
    distribution: bool,
}

impl<'a> Promise<'a> {
    pub(super) fn of(name: &'a str) -> Self {
        let stem = name.strip_suffix(".csv").unwrap_or(name);
        let interface = ["lat_cmd", "lat_dma", "bw_dma"]
            .into_iter()
            .find(|p| stem.strip_prefix(p).is_some_and(|rest| rest.starts_with('_')));
        let parts: Vec<&str> = stem.split('_').collect();
        let sweep = parts.contains(&"sweep") || parts.contains(&"off");
        let direction = parts.iter().copied().find(|p| sweep && ["rd", "wr", "wrrd"].contains(p));
        let transfer = direction.and_then(|_| parts.last()).and_then(|p| p.parse().ok());
        Self { name, interface, direction, transfer, distribution: stem.ends_with("_cdf") }
    }

    pub(super) fn latency(&self) -> bool {
        !self.distribution && self.interface != Some("bw_dma")
    }
    pub(super) fn bandwidth(&self) -> bool {
        !self.distribution && !self.interface.is_some_and(|i| i.starts_with("lat"))
    }
    pub(super) fn distribution(&self) -> bool {
        self.distribution || self.interface.is_none()
    }
    pub(super) fn describe(&self) -> String {
        match (self.distribution, self.interface) {
            (true, _) => "a distribution".into(),
            (_, Some("bw_dma")) => "a bandwidth test".into(),
            (_, Some(_)) => "a latency test".into(),
            _ => format!("`{}`", self.name),
        }
    }

    /// Checks that a row matches the name.
    pub(super) fn check(&self, run: Option<&Run>) -> Result<(), Problem> {
        let (Some(interface), Some(run)) = (self.interface, run) else {
            return Ok(());
        };
        let wrong = |promised: String, found: String| Err(Problem::Mislabelled { promised, found });
        let test = run.test.as_str().to_lowercase();
        if !test.starts_with(interface) {
            return wrong(format!("tests `{}_*`", interface.to_uppercase()), run.test.to_string());
        }
        if let Some(direction) = self.direction {
            let expected = format!("{interface}_{direction}").to_uppercase();
            if run.test.as_str() != expected {
                return wrong(format!("test `{expected}`"), run.test.to_string());
            }
        }
        match self.transfer {
            Some(size) if size != run.transfer.get() => {
                wrong(format!("transfers of {size} B"), format!("{} B", run.transfer.get()))
            }
            _ => Ok(()),
        }
    }
}

/// The family of a file: its name without direction, pattern and size (`lat_dma_sweep_*`).
pub fn family(file: &str) -> String {
    let stem = file.strip_suffix(".csv").unwrap_or(file);
    let varying = |part: &str| {
        ["rd", "wr", "wrrd", "rnd", "seq", "cold"].contains(&part) || part.bytes().all(|b| b.is_ascii_digit())
    };
    let kept: Vec<&str> = stem.split('_').filter(|p| !varying(p)).collect();
    let joined = kept.join("_");
    if joined.len() == stem.len() { joined } else { joined + "_*" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_collapse_what_varies() {
        assert_eq!(family("lat_dma_sweep_wrrd_rnd_64.csv"), "lat_dma_sweep_*");
        assert_eq!(family("bw_dma_win_sweep_rd_rnd_512.csv"), "bw_dma_win_sweep_*");
        assert_eq!(family("bw_dma_off_rd_cold.csv"), "bw_dma_off_*");
        assert_eq!(family("bw_dma_sz_sweep.csv"), "bw_dma_sz_sweep");
        assert_eq!(family("lat_dma_sizes_byte_inc.csv"), "lat_dma_sizes_byte_inc");
    }
}
