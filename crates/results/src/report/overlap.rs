//! Which curves of a chart lie on each other, so that one would hide the other.

/// A share of the drawing's height within which two lines look like one.
const NEAR: f64 = 0.012;

/// For each curve, given as its places in the drawing and the height of that, how it is broken so that those below it show: not at
/// all (0), or the more the higher.
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

/// Whether a piece of one curve, from one place to the next, lies on the other.
fn hides(one: &[(f64, f64)], other: &[(f64, f64)], near: f64) -> bool {
    let meets = |&(x, y): &(f64, f64)| height_at(other, x).is_some_and(|below| (below - y).abs() <= near);
    one.windows(2).any(|piece| piece[0].0 < piece[1].0 && piece.iter().all(meets))
}

/// How high a curve is somewhere between its ends.
fn height_at(curve: &[(f64, f64)], x: f64) -> Option<f64> {
    let piece =
        curve.windows(2).find(|piece| piece[0].0 < piece[1].0 && (piece[0].0..=piece[1].0).contains(&x))?;
    let [(x0, y0), (x1, y1)] = [piece[0], piece[1]];
    Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
}

#[cfg(test)]
mod tests {
    use super::breaks;

    #[test]
    fn only_what_would_hide_something_is_broken() {
        let flat = |y: f64| (0..5).map(|x| (f64::from(x), y)).collect::<Vec<_>>();
        let crossing: Vec<_> = (0..5).map(|x| (f64::from(x), 20.0 * f64::from(x))).collect();
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
