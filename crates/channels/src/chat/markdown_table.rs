//! Tables of Markdown, laid out in columns.

use super::inline_markup::{self, LineProgress, MarkupVisibility};
use super::styled_line::{RowLayout, StyledLine, TextStyle};

/// Whether a line is a row of a table.
pub(super) fn is_table_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The rows of a table. Where it is wider than the terminal, its lines are shown as they were written.
pub(super) fn table_rows(lines: &[String], width: usize, signs: MarkupVisibility) -> Vec<StyledLine> {
    let cells: Vec<Vec<&str>> = lines.iter().map(|line| split_cells(line)).collect();
    let count = cells.iter().map(Vec::len).max().unwrap_or_default();
    let has_head = cells.get(1).is_some_and(|row| !row.is_empty() && row.iter().all(|cell| is_delimiter_cell(cell)));
    let read = |cell: &str, style| inline_markup::parse_inline(cell, style, signs, LineProgress::Complete);
    let table: Vec<Vec<StyledLine>> = cells
        .iter()
        .enumerate()
        .filter(|(index, _)| !(has_head && *index == 1))
        .map(|(index, row)| {
            let style = if has_head && index == 0 { TextStyle::Strong } else { TextStyle::Plain };
            row.iter().map(|cell| read(cell, style)).collect()
        })
        .collect();
    let widths: Vec<usize> = (0..count)
        .map(|column| table.iter().filter_map(|row| row.get(column)).map(StyledLine::columns).max().unwrap_or(0))
        .collect();
    let total = widths.iter().sum::<usize>() + count.saturating_sub(1) * CELL_SEPARATOR.chars().count();
    if !has_head || total > width {
        let as_written =
            |line: &String| RowLayout::plain(width).rows(&StyledLine::styled(line.trim(), TextStyle::Plain));
        return lines.iter().flat_map(as_written).collect();
    }
    let mut rows = Vec::new();
    for (index, row) in table.iter().enumerate() {
        rows.push(align_row(row, &widths));
        if index == 0 {
            let dashes: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            rows.push(StyledLine::styled(dashes.join("─┼─"), TextStyle::Muted));
        }
    }
    rows
}

const CELL_SEPARATOR: &str = " │ ";

fn align_row(row: &[StyledLine], widths: &[usize]) -> StyledLine {
    let mut line = StyledLine::default();
    for (column, width) in widths.iter().enumerate() {
        if column > 0 {
            line.push(CELL_SEPARATOR, TextStyle::Muted);
        }
        let cell = row.get(column).cloned().unwrap_or_default();
        let missing = width.saturating_sub(cell.columns());
        for span in &cell.0 {
            line.push(&span.text, span.style);
        }
        if column + 1 < widths.len() {
            line.push(&" ".repeat(missing), TextStyle::Plain);
        }
    }
    line
}

fn split_cells(line: &str) -> Vec<&str> {
    let line = line.trim();
    let line = line.strip_prefix('|').unwrap_or(line);
    let line = line.strip_suffix('|').unwrap_or(line);
    let mut cells = Vec::new();
    let (mut from, mut is_escaped) = (0, false);
    for (at, character) in line.char_indices() {
        if character == '|' && !is_escaped {
            cells.push(line[from..at].trim());
            from = at + 1;
        }
        is_escaped = character == '\\' && !is_escaped;
    }
    cells.push(line[from..].trim());
    cells
}

fn is_delimiter_cell(cell: &str) -> bool {
    let dashes = cell.trim_start_matches(':').trim_end_matches(':');
    !dashes.is_empty() && dashes.chars().all(|character| character == '-')
}
