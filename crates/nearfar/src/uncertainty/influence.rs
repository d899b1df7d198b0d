//! The figures that a result hangs on.

/// Largest number of figures named for one result.
const MOST: usize = 5;
/// Chance that a result without any dependence names a figure.
const CHANCE: f64 = 0.05;

/// A figure that a result hangs on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Influence {
    /// Which of the figures.
    pub figure: usize,
    /// Share of the result's variance that it explains beyond those before it.
    pub share: f64,
    /// Whether the result rises with it.
    pub rises: bool,
}

/// Finds the figures, most important first, by a stepwise regression on ranks: each step takes the figure that
/// explains most of what is left, as long as chance rarely explains as much. `inputs` has, for each figure, its value
/// in each run.
pub(super) fn of(results: &[f64], inputs: &[Vec<f64>]) -> Vec<Influence> {
    let mut left = standardized(&ranks(results));
    let mut found: Vec<Influence> = Vec::new();
    // Figures taken so far, made orthogonal to each other.
    let mut taken: Vec<Vec<f64>> = Vec::new();
    let candidates: Vec<Vec<f64>> = inputs.iter().map(|input| standardized(&ranks(input))).collect();
    while found.len() < MOST {
        let unexplained = dot(&left, &left);
        let free = results.len() as f64 - 3.0 - found.len() as f64;
        if unexplained < 1e-9 || free < 1.0 {
            break;
        }
        let open = (0..candidates.len()).filter(|&n| found.iter().all(|known| known.figure != n));
        let best = open
            .filter_map(|n| {
                let own = orthogonal(&candidates[n], &taken)?;
                let correlation = dot(&own, &left) / unexplained.sqrt();
                Some((n, own, correlation))
            })
            .max_by(|(.., a), (.., b)| a.abs().total_cmp(&b.abs()));
        let Some((figure, own, correlation)) = best else { break };
        // Fisher's transformation makes it nearly normal; a bound of the normal tail, for all candidates at once.
        let score = correlation.abs().min(1.0 - 1e-12).atanh() * free.sqrt();
        if score < (2.0 * (candidates.len() as f64 / CHANCE).ln()).sqrt() {
            break;
        }
        let part = dot(&own, &left);
        left.iter_mut().zip(&own).for_each(|(left, own)| *left -= part * own);
        found.push(Influence { figure, share: part * part, rises: part > 0.0 });
        taken.push(own);
    }
    found
}

/// Ranks of values; equal ones share their mean rank.
fn ranks(values: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut begin = 0;
    while begin < order.len() {
        let value = values[order[begin]];
        let end = begin + order[begin..].iter().take_while(|&&n| values[n] == value).count();
        for &n in &order[begin..end] {
            ranks[n] = (begin + end - 1) as f64 / 2.0;
        }
        begin = end;
    }
    ranks
}

/// Shifted to mean 0 and scaled to length 1; zeros if all are equal.
fn standardized(values: &[f64]) -> Vec<f64> {
    let mean = values.iter().sum::<f64>() / values.len().max(1) as f64;
    let shifted: Vec<f64> = values.iter().map(|value| value - mean).collect();
    let length = dot(&shifted, &shifted).sqrt();
    shifted.iter().map(|value| if length > 0.0 { value / length } else { 0.0 }).collect()
}

/// The part of a unit vector that is orthogonal to these, of length 1; `None` if there is next to none.
fn orthogonal(vector: &[f64], to: &[Vec<f64>]) -> Option<Vec<f64>> {
    let mut own = vector.to_vec();
    for other in to {
        let part = dot(&own, other);
        own.iter_mut().zip(other).for_each(|(own, other)| *own -= part * other);
    }
    let length = dot(&own, &own).sqrt();
    (length > 1e-3).then(|| own.iter().map(|value| value / length).collect())
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::Seed;

    fn inputs(figures: usize, runs: usize) -> Vec<Vec<f64>> {
        let column = |n| {
            let mut random = Seed::new(1).component(&format!("{n}"));
            (0..runs).map(|_| random.unit_f64()).collect()
        };
        (0..figures).map(column).collect()
    }

    #[test]
    fn the_figures_are_named_in_order_with_their_direction() {
        let inputs = inputs(60, 80);
        let result = |n: usize| 10.0 * inputs[7][n] - 4.0 * inputs[3][n] + 0.5 * inputs[9][n];
        let results: Vec<f64> = (0..80).map(result).collect();
        let found = of(&results, &inputs);
        assert_eq!(
            found.iter().take(2).map(|f| (f.figure, f.rises)).collect::<Vec<_>>(),
            [(7, true), (3, false)]
        );
        assert!(found[0].share > 0.6 && found[1].share < 0.25, "{found:?}");
    }

    #[test]
    fn chance_names_no_figure() {
        let all = inputs(201, 40);
        let named = (0..200).filter(|&n| {
            let others: Vec<_> =
                all.iter().enumerate().filter(|(m, _)| *m != n).map(|(_, v)| v.clone()).collect();
            !of(&all[n], &others).is_empty()
        });
        assert!(named.count() <= 10);
        // A result that never changes hangs on nothing.
        assert_eq!(of(&[1.0; 40], &all), []);
    }
}
