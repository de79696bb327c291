//! A slice that is borrowed where it can be and built where it must be.

use std::ops::Deref;

/// Like `Cow<[T]>`, but its lifetime may shrink together with that of what is in it.
#[derive(Debug, Clone)]
pub enum Part<'a, T> {
    /// Somebody else's.
    Borrowed(&'a [T]),
    /// Made on the way.
    Built(Vec<T>),
}

impl<T> Deref for Part<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::Borrowed(slice) => slice,
            Self::Built(vec) => vec,
        }
    }
}
