//! Lists that grow with what is in use, by an eighth where they have to move: they are long, and doubling would leave up to half of
//! their memory unused.

/// Makes room for `more` items.
pub(crate) fn make_room<T>(list: &mut Vec<T>, more: usize) {
    if more > list.capacity() - list.len() {
        list.reserve_exact(more.max(list.len() / 8));
    }
}

/// Appends `more` items.
#[cold]
pub(crate) fn lengthen<T: Copy + Default>(list: &mut Vec<T>, more: usize) {
    make_room(list, more);
    list.resize(list.len() + more, T::default());
}

/// Item `place` of a list that is made long enough for it.
#[inline]
pub(crate) fn at<T: Copy + Default>(list: &mut Vec<T>, place: usize) -> &mut T {
    if place >= list.len() {
        lengthen(list, place + 1 - list.len());
    }
    &mut list[place]
}
