//! Which number does `hashtext` give a text?
//!
//! Bob Jenkins' lookup3, started and finished as Postgres does it, so that a share of the objects chosen with
//! `hashtext(e.object) % 4 = 0` is the same share in a query.

/// Lookup3's golden ratio and the constant that Postgres adds to it.
const START: u32 = 0x9e37_79b9 + 3_923_095;

/// The 32 bits of Postgres' `hashtext`.
pub fn hashtext(text: &str) -> i32 {
    let bytes = text.as_bytes();
    let start = START.wrapping_add(bytes.len() as u32);
    let (mut a, mut b, mut c) = (start, start, start);
    let mut blocks = bytes.chunks_exact(12);
    for block in &mut blocks {
        a = a.wrapping_add(word(&block[0..4]));
        b = b.wrapping_add(word(&block[4..8]));
        c = c.wrapping_add(word(&block[8..12]));
        (a, b, c) = mix(a, b, c);
    }
    let rest = blocks.remainder();
    let (first, rest) = rest.split_at(rest.len().min(4));
    let (second, third) = rest.split_at(rest.len().min(4));
    a = a.wrapping_add(word(first));
    b = b.wrapping_add(word(second));
    // The lowest byte of the last word is left to the length.
    c = c.wrapping_add(word(third) << 8);
    finish(a, b, c) as i32
}

/// Up to four bytes, lowest first.
fn word(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte))
}

fn mix(mut a: u32, mut b: u32, mut c: u32) -> (u32, u32, u32) {
    for (turn_a, turn_b, turn_c) in [(4, 6, 8), (16, 19, 4)] {
        a = a.wrapping_sub(c) ^ c.rotate_left(turn_a);
        c = c.wrapping_add(b);
        b = b.wrapping_sub(a) ^ a.rotate_left(turn_b);
        a = a.wrapping_add(c);
        c = c.wrapping_sub(b) ^ b.rotate_left(turn_c);
        b = b.wrapping_add(a);
    }
    (a, b, c)
}

fn finish(mut a: u32, mut b: u32, mut c: u32) -> u32 {
    let step = |value: u32, by: u32, turn: u32| (value ^ by).wrapping_sub(by.rotate_left(turn));
    c = step(c, b, 14);
    a = step(a, c, 11);
    b = step(b, a, 25);
    c = step(c, b, 16);
    a = step(a, c, 4);
    b = step(b, a, 14);
    step(c, b, 24)
}

#[cfg(test)]
mod tests {
    use super::hashtext;

    #[test]
    fn the_numbers_are_those_of_postgres() {
        assert_eq!(hashtext(""), -1_477_818_771);
        assert_eq!(hashtext("abc"), -785_388_649);
        // Every length of what is left after blocks of twelve.
        assert_eq!(hashtext("order:123"), -1_161_390_427);
        assert_eq!(hashtext("order:1234"), 1_743_799_774);
        assert_eq!(hashtext("order:12345"), 3_264_878);
        assert_eq!(hashtext("twelve bytes"), 652_846_557);
        assert_eq!(hashtext("twelve bytes and eleven"), -174_433_991);
        assert_eq!(hashtext("hello world, this is long enough"), 205_434_105);
    }
}
