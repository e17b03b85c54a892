//! The table finds what trying all filters finds.

use std::collections::BTreeMap;

use ashway_demux::{self as demux, Change, Filter, Replica, Shape, ShapeId, Table, Update};
use ashway_wire::Headers;
use proptest::prelude::*;

use super::frames;

/// Filters that meet, nest and are disjoint.
const FILTERS: &[&str] = &[
    "udp",
    "udp and dst port 53",
    "udp dst port 7777",
    "udp dst port 53 and src host 10.0.0.1",
    "udp and ip",
    "ip and udp dst port 53",
    "port 53",
    "tcp port 53",
    "tcp dst portrange 1000-1999",
    "tcp",
    "ip",
    "ip6",
    "arp",
    "src net 10.0.0.0/30",
    "src host 10.0.0.1",
    "src host 10.0.0.3",
    "dst host 10.0.0.2",
    "host fd00::1",
    "udp and not dst port 53",
    "ip and not udp",
    "ip6 and not (udp dst port 53 and src host fd00::1)",
    "vlan",
    "vlan 5",
    "vlan 6",
    "vlan 5 and udp",
    "vlan and vlan",
    "vlan 5 and vlan 6 and dst port 53",
    "vxlan 42",
    "vxlan",
    "udp[0:2] = 7",
    "ip[0] & 15 = 8",
    "udp dst port 53 and src port 7",
    "icmp",
    "sctp",
    "not ip and not ip6",
    "udp and not src net 10.0.0.0/31",
    "udp dst port 7777 and not src net 10.0.0.0/31",
    "ether[0] = 255",
];

/// The answer by definition: of all filters, the most specific alternative; if
/// several have it, of those the filter that implies the others.
fn naive(filters: &BTreeMap<u32, Filter>, headers: &Headers, frame: &[u8]) -> Option<u32> {
    let matching = filters.iter().filter_map(|(&value, filter)| {
        let specificity = filter.specificity(headers, frame)?;
        Some((specificity, value))
    });
    let (best, _) = matching.clone().max()?;
    let equals = matching.filter(|(specificity, _)| *specificity == best);
    let equals: Vec<u32> = equals.map(|(_, value)| value).collect();
    let narrower = |one: u32, other: u32| {
        one == other
            || filters[&one].implies(&filters[&other]) && !filters[&other].implies(&filters[&one])
    };
    let winner = |one: &&u32| equals.iter().all(|other| narrower(**one, *other));
    let winner = equals.iter().find(winner);
    assert!(
        winner.is_some(),
        "filters {equals:?} are equally specific for {frame:02x?}"
    );
    winner.copied()
}

/// Follows changes as a compiled copy has to, and is compared with the table.
#[derive(Default)]
struct Copy(BTreeMap<ShapeId, Vec<Vec<u8>>>);

impl Copy {
    fn follow(&mut self, change: &Change) {
        for id in &change.made {
            assert!(self.0.insert(*id, Vec::new()).is_none(), "an id came twice");
        }
        for (id, key) in &change.added {
            self.0.get_mut(id).unwrap().push(key.to_vec());
        }
        for (id, key) in &change.removed {
            let keys = self.0.get_mut(id).unwrap();
            let place = keys.iter().position(|other| other[..] == key[..]).unwrap();
            keys.swap_remove(place);
        }
        for (id, key) in &change.turned {
            assert!(self.0[id].contains(&key.to_vec()), "what turns is there");
        }
        for id in &change.unmade {
            assert_eq!(self.0.remove(id).unwrap(), Vec::<Vec<u8>>::new());
        }
    }

    fn equals(&mut self, table: &Table<u32>) {
        assert_eq!(self.0.len(), table.shapes().len());
        for entries in table.shapes() {
            let mut keys: Vec<Vec<u8>> = entries.iter().map(|(key, _)| key.to_vec()).collect();
            let copied = self.0.get_mut(&entries.id()).unwrap();
            keys.sort();
            copied.sort();
            assert_eq!(&keys, copied);
        }
    }
}

