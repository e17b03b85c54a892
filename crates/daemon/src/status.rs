//! What a node says of itself: the document behind `ashway status -j`.

use ashway_abi::Count;
use ashway_abi::count::Ledger;
use serde_json::{Map, Value, json};

use crate::counters::Row;

/// The fates, notes, activations, aborts and messages out of a path. `waiting` is the number
/// of its messages in the user tier.
#[must_use]
pub(crate) fn counts(row: &Row, waiting: u64) -> Map<String, Value> {
    let mut fates = Map::new();
    let mut dropped = Map::new();
    let mut notes = Map::new();
    let mut aborts = Map::new();
    let mut out = Map::new();
    let mut out_dropped = Map::new();
    for &which in Count::ALL {
        let value = row.get(which);
        let name = which.name();
        match which.ledger() {
            Ledger::Received => {}
            Ledger::Fate => match name.strip_prefix("dropped_") {
                Some(reason) => insert_some(&mut dropped, reason, value),
                None => {
                    fates.insert(name.to_owned(), json!(value));
                }
            },
            Ledger::Note if which == Count::Committed => {}
            Ledger::Note => match name.strip_prefix("abort_") {
                Some(cause) => insert_some(&mut aborts, cause, value),
                None => insert_some(&mut notes, name, value),
            },
            Ledger::Originated | Ledger::Sent => {
                let name = name.strip_prefix("out_").unwrap_or(name);
                match name.strip_prefix("dropped_") {
                    Some(reason) => insert_some(&mut out_dropped, reason, value),
                    None => {
                        out.insert(name.to_owned(), json!(value));
                    }
                }
            }
        }
    }
    fates.insert("dropped".to_owned(), Value::Object(dropped));
    out.insert("dropped".to_owned(), Value::Object(out_dropped));
    let received = row.get(Count::Received);
    let balanced = received == row.sum(Ledger::Fate) + waiting
        && row.sum(Ledger::Originated) == row.sum(Ledger::Sent);
    let mut all = Map::new();
    all.insert("received".to_owned(), json!(received));
    all.insert("waiting".to_owned(), json!(waiting));
    all.insert("fates".to_owned(), Value::Object(fates));
    all.insert("notes".to_owned(), Value::Object(notes));
    let committed = row.get(Count::Committed);
    let aborted: u64 = aborts.values().filter_map(Value::as_u64).sum();
    all.insert(
        "activations".to_owned(),
        json!({
            "examined": committed + aborted,
            "committed": committed,
            "aborted": aborted,
        }),
    );
    all.insert("aborts".to_owned(), Value::Object(aborts));
    all.insert("out".to_owned(), Value::Object(out));
    all.insert("balanced".to_owned(), json!(balanced));
    all
}

/// Rare counters appear once they have something to say.
fn insert_some(map: &mut Map<String, Value>, name: &str, value: u64) {
    if value > 0 {
        map.insert(name.to_owned(), json!(value));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counters::UserRows;
    use crate::rows::CounterRow;

    const ROW: CounterRow = CounterRow(0);

    #[test]
    fn a_message_without_a_fate_shows() {
        let rows = UserRows::new(1);
        rows.add(ROW, Count::Received);
        rows.add(ROW, Count::Received);
        rows.add(ROW, Count::Consumed);
        assert_eq!(counts(&rows.row(ROW), 0)["balanced"], json!(false));
        assert_eq!(counts(&rows.row(ROW), 1)["balanced"], json!(true));
        rows.add(ROW, Count::DroppedTooLong);
        let counts = counts(&rows.row(ROW), 0);
        assert_eq!(counts["balanced"], json!(true));
        assert_eq!(counts["fates"]["dropped"], json!({ "too_long": 1 }));
    }
}
