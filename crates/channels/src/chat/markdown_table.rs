//! Markdown tables, laid out in columns.

use super::inline_markup::{self, LineProgress, MarkupVisibility};
use super::styled_line::{RowLayout, StyledLine, TextStyle};

/// True if a line is a table row.
pub(super) fn is_table_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// Lays out a table. If it is wider than the terminal, its lines are shown as written.
pub(super) fn table_rows(lines: &[String], width: usize, markup: MarkupVisibility) -> Vec<StyledLine> {
    let cells: Vec<Vec<&str>> = lines.iter().map(|line| split_cells(line)).collect();
    let column_count = cells.iter().map(Vec::len).max().unwrap_or_default();
    let has_header = cells.get(1).is_some_and(|row| !row.is_empty() && row.iter().all(|cell| is_delimiter_cell(cell)));
    let parse = |cell: &str, style| inline_markup::parse_inline(cell, style, markup, LineProgress::Complete);
    let table: Vec<Vec<StyledLine>> = cells
        .iter()
        .enumerate()
        .filter(|(index, _)| !(has_header && *index == 1))
        .map(|(index, row)| {
            let style = if has_header && index == 0 { TextStyle::Strong } else { TextStyle::Plain };
            row.iter().map(|cell| parse(cell, style)).collect()
        })
        .collect();
    let widths: Vec<usize> = (0..column_count)
        .map(|column| table.iter().filter_map(|row| row.get(column)).map(StyledLine::columns).max().unwrap_or(0))
        .collect();
    let total = widths.iter().sum::<usize>() + column_count.saturating_sub(1) * CELL_SEPARATOR.chars().count();
    if !has_header || total > width {
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
        let padding = width.saturating_sub(cell.columns());
        for span in &cell.0 {
            line.push(&span.text, span.style);
        }
        if column + 1 < widths.len() {
            line.push(&" ".repeat(padding), TextStyle::Plain);
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
