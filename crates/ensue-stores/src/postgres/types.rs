//! How do our values travel in the binary protocol?

use ensue_core::{Json, Timestamp};
use std::error::Error;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

type Fault = Box<dyn Error + Sync + Send>;

/// Postgres counts microseconds from 2000-01-01.
const EPOCH_MICROS: i64 = 946_684_800_000_000;
/// 4713 BC, the first year that Postgres knows.
const MICROS_MIN: i64 = -210_866_803_200_000_000;

/// A point in time, exact to the microsecond. Times that a [`Timestamp`] cannot hold, such as `infinity`, are read as the
/// first or the last one that it can: one such row does not stop a reader (H43).
#[derive(Debug, Clone, Copy)]
pub(super) struct Micros(pub Timestamp);

impl ToSql for Micros {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        let micros = self.0.as_microsecond().max(MICROS_MIN) - EPOCH_MICROS;
        out.extend_from_slice(&micros.to_be_bytes());
        Ok(IsNull::No)
    }
    accepts!(TIMESTAMPTZ);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Micros {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        let micros = i64::from_be_bytes(raw.try_into()?).saturating_add(EPOCH_MICROS);
        let nearest = if micros < 0 { Timestamp::MIN } else { Timestamp::MAX };
        Ok(Self(Timestamp::from_microsecond(micros).unwrap_or(nearest)))
    }
    accepts!(TIMESTAMPTZ);
}

/// Where a row is: `ctid`, as it travels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place([u8; 6]);

impl ToSql for Place {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Fault> {
        out.extend_from_slice(&self.0);
        Ok(IsNull::No)
    }
    accepts!(TID);
    to_sql_checked!();
}

impl<'a> FromSql<'a> for Place {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        Ok(Self(raw.try_into()?))
    }
    accepts!(TID);
}

/// The version of `jsonb`'s binary form: text led by this byte.
const JSONB_VERSION: u8 = 1;

/// JSON that came out of a `jsonb` column, without the blanks that Postgres writes between tokens.
#[derive(Debug)]
pub(super) struct JsonbOut(pub Json);

impl<'a> FromSql<'a> for JsonbOut {
    fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Fault> {
        match raw.split_first() {
            Some((&JSONB_VERSION, text)) => {
                let text = std::str::from_utf8(text)?;
                // Whoever writes to the table by hand may exceed our limits; what he wrote is still JSON.
                Ok(Self(Json::parse("payload", text).unwrap_or_else(|_| Json::stored(text))))
            }
            Some(_) | None => Err("jsonb of an unknown version".into()),
        }
    }
    accepts!(JSONB);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_out_of_range_are_read_as_the_nearest() {
        for (micros, nearest) in [
            (i64::MIN, Timestamp::MIN),
            (-EPOCH_MICROS - 400_000_000_000_000_000, Timestamp::MIN),
            (300_000_000_000_000_000, Timestamp::MAX),
            (i64::MAX, Timestamp::MAX),
        ] {
            assert_eq!(Micros::from_sql(&Type::TIMESTAMPTZ, &micros.to_be_bytes()).unwrap().0, nearest);
        }
    }

    #[test]
    fn times_travel_exactly() {
        for micros in [-62_135_596_800_000_000, -1, 0, 1_763_200_000_123_457, 253_402_207_199_999_999] {
            let at = Timestamp::from_microsecond(micros).unwrap();
            let mut out = BytesMut::new();
            Micros(at).to_sql(&Type::TIMESTAMPTZ, &mut out).unwrap();
            assert_eq!(Micros::from_sql(&Type::TIMESTAMPTZ, &out).unwrap().0, at);
        }
    }
}
