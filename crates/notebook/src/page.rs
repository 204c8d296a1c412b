//! A part of a list.

use serde::{Deserialize, Serialize};

/// A part of a list, and where the next part begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Page<T, C> {
    /// What is in this part.
    pub items: Vec<T>,
    /// Where to go on, if there is more.
    pub next: Option<C>,
}

impl<T, C> Page<T, C> {
    /// Makes a page of up to `limit` items from what was read, which is one more where there is more.
    pub(crate) fn of(mut items: Vec<T>, limit: usize, cursor: impl FnOnce(&T) -> C) -> Self {
        let more = items.len() > limit;
        items.truncate(limit);
        let next = if more { items.last().map(cursor) } else { None };
        Self { items, next }
    }
}

/// How many items a caller gets who asks for this many: at least one, and at most what fits in memory.
pub(crate) fn bounded(limit: usize) -> usize {
    limit.clamp(1, MOST_ITEMS)
}

const MOST_ITEMS: usize = 500;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_tells_where_to_go_on_only_if_there_is_more() {
        assert_eq!(Page::of(vec![1, 2, 3], 2, |&last| last), Page { items: vec![1, 2], next: Some(2) });
        assert_eq!(Page::of(vec![1, 2], 2, |&last| last), Page { items: vec![1, 2], next: None });
        assert_eq!((bounded(0), bounded(7), bounded(usize::MAX)), (1, 7, MOST_ITEMS));
    }
}
