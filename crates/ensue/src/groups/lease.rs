//! The lease of a reader, as text.
//!
//! It carries all that is needed to continue and to commit, so that neither needs a row of its own: the reader and how
//! far it was led. Its code under the store's key keeps the reader from changing any of that. Only the store decides
//! whether the lease still holds. SQL has the same text (`ensue-stores/src/postgres/sql/fn_lease.sql`).

use ensue_core::positions::{EventAt, Fence, Lost};
use ensue_core::store_key::{CODE_DIGITS, bytes_of};
use ensue_core::{EventId, Invalid, Seq, StoreKey};
use uuid::Uuid;

/// First byte of a lease of this form.
const FORM: u8 = 3;
/// Length of a lease without its code, in bytes: the form, the reader, five numbers, and an id.
const BYTES: usize = 1 + 16 + 5 * 8 + 16;

/// The text over which the code of a lease is computed.
fn message(body: &str) -> String {
    format!("lease-{body}")
}

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
    /// The id of the event at `given_to`; none if there was none. A log that does not hold it has lost some of what was
    /// looked at (H44).
    pub given_id: Option<EventId>,
}

impl Lease {
    /// As its reader gets it.
    pub fn to_text(self, key: &StoreKey) -> String {
        let (from, to) = self.lost.map_or((0, 0), |lost| (lost.from, lost.to));
        let mut bytes = Vec::with_capacity(BYTES);
        bytes.push(FORM);
        bytes.extend(self.member.as_bytes());
        for number in [self.fence, self.at, self.given_to, from, to] {
            bytes.extend(number.to_be_bytes());
        }
        bytes.extend(self.given_id.map_or(Uuid::nil(), |id| id.0).as_bytes());
        let body: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{body}{}", key.code(&message(&body)))
    }

    /// The lease that a reader sent; none if this store has not given it out.
    pub fn parse(text: &str, key: &StoreKey) -> Result<Option<Self>, Invalid> {
        let invalid =
            || Invalid::new("lease", "is not one that a read answered; send it as it was, or read again without it");
        let (body, code) = text.split_at_checked(2 * BYTES).ok_or_else(invalid)?;
        if code.len() != CODE_DIGITS || bytes_of(code).is_none() {
            return Err(invalid());
        }
        let lease = Self::of(body).ok_or_else(invalid)?;
        Ok(Some(lease).filter(|_| key.verifies(&message(body), code)))
    }

    fn of(body: &str) -> Option<Self> {
        let bytes = bytes_of(body)?;
        let (form, rest) = bytes.split_first()?;
        let (member, numbers) = rest.split_at(16);
        let (numbers, given_id) = numbers.split_at(5 * 8);
        let given_id = Uuid::from_slice(given_id).ok()?;
        let mut numbers = numbers.chunks_exact(8).map(|bytes| {
            let number = u64::from_be_bytes(bytes.try_into().ok()?);
            // What a store cannot keep was never given out.
            (number <= i64::MAX as u64).then_some(number)
        });
        let mut next = || numbers.next().flatten();
        let (fence, at, given_to, from, to) = (next()?, next()?, next()?, next()?, next()?);
        let lost = (from > 0).then_some(Lost { from, to });
        let given_id = (!given_id.is_nil()).then_some(EventId(given_id));
        (*form == FORM).then_some(Self { member: Uuid::from_slice(member).ok()?, fence, at, given_to, lost, given_id })
    }

    /// The newest event that was looked at under it.
    pub fn newest(&self) -> Option<EventAt> {
        self.given_id.map(|id| EventAt { seq: self.given_to, id })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ensue_core::store_key::STORE_KEY_BYTES;

    #[test]
    fn a_lease_comes_back_as_it_was_given_and_nothing_else_is_one() {
        let lease = Lease { member: Uuid::from_u128(7), fence: 3, at: 40, given_to: 50, lost: None, given_id: None };
        let with_loss = Lease { lost: Some(Lost { from: 5, to: 9 }), ..lease };
        let with_id = Lease { given_id: Some(EventId(Uuid::from_u128(9))), ..lease };
        let key = StoreKey::new([1; STORE_KEY_BYTES]);
        for lease in [lease, with_loss, with_id] {
            assert_eq!(Lease::parse(&lease.to_text(&key), &key), Ok(Some(lease)));
        }
        let text = lease.to_text(&key);
        assert_eq!(Lease::parse(&text, &StoreKey::new([2; STORE_KEY_BYTES])), Ok(None), "the key of another store");
        let further = Lease { given_to: 51, ..lease }.to_text(&key);
        let forged = format!("{}{}", &further[..2 * BYTES], &text[2 * BYTES..]);
        assert_eq!(Lease::parse(&forged, &key), Ok(None), "it was not led so far");
        let other_form = text.replacen("03", "02", 1);
        let beyond = format!("{}{}{}", &text[..2 * BYTES - 48], "f".repeat(16), &text[2 * BYTES - 32..]);
        let without_code = &text[..2 * BYTES];
        for bad in
            ["", "x", &text[1..], &format!("{text}0"), &text.replace('0', "g"), &other_form, &beyond, without_code, "ü"]
        {
            assert_eq!(Lease::parse(bad, &key).unwrap_err().field, "lease", "{bad}");
        }
    }
}
