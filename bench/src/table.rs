//! Tables for a terminal: columns that line up, nothing else.

use std::time::Duration;

/// Rows below a header, two spaces in; the first `words` columns to the left,
/// the rest, numbers, to the right.
#[must_use]
pub fn render(header: &[&str], words: usize, rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        let widest = cells.map(|cell| cell.chars().count()).max();
        widest.unwrap_or(0).max(header[column].chars().count())
    };
    let widths: Vec<usize> = (0..header.len()).map(width).collect();
    let line = |row: &[&str]| {
        let mut line = String::from(" ");
        for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
            let cell = if column < words {
                format!(" {cell:<width$} ")
            } else {
                format!(" {cell:>width$} ")
            };
            line.push_str(&cell);
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let mut text = line(header);
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// A time in the unit that gives three digits: `3.91 us`, `12.4 ms`.
#[must_use]
pub fn time(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns} ns"),
        1_000..1_000_000 => (ns as f64 / 1e3, "us"),
        1_000_000..1_000_000_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{} {unit}", digits(value))
}

/// As [`time`].
#[must_use]
pub fn duration(duration: Duration) -> String {
    time(duration.as_nanos() as u64)
}

/// A number with about three digits.
#[must_use]
pub fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        0.0..10.0 => 2,
        10.0..100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up() {
        let rows = [["a", "10"], ["long", "7"]].map(|row| row.map(str::to_owned).to_vec());
        let text = render(&["CASE", "N"], 1, &rows);
        assert_eq!(text, "  CASE   N\n  a     10\n  long   7\n");
    }

    #[test]
    fn times_have_three_digits() {
        let shown = [999, 1_000, 12_345, 123_456, 12_400_000, 2_000_000_000].map(time);
        assert_eq!(
            shown,
            [
                "999 ns", "1.00 us", "12.3 us", "123 us", "12.4 ms", "2.00 s"
            ]
        );
    }
}
