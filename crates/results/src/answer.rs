//! What values mean, in one sentence: how far those of the same quantity differ, and what binds each.

use crate::table::grouped;

/// Values up to this number are each held against the first; of more, the ends are told.
const EACH: usize = 4;
/// Values within this share of each other count as equal.
const SAME: f64 = 0.01;

/// A value that others of the same group and quantity are compared with.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ComparedValue {
    /// What is measured, such as the program; values of one group are compared.
    pub group: String,
    /// What tells it from the others of its group.
    pub label: String,
    /// The quantity.
    pub quantity: String,
    /// Its unit. Times are better if smaller, all others if larger.
    pub unit: String,
    /// The value in `unit`.
    pub value: f64,
    /// What binds; empty if unknown.
    pub binds: String,
}

impl ComparedValue {
    fn is_of(&self, other: &Self) -> bool {
        (&self.group, &self.quantity, &self.unit) == (&other.group, &other.quantity, &other.unit)
    }

    fn shown(&self) -> String {
        format!("{} {}", grouped(self.value), self.unit).trim_end().to_owned()
    }
}

/// Whether a unit is one of time.
pub fn is_time(unit: &str) -> bool {
    ["ps", "ns", "µs", "us", "ms", "s"].contains(&unit)
}

/// One sentence about all groups, in their order; `None` without values.
pub fn sentence(values: &[ComparedValue]) -> Option<String> {
    let mut groups: Vec<Vec<&ComparedValue>> = Vec::new();
    for value in values.iter().filter(|value| value.value.is_finite()) {
        match groups.iter_mut().find(|group| group[0].is_of(value)) {
            Some(group) => group.push(value),
            None => groups.push(vec![value]),
        }
    }
    let told: Vec<String> = groups.iter().map(|group| differences(group) + &bindings(group)).collect();
    (!told.is_empty()).then(|| told.join("; ") + ".")
}

/// What binds, without the share of the time: the resource alone.
pub fn without_share(binds: &str) -> &str {
    match binds.rsplit_once(", ") {
        Some((resource, share)) if share.contains(" % ") => resource,
        _ => binds,
    }
}

/// Labels as a list; what stands before `=` in all of them is told once.
fn joined(labels: &[&str]) -> String {
    let pairs: Vec<(&str, &str)> = labels.iter().filter_map(|label| label.split_once('=')).collect();
    let is_common = pairs.len() == labels.len()
        && pairs.iter().all(|(key, value)| *key == pairs[0].0 && !value.contains('='));
    match (is_common, labels) {
        (true, [_, _, ..]) => {
            let values: Vec<&str> = pairs.iter().map(|(_, value)| *value).collect();
            format!("{}={}", pairs[0].0, values.join(", "))
        }
        (_, [all @ .., last]) if !all.is_empty() => format!("{} and {last}", all.join(", ")),
        _ => labels.concat(),
    }
}

/// How the values of a group differ.
fn differences(group: &[&ComparedValue]) -> String {
    let first = group[0];
    let quantity = &first.quantity;
    let about = if first.group.is_empty() { String::new() } else { format!("{}: ", first.group) };
    if group.len() == 1 {
        return format!("{about}{quantity} {}", first.shown());
    }
    let is_positive = group.iter().all(|value| value.value > 0.0);
    if group.len() > EACH || !is_positive {
        let by_value = |a: &&&ComparedValue, b: &&&ComparedValue| a.value.total_cmp(&b.value);
        let (Some(least), Some(most)) = (group.iter().min_by(by_value), group.iter().max_by(by_value)) else {
            return about;
        };
        if most.value <= least.value * (1.0 + SAME) {
            return format!("{about}{quantity} is {} for each", most.shown());
        }
        let times = most.value / least.value;
        let times = if is_positive { format!(", {times:.2} times as much") } else { String::new() };
        return format!(
            "{about}{quantity} is {} with {} and {} with {}{times}",
            least.shown(),
            least.label,
            most.shown(),
            most.label
        );
    }
    let is_slower = |value: &ComparedValue| (value.value > first.value) == is_time(&first.unit);
    let held = |value: &&ComparedValue| {
        let ratio = (value.value / first.value).max(first.value / value.value);
        match (ratio <= 1.0 + SAME, is_slower(value)) {
            (true, _) => "as fast as".to_owned(),
            (false, true) => format!("{ratio:.2} times slower than"),
            (false, false) => format!("{ratio:.2} times faster than"),
        }
    };
    let others = group[1..].iter().map(|value| format!("{} is {} {}", value.label, held(value), first.label));
    let numbers: Vec<String> = group.iter().map(|value| grouped(value.value)).collect();
    let numbers = match &numbers[..] {
        [first, second] => format!("{second} against {first}"),
        all => all.join(", "),
    };
    format!(
        "{about}{} ({})",
        others.collect::<Vec<_>>().join(", "),
        format!("{quantity}: {numbers} {}", first.unit).trim_end()
    )
}