/// Inserts and removes filters of the list in turn, and compares after all.
fn check(list: &[&str], steps: Vec<(usize, bool)>) -> Result<(), TestCaseError> {
    let frames: Vec<(Headers, Vec<u8>)> = frames::whole()
        .into_iter()
        .flat_map(|frame| [frame[..frame.len() / 2].to_vec(), frame])
        .map(|frame| (Headers::parse(&frame), frame))
        .collect();
    let mut table = Table::default();
    let mut filters = BTreeMap::new();
    let mut copy = Copy::default();
    let mut replica = Replica::of(&table);
    for (index, insert) in steps {
        let value = index as u32;
        let change = if insert {
            let filter = demux::parse(list[index]).unwrap();
            match table.insert(&filter, value) {
                Ok(change) => {
                    filters.insert(value, filter);
                    change
                }
                Err(conflict) => {
                    prop_assert!(filters.contains_key(&conflict.with));
                    prop_assert_eq!(&conflict.filter, list[index]);
                    prop_assert_eq!(&conflict.with_filter, list[conflict.with as usize]);
                    Change::default()
                }
            }
        } else {
            filters.remove(&value);
            table.remove(value)
        };
        copy.follow(&change);
        copy.equals(&table);
        replica.follow(&Update::of(&table, change, value));
    }
    prop_assert_eq!(table.len(), filters.len());
    for (headers, frame) in &frames {
        let found = table.find(headers, frame);
        prop_assert_eq!(found, naive(&filters, headers, frame), "{:02x?}", frame);
        prop_assert_eq!(replica.find(headers, frame), found, "{:02x?}", frame);
        prop_assert_eq!(Replica::of(&table).find(headers, frame), found);
    }
    Ok(())
}

/// Filters with the same alternatives, most of them one within another.
const TIES: &[&str] = &[
    "udp dst port 53",
    "ip and udp dst port 53",
    "ip6 and udp dst port 53",
    "dst port 53",
    "udp dst port 53 or 7777",
    "ip and udp dst port 53 or 7777",
    "udp dst portrange 52-53",
    "udp dst port 7777",
    "udp",
    "ip and udp",
    "udp or tcp",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn finds_what_trying_all_filters_finds(
        steps in prop::collection::vec((0..FILTERS.len(), any::<bool>()), 1..60),
    ) {
        check(FILTERS, steps)?;
    }

    #[test]
    fn the_narrowest_has_what_several_filters_have(
        steps in prop::collection::vec((0..TIES.len(), any::<bool>()), 1..40),
    ) {
        check(TIES, steps)?;
    }
}

#[test]
fn a_conflict_is_only_where_two_filters_meet_equally() {
    let conflict = |one: &str, other: &str| {
        let mut table = Table::default();
        table.insert(&demux::parse(one).unwrap(), 1).unwrap();
        table
            .insert(&demux::parse(other).unwrap(), 2)
            .err()
            .map(|conflict| conflict.to_string())
    };
    assert_eq!(
        conflict("port 53", "port 80").unwrap(),
        "`port 80` and `port 53` are equally specific and can match the same frame"
    );
    assert!(conflict("udp", "udp").is_some());
    assert!(conflict("udp src port 5", "udp dst port 5").is_some());
    assert!(conflict("(udp and ip) or (udp and ip6)", "udp").is_some());
    // One operator after the other: this is `udp and ip6`, which is narrower.
    assert!(conflict("udp and ip or udp and ip6", "udp").is_none());
    assert!(conflict("udp dst port 7", "ip and udp dst port 7").is_none());
    assert!(conflict("udp dst port 53", "udp dst port 80").is_none());
    assert!(conflict("udp dst port 53", "tcp src port 53").is_none());
    assert!(conflict("udp", "udp dst port 53").is_none());
    assert!(conflict("udp and not dst port 53", "udp and not dst port 54").is_some());
    assert!(conflict("udp and not dst port 53", "udp").is_none());
    assert!(conflict("src net 10.0.0.0/16", "src net 10.1.0.0/16").is_none());
    assert!(conflict("ip[8] & 15 = 1", "ip[8] & 0xf0 = 16").is_some());
}

