//! What benchmarks measure: the processor's time, so that a busy machine does not count.

use std::sync::LazyLock;
use std::time::Instant;

/// Processor time of this process where Linux tells it (in hundredths of a second), else time on the wall.
pub fn seconds_of_work() -> f64 {
    static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);
    let wall = BEGAN.elapsed().as_secs_f64();
    let Ok(stat) = std::fs::read_to_string("/proc/self/stat") else { return wall };
    // After the name in parentheses: user and system time are the fields 14 and 15 of the whole.
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    let ticks = |field: usize| fields.get(field).and_then(|text| text.parse::<f64>().ok());
    match (ticks(11), ticks(12)) {
        (Some(user), Some(system)) => (user + system) / 100.0,
        _ => wall,
    }
}
