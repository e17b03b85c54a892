//! The table as people and programs see it.

use ashway_demux::{ShapeId, Table, parse, print};

fn table() -> Table<u32> {
    let mut table = Table::default();
    for (value, text) in [
        "ip and udp dst port 53",
        "ip and udp dst port 7777",
        "ip and udp and src net 10.0.0.0/8 and not dst port 9",
        "ip",
        "vlan 5 and arp",
        "ip6 net fd00::/64 and ip6[7] = 64",
    ]
    .iter()
    .enumerate()
    {
        table.insert(&parse(text).unwrap(), value as u32).unwrap();
    }
    table
}

#[test]
fn people_see_a_tree_with_the_order_of_trial() {
    let hits = |id| (id == ShapeId(0)).then_some(12);
    let expected = "\
no tag
  type ip
    6. 1 entry, 18 bits
    protocol udp
      4. not (not a later fragment and destination port 9), key source/8: 1 entry, 34 bits
      not a later fragment
        3. key destination port: 2 entries, 43 bits, 12 hits
  type ip6
    1. key source/64, network[7:1]: 1 entry, 90 bits
    2. key destination/64, network[7:1]: 1 entry, 90 bits
one tag
  type arp
    5. key vlan: 1 entry, 30 bits
";
    let tree = print::tree(&table(), hits);
    assert_eq!(tree, expected, "{tree}");
}

#[test]
fn a_shape_is_told_in_words() {
    let table = table();
    let shapes = table.shapes().iter();
    let second = shapes.clone().find(|entries| entries.id() == ShapeId(1));
    let text = print::shape(second.unwrap().shape());
    assert_eq!(text.guards, ["no tag", "type ip", "protocol udp"]);
    let not = "not a later fragment and destination port 9";
    assert_eq!(text.not, [not]);
    assert_eq!(text.key, ["source/8"]);
    let ids: Vec<_> = shapes.map(|entries| entries.id().0).collect();
    assert_eq!(ids, [4, 5, 0, 1, 3, 2], "the order of trial");
}

#[test]
fn a_network_of_version_6_is_shown_as_one() {
    let filter = parse("udp and src net fd00::/8 and not dst net fd00:1::/32").unwrap();
    let shown: Vec<String> = filter.any.iter().map(ToString::to_string).collect();
    let shown = shown.join("; ");
    assert!(shown.contains("source fd00::/8"), "{shown}");
    assert!(shown.contains("destination fd00:1::/32"), "{shown}");
    assert!(!shown.contains("253.0.0.0"), "{shown}");
}