/// Filters of equally specific shapes that have some bits, all or none in common.
fn equals() -> Vec<String> {
    let mut texts = Vec::new();
    for value in 0..3 {
        for other in 0..3 {
            texts.push(format!("udp src port {value} and dst port {other}"));
            texts.push(format!(
                "ip and udp src port {value} and src net 10.{other}.0.0/16"
            ));
            texts.push(format!(
                "ip and udp src port {value} and dst net 10.{other}.0.0/16"
            ));
            texts.push(format!(
                "ip and udp dst port {value} and dst net 10.{other}.0.0/16"
            ));
            texts.push(format!(
                "ip and udp and src net 10.{value}.0.0/16 and dst net 10.{other}.0.0/16"
            ));
            texts.push(format!(
                "ip and udp and src net 10.{value}.0.0/24 and dst net {other}.0.0.0/8"
            ));
            texts.push(format!("udp src port {value} and not dst port {other}"));
            texts.push(format!("udp dst port {value} and not src port {other}"));
        }
        texts.push(format!("ip6 and udp and src net fd00:{value}::/32"));
        texts.push(format!("ip6 and udp and dst net fd0{value}::/32"));
    }
    texts
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn equals_conflict_where_they_meet_and_nowhere_else(
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..10), 1..120),
    ) {
        let filters: Vec<Filter> = equals().iter().map(|text| demux::parse(text).unwrap()).collect();
        let mut table = Table::default();
        let mut inside: BTreeMap<usize, &Filter> = BTreeMap::new();
        for (index, dice) in steps {
            let value = index.index(filters.len());
            // Mostly insertions; what was there before is often removed.
            if dice < 4 {
                table.remove(value);
                inside.remove(&value);
                continue;
            }
            let filter = &filters[value];
            let meets = inside.iter().any(|(_, other)| {
                filter.any.iter().any(|one| {
                    let equal = |two: &&demux::Conjunction| one.specificity() == two.specificity();
                    other.any.iter().filter(equal).any(|two| one.overlaps(two))
                })
            });
            let inserted = table.insert(filter, value);
            prop_assert_eq!(inserted.is_err(), meets, "{}", filter);
            if let Err(conflict) = inserted {
                prop_assert!(inside[&conflict.with].overlaps(filter));
            } else {
                inside.insert(value, filter);
            }
        }
    }
}

#[test]
fn the_same_alternative_is_the_narrower_filters() {
    let texts = [
        "udp dst port 7",
        "ip and udp dst port 7",
        "udp dst port 7 or tcp dst port 9",
        "udp dst portrange 6-7",
    ];
    let filters = texts.map(|text| demux::parse(text).unwrap());
    let frame = &frames::whole()[0];
    let mut frame = frame.clone();
    frame[36..38].copy_from_slice(&7_u16.to_be_bytes());
    let headers = Headers::parse(&frame);
    // Narrower first: 1, 0, 2. The fourth has an alternative of fewer bits.
    for order in [[0, 1, 2, 3], [2, 0, 1, 3], [3, 1, 2, 0], [1, 2, 3, 0]] {
        let mut table = Table::default();
        for value in order {
            table.insert(&filters[value], value).unwrap();
        }
        for (gone, next) in [(1, Some(0)), (0, Some(2)), (2, Some(3)), (3, None)] {
            assert_eq!(table.find(&headers, &frame), Some(gone), "{order:?}");
            let change = table.remove(gone);
            assert_eq!(table.find(&headers, &frame), next, "{order:?}");
            let turns = [(1, 1), (0, 2)].contains(&(gone, change.turned.len()));
            assert_eq!(turns, gone < 2, "{change:?}");
        }
        assert!(table.is_empty() && table.shapes().is_empty());
    }
    // Neither implies the other: the same alternative is nobody's.
    let mut table = Table::default();
    table.insert(&filters[2], 2).unwrap();
    let other = demux::parse("ip and udp dst port 7 or 10").unwrap();
    assert_eq!(table.insert(&other, 9).unwrap_err().with, 2);
    assert_eq!(table.len(), 1);
}

