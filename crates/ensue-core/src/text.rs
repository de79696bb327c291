//! Which text can every engine keep?

use std::borrow::Cow;

/// What is shown in the place of a NUL: the picture of one.
const NUL_SHOWN: &str = "\u{2400}";

/// Text that anybody may have written (an error, a line of a log, somebody's name), as every engine can keep it: Postgres
/// has no NUL in a text, so it is shown instead.
pub fn plain(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', NUL_SHOWN)) } else { Cow::Borrowed(text) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nul_is_shown_and_all_else_stays() {
        assert_eq!(plain("a\0b\0"), "a␀b␀");
        for text in ["", "a\tb\n", "größe\u{1f}", "␀"] {
            assert!(matches!(plain(text), Cow::Borrowed(same) if same == text));
        }
    }
}
