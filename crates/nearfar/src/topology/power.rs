//! Builds the fabric's power management from a machine file.

use hardware::root::{Entry, IdleState, PackageController, PowerParams};

use crate::plain::{Plain, given, plain, required};

/// The parameters of a host's power management.
pub fn power_params(power: &machine::Power) -> PowerParams {
    PowerParams {
        states: power.state.values().map(idle_state).collect(),
        controller: power.controller.as_ref().map(|controller| {
            plain!(controller => PackageController {
                period, transition_periods, longer_share, slow_share, skipped_share,
                exit: controller.exit_latency.value,
                slow_exit: controller.slow_exit_latency.value
            })
        }),
    }
}

fn idle_state(state: &machine::IdleState) -> IdleState {
    let entry = match &state.tick {
        Some(tick) => Entry::Tick {
            interval: tick.value,
            jitter: given(&state.tick_jitter, 0.0),
            below: state.tick_below.plain(),
        },
        None => Entry::After(required(&state.after)),
    };
    IdleState { entry, exit: state.exit_latency.value }
}