#[test]
fn a_flow_under_a_wildcard_takes_that_flow_alone() {
    let mut table = Table::default();
    let insert = |table: &mut Table<u32>, text: &str, value| {
        table.insert(&demux::parse(text).unwrap(), value).unwrap()
    };
    insert(&mut table, "udp dst port 53", 1);
    let made = insert(
        &mut table,
        "udp dst port 53 and src host 10.0.0.1 and src port 7 and dst host 10.0.0.2",
        2,
    );
    assert_eq!((made.made.len(), made.added.len()), (1, 1));
    let second = insert(
        &mut table,
        "udp dst port 53 and src host 10.0.0.1 and src port 8 and dst host 10.0.0.2",
        3,
    );
    assert_eq!(
        (second.made.len(), second.added.len()),
        (0, 1),
        "no new program"
    );
    let frame = &frames::whole()[0];
    let other = {
        let mut other = frame.clone();
        other[29] = 9;
        other
    };
    let find = |table: &Table<u32>, frame: &[u8]| table.find(&Headers::parse(frame), frame);
    assert_eq!(
        (find(&table, frame), find(&table, &other)),
        (Some(2), Some(1))
    );
    let change = table.remove(2);
    assert_eq!((change.removed.len(), change.unmade.len()), (1, 0));
    assert_eq!(find(&table, frame), Some(1));
    assert_eq!(table.remove(3).unmade.len(), 1);
}

#[test]
fn a_key_is_masked_values_at_their_width() {
    let filter =
        demux::parse("vlan 5 and udp src port 7 and dst net 10.1.0.0/16 and src host 10.0.0.1")
            .unwrap();
    let (shape, key) = Shape::of(&filter.any[0]);
    assert_eq!(&key[..], [0, 5, 10, 0, 0, 1, 10, 1, 0, 0, 0, 7]);
    assert_eq!(shape.conjunction(&key), filter.any[0]);
    let filter = demux::parse("ip6 dst host fd00::2 and udp dst port 53 and vlan 1").unwrap_err();
    assert_eq!(
        filter.message, "nothing can match this",
        "`vlan` moves what follows it"
    );
    let filter = demux::parse("udp and ip6 src net fd00::/40 and dst port 53").unwrap();
    let (shape, key) = Shape::of(&filter.any[0]);
    assert_eq!(
        (key.len(), shape.key_bytes()),
        (20, 20),
        "18 bytes and padding"
    );
}

#[test]
fn a_domain_gets_no_more_than_it_owns() {
    let owned: Vec<Filter> = ["udp dst portrange 7000-7999", "host 10.0.0.1"]
        .map(|text| demux::parse(text).unwrap())
        .into();
    let check = |text: &str| demux::owned_by(&owned, &demux::parse(text).unwrap());
    for text in [
        "udp dst port 7777",
        "udp dst portrange 7500-7999 and not src host 10.0.0.9",
        "src host 10.0.0.1 and tcp",
        "host 10.0.0.1",
    ] {
        assert_eq!(check(text), Ok(()), "{text}");
    }
    for text in [
        "udp",
        "udp dst portrange 7500-8000",
        "udp dst port 6999",
        "net 10.0.0.0/31",
        "tcp dst port 7777",
    ] {
        let error = check(text).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "`{text}` matches messages that are not its owner's; owned: \
                 `udp dst portrange 7000-7999`, `host 10.0.0.1`"
            )
        );
    }
    assert!(demux::owned_by(&[], &demux::parse("udp").unwrap()).is_err());
}

#[test]
fn one_text_is_said_once() {
    let mut table = Table::default();
    let filter = demux::parse("udp dst port 7").unwrap();
    table.insert(&filter, 1).unwrap();
    let same = table.insert(&filter, 2).unwrap_err();
    assert_eq!(same.to_string(), "both ask for `udp dst port 7`");
    let other = demux::parse("udp and dst port 7").unwrap();
    let other = table.insert(&other, 2).unwrap_err().to_string();
    assert!(
        other.starts_with("`udp and dst port 7` and `udp dst port 7` are"),
        "{other}"
    );
}
