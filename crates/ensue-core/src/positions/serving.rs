//! Who serves which group?
//!
//! Processes that share a store need not have the same handlers. Each says which groups it serves, and a group's slots are
//! divided among those that serve it: who has other handlers neither gets a slot of it nor makes one move.

use super::division::divide;
use super::group::{Member, SlotNumber};
use crate::key::GroupName;
use std::collections::BTreeMap;
use uuid::Uuid;

/// A process that lives, and what it serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Serving {
    /// The process.
    pub member: Member,
    /// The groups that it serves, by name.
    pub groups: Vec<GroupName>,
}

/// For each of these groups, the processes that serve it, by id.
pub fn servers_of(groups: &[GroupName], serving: &[Serving]) -> BTreeMap<GroupName, Vec<Uuid>> {
    let servers = |group: &GroupName| {
        let mut ids: Vec<Uuid> =
            serving.iter().filter(|one| one.groups.contains(group)).map(|one| one.member.id).collect();
        ids.sort_unstable();
        ids
    };
    groups.iter().map(|group| (group.clone(), servers(group))).collect()
}

/// Which slots of a group should be this member's, if these serve it?
pub fn slots_for(member: Uuid, slots: u16, servers: &[Uuid]) -> Vec<SlotNumber> {
    (0..).zip(divide(slots, servers)).filter(|(_, owner)| *owner == member).map(|(slot, _)| slot).collect()
}

#[cfg(test)]
mod tests {
    use super::super::{GroupKind, member_id};
    use super::*;

    fn name(text: &str) -> GroupName {
        GroupName::stored(text)
    }

    fn serving(id: u128, groups: &[&str]) -> Serving {
        let member = Member { id: member_id(id << 64), name: format!("host:{id}"), kind: GroupKind::Handler };
        Serving { member, groups: groups.iter().map(|group| name(group)).collect() }
    }

    #[test]
    fn a_groups_slots_are_divided_among_those_who_serve_it_and_nobody_else() {
        let all = [serving(3, &["a", "shared"]), serving(1, &["b", "shared"]), serving(2, &[])];
        let servers = servers_of(&[name("a"), name("shared"), name("nobodys")], &all);
        let ids = |ids: &[u128]| ids.iter().map(|id| member_id(id << 64)).collect::<Vec<_>>();
        let expected = [(name("a"), ids(&[3])), (name("nobodys"), vec![]), (name("shared"), ids(&[1, 3]))];
        assert_eq!(servers, BTreeMap::from(expected));
        let slots = |id: u128, group: &str| slots_for(member_id(id << 64), 16, &servers[&name(group)]);
        assert_eq!(slots(3, "a"), (0..16).collect::<Vec<_>>());
        assert_eq!((slots(1, "a"), slots(2, "shared"), slots(3, "nobodys")), (vec![], vec![], vec![]));
        let (one, three) = (slots(1, "shared"), slots(3, "shared"));
        assert_eq!((one.len(), three.len()), (8, 8));
        let mut both = [one, three].concat();
        both.sort_unstable();
        assert_eq!(both, (0..16).collect::<Vec<_>>());
    }
}