/// What binds the values of a group: once if it is the same for all.
fn bindings(group: &[&ComparedValue]) -> String {
    let first = group[0];
    if group.iter().any(|value| value.binds.is_empty()) {
        return String::new();
    }
    let resource = |value: &ComparedValue| without_share(&value.binds).to_owned();
    if group.iter().all(|value| resource(value) == resource(first)) {
        let told = if group.len() == 1 { first.binds.clone() } else { resource(first) };
        return format!("; what binds: {told}");
    }
    let mut groups: Vec<(String, Vec<&str>)> = Vec::new();
    for value in group {
        match groups.iter_mut().find(|(other, _)| *other == resource(value)) {
            Some((_, labels)) => labels.push(&value.label),
            None => groups.push((resource(value), vec![&value.label])),
        }
    }
    let count = group.len();
    let of = |(resource, labels): &(String, Vec<&str>)| match labels.len() {
        several if several > EACH => format!("for {several} of {count}: {resource}"),
        _ => format!("for {}: {resource}", joined(labels)),
    };
    format!("; what binds {}", groups.iter().map(of).collect::<Vec<_>>().join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(label: &str, value: f64, binds: &str) -> ComparedValue {
        let [label, binds] = [label, binds].map(str::to_owned);
        ComparedValue {
            label,
            value,
            quantity: "throughput".into(),
            unit: "Mbit/s".into(),
            binds,
            ..ComparedValue::default()
        }
    }

    #[test]
    fn two_values_are_held_against_each_other() {
        let both = [
            value("local", 21_980.0, "b's core0, busy 94 % of the time"),
            value("remote", 18_627.0, "b's core0, busy 96 % of the time"),
        ];
        assert_eq!(
            sentence(&both).unwrap(),
            "remote is 1.18 times slower than local (throughput: 18,627 against 21,980 Mbit/s); what binds: b's core0."
        );
        let time = both.map(|value| ComparedValue { unit: "ns".into(), ..value });
        assert!(sentence(&time).unwrap().starts_with("remote is 1.18 times faster than local"));
    }

    #[test]
    fn what_binds_is_told_apart_where_it_differs() {
        let all = [value("a", 1.0, "the tags"), value("b", 1.001, "the link"), value("c", 2.0, "the link")];
        assert_eq!(
            sentence(&all).unwrap(),
            "b is as fast as a, c is 2.00 times faster than a (throughput: 1, 1.00, 2 Mbit/s); \
             what binds for a: the tags; for b and c: the link."
        );
    }

    #[test]
    fn of_many_values_the_ends_are_told() {
        let all: Vec<_> = (1..=9).map(|n| value(&format!("n={n}"), f64::from(n), "")).collect();
        assert_eq!(
            sentence(&all).unwrap(),
            "throughput is 1 Mbit/s with n=1 and 9 Mbit/s with n=9, 9.00 times as much."
        );
        assert_eq!(sentence(&all[..1]).unwrap(), "throughput 1 Mbit/s.");
        assert_eq!(sentence(&[]), None);
        let flat: Vec<_> = (1..=9).map(|n| value(&n.to_string(), 5.0, "")).collect();
        assert_eq!(sentence(&flat).unwrap(), "throughput is 5 Mbit/s for each.");
    }
}
