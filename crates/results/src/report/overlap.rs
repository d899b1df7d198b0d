//! Determines which curves of a chart overlap, so that one would hide the other.

/// Two lines closer than this share of the drawing's height look like one.
const NEAR: f64 = 0.012;

/// A line is dashed if more than this share of the common range is hidden.
const PART: f64 = 0.25;

/// Dash level of each curve, so that curves below it remain visible: 0 for solid, increasing from bottom to top.
/// Curves are given by their positions in the drawing, whose height is `height`.
pub(super) fn breaks(curves: &[Vec<(f64, f64)>], height: f64) -> Vec<usize> {
    let mut breaks: Vec<usize> = Vec::new();
    for (n, curve) in curves.iter().enumerate() {
        let below: Vec<usize> = (0..n)
            .filter(|&other| hides(curve, &curves[other], height * NEAR))
            .map(|other| breaks[other])
            .collect();
        breaks.push((0..).find(|level| !below.contains(level)).unwrap_or(0));
    }
    breaks
}

/// Groups curves that look like one line: same horizontal positions, and similar heights at all of them. A curve has
/// several lists of positions, all of which must match; a curve whose first list is empty forms its own group.
pub(super) fn coinciding(lists: &[&[Vec<(f64, f64)>]], height: f64) -> Vec<Vec<usize>> {
    let near = |one: usize, other: usize| {
        lists.iter().all(|curves| {
            let (one, other) = (&curves[one], &curves[other]);
            let meet = |(a, b): (&(f64, f64), &(f64, f64))| a.0 == b.0 && (a.1 - b.1).abs() <= height * NEAR;
            one.len() == other.len() && one.iter().zip(other).all(meet)
        })
    };
    let mut groups: Vec<Vec<usize>> = Vec::new();
    for (n, first) in lists[0].iter().enumerate() {
        let joins = |group: &&mut Vec<usize>| !first.is_empty() && group.iter().all(|&other| near(n, other));
        match groups.iter_mut().find(joins) {
            Some(group) => group.push(n),
            None => groups.push(vec![n]),
        }
    }
    groups
}

/// Whether one curve hides the other for a substantial part of their common range; crossing lines hide only a point.
fn hides(one: &[(f64, f64)], other: &[(f64, f64)], near: f64) -> bool {
    let below = |x: f64| height_at(other, x);
    let meets = |&(x, y): &(f64, f64)| below(x).is_some_and(|below| (below - y).abs() <= near);
    let width = |piece: &&[(f64, f64)]| piece[1].0 - piece[0].0;
    let common = || one.windows(2).filter(|piece| piece.iter().all(|&(x, _)| below(x).is_some()));
    let hidden: f64 = common().filter(|piece| piece.iter().all(meets)).map(|piece| width(&piece)).sum();
    hidden > 0.0 && hidden >= PART * common().map(|piece| width(&piece)).sum::<f64>()
}

/// Interpolated height of a curve between its ends.
fn height_at(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let piece =
        curve.windows(2).find(|piece| piece[0].0 < piece[1].0 && (piece[0].0..=piece[1].0).contains(&x))?;
    let [(x0, y0), (x1, y1)] = [piece[0], piece[1]];
    Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
}

#[cfg(test)]
mod tests {
    use super::{breaks, coinciding};

    #[test]
    fn only_what_coincides_everywhere_is_one_line() {
        let flat = |y: f64| (0..5).map(|x| (f64::from(x), y)).collect::<Vec<_>>();
        let mut leaves = flat(50.0);
        leaves[4].1 = 60.0;
        let curves = [flat(50.0), flat(50.5), leaves, flat(51.5), flat(50.9), Vec::new(), Vec::new()];
        // The fourth is near the second, but not the first.
        let groups = [vec![0, 1, 4], vec![2], vec![3], vec![5], vec![6]];
        assert_eq!(coinciding(&[&curves], 100.0), groups);
        let mut measured = vec![Vec::new(); 7];
        (measured[0], measured[1], measured[4]) = (flat(1.0), flat(1.0), flat(90.0));
        assert_eq!(coinciding(&[&curves, &measured], 100.0)[..2], [vec![0, 1], vec![2]]);
    }

    #[test]
    fn only_what_would_hide_something_is_broken() {
        let flat = |y: f64| (0..5).map(|x| (f64::from(x), y)).collect::<Vec<_>>();
        // Near the others only where they cross, a hundredth of the range.
        let crossing: Vec<_> = (0..=400).map(|x| f64::from(x) / 100.0).map(|x| (x, 20.0 * x)).collect();
        let curves = [flat(50.0), flat(50.5), flat(90.0), flat(50.2), crossing];
        assert_eq!(breaks(&curves, 100.0), [0, 1, 0, 2, 0]);
    }

    #[test]
    fn curves_need_no_samples_in_common() {
        let one = vec![(0.0, 1.0), (4.0, 1.0)];
        let other = vec![(1.0, 1.0), (2.0, 1.0)];
        assert_eq!(breaks(&[one, other], 10.0), [0, 1]);
        assert_eq!(breaks(&[Vec::new(), vec![(0.0, 1.0)]], 10.0), [0, 0]);
    }
}
