//! Which users of the host the sandbox's are: the maps of its user namespace (user_namespaces(7)).

use mayfly_core::run::{OtherIds, UserNamespace};
use mayfly_protocol::IdRange;

use super::{
    Findings,
    report::Expected,
    tables::{Table, reason},
};

/// The map of the host's first user namespace, and of gVisor's kernel: each id is itself.
const IDENTITY: IdRange = IdRange {
    inside: 0,
    outside: 0,
    count: u32::MAX,
};

/// What a map has to be.
enum Asked {
    Identity,
    /// One range from 0 on.
    Mapped {
        /// What 0 is outside, where the engine says it. Never the host's root.
        root: Option<u32>,
        /// The largest id that the sandbox uses.
        largest: u32,
    },
    /// Root alone, as the user that a rootless engine runs as, and all others from 1 on (rootlesskit(1), `newuidmap(1)`).
    Rootless {
        /// The largest id that the sandbox uses.
        largest: u32,
    },
}

impl Asked {
    fn accepts(&self, found: &[IdRange]) -> bool {
        match (self, found) {
            (Self::Identity, [range]) => *range == IDENTITY,
            (Self::Mapped { root, largest }, [range]) => {
                let IdRange {
                    inside,
                    outside,
                    count,
                } = *range;
                inside == 0
                    && outside > 0
                    && root.is_none_or(|root| outside == root)
                    && count > *largest
                    && outside.checked_add(count).is_some()
            }
            (Self::Rootless { largest }, [root, others]) => {
                let end = others.outside.checked_add(others.count);
                (root.inside, root.count) == (0, 1)
                    && others.inside == 1
                    && root.outside > 0
                    && others.outside > 0
                    && others.count >= *largest
                    && end.is_some_and(|end| !(others.outside..end).contains(&root.outside))
            }
            _ => false,
        }
    }

    fn words(&self) -> String {
        match self {
            Self::Identity => "each id as itself: 0 0 4294967295".to_owned(),
            Self::Mapped { root, largest } => {
                let root = root.map_or_else(|| "another id".to_owned(), |root| root.to_string());
                format!("one range, from 0 to {root} of the host, of more than {largest} ids")
            }
            Self::Rootless { largest } => {
                format!(
                    "two ranges, 0 to another id of the host, and from 1 to others, of at least {largest} ids"
                )
            }
        }
    }
}

/// Users and groups, as they have to be.
fn asked(expected: &Expected<'_>) -> [Asked; 2] {
    if !is_mapped(expected) {
        return [Asked::Identity, Asked::Identity];
    }
    let largest = expected.uids.guest.max(expected.uids.job);
    if expected.engine.is_rootless() {
        return [Asked::Rootless { largest }, Asked::Rootless { largest }];
    }
    let (uid, gid) = expected.engine.mapped_root().unzip();
    [uid, gid].map(|root| Asked::Mapped { root, largest })
}

/// Whether the kernel that answers the sandbox is the host's, and the engine maps users.
fn is_mapped(expected: &Expected<'_>) -> bool {
    expected.table() == Table::HostKernel && has_namespace(expected)
}

fn has_namespace(expected: &Expected<'_>) -> bool {
    expected.engine.remaps_users() || expected.engine.is_rootless()
}

pub(super) fn check(f: &mut Findings, expected: &Expected<'_>, uid_map: &[IdRange], gid_map: &[IdRange]) {
    let asked = asked(expected);
    for ((field, found), asked) in [("uid_map", uid_map), ("gid_map", gid_map)]
        .into_iter()
        .zip(asked)
    {
        f.expect(asked.accepts(found), field, || asked.words(), || lines(found));
    }
    if expected.table() == Table::Gvisor && has_namespace(expected) {
        let (what, why) = reason::USERS_GVISOR;
        f.not_enforceable(what, why);
    }
}

/// As the kernel's file has them.
fn lines(map: &[IdRange]) -> String {
    let lines: Vec<_> = map
        .iter()
        .map(|range| format!("{} {} {}", range.inside, range.outside, range.count))
        .collect();
    lines.join(", ")
}

/// The host's ids of a sandbox whose ids are mapped, where both maps are as they have to be.
pub(super) fn found(
    expected: &Expected<'_>,
    uid_map: &[IdRange],
    gid_map: &[IdRange],
) -> Option<UserNamespace> {
    let [uid, gid] = asked(expected);
    let are_right = is_mapped(expected) && uid.accepts(uid_map) && gid.accepts(gid_map);
    let (users, groups) = (uid_map.first()?, gid_map.first()?);
    let others = uid_map.get(1).zip(gid_map.get(1));
    let count = |map: &[IdRange]| {
        map.iter()
            .fold(0_u32, |sum, range| sum.saturating_add(range.count))
    };
    are_right.then(|| UserNamespace {
        first_uid: users.outside,
        first_gid: groups.outside,
        count: count(uid_map).min(count(gid_map)),
        others: others.map(|(users, groups)| OtherIds {
            first_uid: users.outside,
            first_gid: groups.outside,
        }),
    })
}
