//! Tables for a terminal: columns that line up, nothing else.

use crate::face::clean;

/// Renders rows below a header, two spaces in; columns of numbers to the
/// right. No rows, no table.
pub(crate) fn render(header: &[&str], rows: &[Vec<String>]) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let cells: Vec<Vec<String>> = rows
        .iter()
        .map(|row| row.iter().map(|cell| clean(cell)).collect())
        .collect();
    let columns: Vec<(usize, bool)> = header
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let cells = cells.iter().filter_map(|row| row.get(column));
            let width = cells.clone().map(|cell| cell.chars().count()).max();
            let number = |cell: &String| cell.bytes().all(|byte| byte.is_ascii_digit());
            let right = cells.clone().all(number) && cells.clone().any(|cell| !cell.is_empty());
            (width.unwrap_or(0).max(title.len()), right)
        })
        .collect();
    let line = |row: Vec<&str>| {
        let mut line = String::from(" ");
        for (cell, (width, right)) in row.iter().zip(&columns) {
            line.push(' ');
            let padding = " ".repeat(width - cell.chars().count());
            if *right {
                line.push_str(&padding);
            }
            line.push_str(cell);
            if !right {
                line.push_str(&padding);
            }
            line.push(' ');
        }
        line.truncate(line.trim_end().len());
        line + "\n"
    };
    let mut text = line(header.to_vec());
    for row in &cells {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_strangers_stay_in_their_cell() {
        let row = |cells: [&str; 3]| cells.map(str::to_owned).to_vec();
        let text = render(
            &["PATH", "RECEIVED", "FATE"],
            &[
                row(["inc", "20000", "answered"]),
                row(["\u{1b}[2J", "7", ""]),
            ],
        );
        let expected =
            "  PATH  RECEIVED  FATE\n  inc      20000  answered\n  \u{fffd}[2J         7\n";
        assert_eq!(text, expected);
        assert_eq!(render(&["PATH"], &[]), "");
    }
}
