//! Which slots are whose?
//!
//! Each member works it out alone and comes to the same answer: a slot weighs something for every member, the heaviest pairs come first, and who has its
//! share gets no more. So everybody has as many as the others, or one more: by weight alone, one of three members would have none of 16 slots four times in a
//! thousand. When one joins or goes its own slots move, and of the others few. A slot of one number is with the same member in every group that the same
//! members serve and that has as many slots.
//!
//! Programs of before went by weight alone. While one of them lives everybody does, because two who divide differently would leave a slot to each other: who
//! divides evenly says so at the end of its id.

use super::group::{SlotNumber, stable_hash};
use uuid::Uuid;

/// How an id ends whose process divides evenly.
const EVENLY: u128 = 0x656e_7375_6531;
const LAST_GROUP: u128 = 0xffff_ffff_ffff;

/// The id of a process that divides slots as [`divide`] does, made of random bits.
pub fn member_id(random: u128) -> Uuid {
    Uuid::from_u128((random & !LAST_GROUP) | EVENLY)
}

/// The member of each slot, by number; nothing without members.
pub fn divide(slots: u16, members: &[Uuid]) -> Vec<Uuid> {
    if members.is_empty() {
        return Vec::new();
    }
    let divides_evenly = |member: &Uuid| member.as_u128() & LAST_GROUP == EVENLY;
    if members.iter().all(divides_evenly) { evenly(slots, members) } else { by_weight(slots, members) }
}

fn weight(slot: SlotNumber, member: &Uuid) -> u64 {
    let mut bytes = [0; 18];
    bytes[..16].copy_from_slice(member.as_bytes());
    bytes[16..].copy_from_slice(&slot.to_be_bytes());
    stable_hash(&bytes)
}

fn by_weight(slots: u16, members: &[Uuid]) -> Vec<Uuid> {
    let heaviest = |slot| members.iter().copied().max_by_key(|member| (weight(slot, member), *member));
    (0..slots).filter_map(heaviest).collect()
}

/// Nothing is left over: all shares together are all slots, so a slot that nobody has finds a member whose share is not full.
fn evenly(slots: u16, members: &[Uuid]) -> Vec<Uuid> {
    let (share, mut larger_shares) = (usize::from(slots) / members.len(), usize::from(slots) % members.len());
    let pairs =
        (0..slots).flat_map(|slot| members.iter().enumerate().map(move |(place, member)| (slot, place, member)));
    let mut pairs: Vec<_> = pairs.map(|(slot, place, member)| (weight(slot, member), *member, slot, place)).collect();
    pairs.sort_unstable_by(|one, other| other.cmp(one));
    let mut has = vec![0; members.len()];
    let mut owners = vec![None; usize::from(slots)];
    for (_, member, slot, place) in pairs {
        let is_full = has[place] > share || (has[place] == share && larger_shares == 0);
        if is_full || owners[usize::from(slot)].is_some() {
            continue;
        }
        if has[place] == share {
            larger_shares -= 1;
        }
        has[place] += 1;
        owners[usize::from(slot)] = Some(member);
    }
    owners.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Members of the same ids every time, which differ as random ones do.
    fn members(from: u64, count: u64) -> Vec<Uuid> {
        let random = |n: u64| u128::from(stable_hash(&n.to_be_bytes())) << 64 | u128::from(stable_hash(&[n as u8, 7]));
        (from..from + count).map(|n| member_id(random(n))).collect()
    }

    #[test]
    fn everybody_has_as_many_as_the_others_or_one_more() {
        for (slots, count) in [(16, 1), (16, 2), (16, 3), (16, 5), (16, 16), (16, 40), (256, 7), (1, 3)] {
            for from in 0..50 {
                let members = members(from, count);
                let owners = divide(slots, &members);
                assert_eq!(owners.len(), usize::from(slots), "every slot is somebody's");
                let share = usize::from(slots) / members.len();
                for member in &members {
                    let has = owners.iter().filter(|owner| *owner == member).count();
                    assert!(has == share || has == share + 1, "{has} of {slots} for one of {count}");
                }
            }
        }
        assert!(divide(16, &[]).is_empty());
    }

    #[test]
    fn each_comes_to_the_same_answer() {
        let mut members = members(3, 5);
        let one = divide(16, &members);
        members.reverse();
        assert_eq!(divide(16, &members), one);
    }

    /// With three members five or six slots are to be moved when one goes; with five, three or four.
    #[test]
    fn when_a_member_goes_few_slots_move_between_the_others() {
        for (count, most_between_others) in [(2, 0.0), (3, 0.8), (5, 1.5)] {
            let mut between_others = 0;
            for from in 0..200 {
                let members = members(from, count);
                let (before, after) = (divide(16, &members), divide(16, &members[1..]));
                let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
                between_others += moved.filter(|(before, _)| **before != members[0]).count();
            }
            let each = between_others as f64 / 200.0;
            assert!(each <= most_between_others, "{each} slots of others move when one of {count} goes");
        }
    }

    /// Beside one that goes by weight alone everybody does: nobody leaves a slot to somebody who leaves it to them.
    #[test]
    fn beside_a_program_of_before_slots_are_divided_as_it_divides_them() {
        let ids = [
            0x0190_0000_0000_8000_8000_656e_7375_6531,
            0x7a31_55c0_12ef_4abc_91d0_0000_0000_0002,
            0xfe04_9b2c_a5d7_8000_a6f1_656e_7375_6531,
        ];
        let members = ids.map(Uuid::from_u128);
        let place = |owner: &Uuid| members.iter().position(|member| member == owner);
        let places: Vec<_> = divide(16, &members).iter().filter_map(place).collect();
        assert_eq!(places, [1, 0, 1, 1, 1, 2, 1, 1, 0, 1, 1, 0, 2, 1, 0, 2], "a contract with programs of before");
    }
}
