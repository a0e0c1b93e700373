//! Tables of Markdown, laid out in columns.

use super::inline::{self, Reach, Signs};
use super::line::{Layout, Line, Style};

/// Whether a line is a row of a table.
pub(super) fn is_row(line: &str) -> bool {
    line.trim_start().starts_with('|')
}

/// The rows of a table. Where it is wider than the terminal, its lines are shown as they were written.
pub(super) fn rows(lines: &[String], width: usize, signs: Signs) -> Vec<Line> {
    let cells: Vec<Vec<&str>> = lines.iter().map(|line| cells(line)).collect();
    let count = cells.iter().map(Vec::len).max().unwrap_or_default();
    let has_head = cells.get(1).is_some_and(|row| !row.is_empty() && row.iter().all(|cell| is_dashes(cell)));
    let read = |cell: &str, style| inline::read(cell, style, signs, Reach::Whole);
    let table: Vec<Vec<Line>> = cells
        .iter()
        .enumerate()
        .filter(|(index, _)| !(has_head && *index == 1))
        .map(|(index, row)| {
            let style = if has_head && index == 0 { Style::Strong } else { Style::Plain };
            row.iter().map(|cell| read(cell, style)).collect()
        })
        .collect();
    let widths: Vec<usize> = (0..count)
        .map(|column| table.iter().filter_map(|row| row.get(column)).map(Line::columns).max().unwrap_or(0))
        .collect();
    let total = widths.iter().sum::<usize>() + count.saturating_sub(1) * SEPARATOR.chars().count();
    if !has_head || total > width {
        let as_written = |line: &String| Layout::plain(width).rows(&Line::of(line.trim(), Style::Plain));
        return lines.iter().flat_map(as_written).collect();
    }
    let mut rows = Vec::new();
    for (index, row) in table.iter().enumerate() {
        rows.push(aligned(row, &widths));
        if index == 0 {
            let dashes: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
            rows.push(Line::of(dashes.join("─┼─"), Style::Aside));
        }
    }
    rows
}

const SEPARATOR: &str = " │ ";

fn aligned(row: &[Line], widths: &[usize]) -> Line {
    let mut line = Line::default();
    for (column, width) in widths.iter().enumerate() {
        if column > 0 {
            line.push(SEPARATOR, Style::Aside);
        }
        let cell = row.get(column).cloned().unwrap_or_default();
        let missing = width.saturating_sub(cell.columns());
        for span in &cell.0 {
            line.push(&span.text, span.style);
        }
        if column + 1 < widths.len() {
            line.push(&" ".repeat(missing), Style::Plain);
        }
    }
    line
}

fn cells(line: &str) -> Vec<&str> {
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

fn is_dashes(cell: &str) -> bool {
    let dashes = cell.trim_start_matches(':').trim_end_matches(':');
    !dashes.is_empty() && dashes.chars().all(|character| character == '-')
}
