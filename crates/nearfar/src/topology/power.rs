//! Builds the fabric's power management from a machine file.

use hardware::root::{Entry, IdleState, PackageController, PowerParams};

/// The parameters of a host's power management.
pub fn power_params(power: &machine::Power) -> PowerParams {
    PowerParams {
        states: power.state.values().map(idle_state).collect(),
        controller: power.controller.as_ref().map(|controller| PackageController {
            period: controller.period.value,
            transition_periods: controller.transition_periods.value.get(),
            longer_share: controller.longer_share.value,
            exit: controller.exit_latency.value,
            slow_exit: controller.slow_exit_latency.value,
            slow_share: controller.slow_share.value,
            skipped_share: controller.skipped_share.value,
        }),
    }
}

fn idle_state(state: &machine::IdleState) -> IdleState {
    let entry = match (&state.after, &state.tick) {
        (Some(after), _) => Entry::After(after.value),
        (None, Some(tick)) => Entry::Tick {
            interval: tick.value,
            jitter: state.tick_jitter.as_ref().map_or(0.0, |jitter| jitter.value),
            below: state.tick_below.as_ref().map(|below| below.value),
        },
        // The file's reader requires one of the two.
        (None, None) => Entry::After(units::Duration::from_ms(1_000)),
    };
    IdleState { entry, exit: state.exit_latency.value }
}
