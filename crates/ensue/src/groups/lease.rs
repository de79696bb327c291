//! What does a reader hold in its hand?
//!
//! Everything that is needed to go on under a lease and to commit, so that neither needs a row of its own: whose lease it
//! is and how far the reader was led. It says nothing that its reader may not know, and only the store decides whether the
//! lease still holds.

use ensue_core::positions::{Fence, Lost};
use ensue_core::{Invalid, Seq};
use uuid::Uuid;

/// What a token of this form begins with.
const FORM: u8 = 1;
/// How many bytes a token has: the form, who, and five numbers.
const BYTES: usize = 1 + 16 + 5 * 8;

/// A lease, as it was given out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Lease {
    /// Who reads.
    pub member: Uuid,
    /// Under which fence.
    pub fence: Fence,
    /// Where the next read goes on.
    pub at: Seq,
    /// Everything up to here was looked at under this lease: no commit goes beyond.
    pub given_to: Seq,
    /// What retention had taken when the reader came to it; noted in the group when it is passed.
    pub lost: Option<Lost>,
}

impl Lease {
    /// As its reader gets it.
    pub fn to_text(self) -> String {
        let (from, to) = self.lost.map_or((0, 0), |lost| (lost.from, lost.to));
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(FORM);
        bytes.extend(self.member.as_bytes());
        for number in [self.fence, self.at, self.given_to, from, to] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Back from what a reader sent.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::of(text).ok_or_else(|| {
            Invalid::new("lease", "is not one that a read answered; send it as it was, or read again without it")
        })
    }

    fn of(text: &str) -> Option<Self> {
        let text = text.as_bytes();
        if text.len() != 2 * BYTES {
            return None;
        }
        // As it was written, and in no other way: digits are small.
        let digit = |byte: u8| char::from(byte).to_digit(16).filter(|_| !byte.is_ascii_uppercase());
        let bytes: Vec<u8> = text
            .chunks_exact(2)
            .map(|pair| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8))
            .collect::<Option<_>>()?;
        let (form, rest) = bytes.split_first()?;
        let (member, numbers) = rest.split_at(16);
        let mut numbers = numbers.chunks_exact(8).map(|bytes| {
            let number = u64::from_be_bytes(bytes.try_into().ok()?);
            // What a store cannot keep was never given out.
            (number <= i64::MAX as u64).then_some(number)
        });
        let mut next = || numbers.next().flatten();
        let (fence, at, given_to, from, to) = (next()?, next()?, next()?, next()?, next()?);
        let lost = (from > 0).then_some(Lost { from, to });
        (*form == FORM).then_some(Self { member: Uuid::from_slice(member).ok()?, fence, at, given_to, lost })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_comes_back_as_it_was_given_and_nothing_else_is_one() {
        let lease = Lease { member: Uuid::from_u128(7), fence: 3, at: 40, given_to: 50, lost: None };
        let with_loss = Lease { lost: Some(Lost { from: 5, to: 9 }), ..lease };
        for lease in [lease, with_loss] {
            assert_eq!(Lease::parse(&lease.to_text()), Ok(lease));
        }
        let text = lease.to_text();
        let other_form = text.replacen("01", "02", 1);
        let beyond = format!("{}{}", &text[..text.len() - 16], "f".repeat(16));
        for bad in ["", "x", &text[1..], &format!("{text}0"), &text.replace('0', "g"), &other_form, &beyond, "ü"] {
            assert_eq!(Lease::parse(bad).unwrap_err().field, "lease", "{bad}");
        }
    }
}
