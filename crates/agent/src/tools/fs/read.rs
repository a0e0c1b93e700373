//! `fs.read`: reads lines of a text file, or an image.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use super::bounded_line::read_bounded_line;
use crate::paths::path_error;
use crate::tools::{count_noun, image};

/// Number of lines shown by default.
const DEFAULT_READ_LINES: usize = 2000;
/// Maximum length of a line shown.
const MAX_READ_LINE_BYTES: usize = 2000;
/// Maximum size of the output.
const MAX_READ_OUTPUT_BYTES: usize = 128 * 1024;
/// Maximum size read to count lines.
const MAX_LINE_COUNT_BYTES: u64 = 64 * 1024 * 1024;
/// Number of bytes inspected to tell text from binary data.
const TEXT_SNIFF_BYTES: usize = 8 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileReadArgs {
    /// File, relative to the workspace.
    pub(super) path: String,
    /// First line to show, starting at 1.
    pub(super) offset: Option<usize>,
    /// Maximum number of lines to show.
    pub(super) limit: Option<usize>,
}

pub(super) fn read_file(context: FileToolContext<'_>, arguments: &FileReadArgs) -> Result<ToolOutput, ToolError> {
    let target = context.bounds.resolve_path(context.workspace, &arguments.path)?;
    let failed = |error: std::io::Error| path_error(target.requested(), &error);
    let file = target.open().map_err(|error| match error.kind() {
        ErrorKind::IsADirectory => ToolError::new(format!("{}: {error}; `ls` in bash lists it", target.requested())),
        _ => failed(error),
    })?;
    let size = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::with_capacity(TEXT_SNIFF_BYTES, file);
    let prefix = reader.fill_buf().map_err(failed)?;
    if let Some(kind) = image::media_type(prefix) {
        if size > image::MAX_IMAGE_BYTES {
            let message = format!("{} is an image of {size} bytes, more than models accept", target.requested());
            return Err(ToolError::new(message));
        }
        let mut bytes = Vec::new();
        reader.take(image::MAX_IMAGE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        return image::image_content(target.requested(), kind, &bytes).map(ToolOutput::ok).map_err(ToolError::new);
    }
    if prefix.contains(&0) {
        return Err(not_text_error(target.requested()));
    }
    read_lines(reader, arguments, context.secrets).map(ToolOutput::ok)
}

fn not_text_error(path: &str) -> ToolError {
    ToolError::new(format!("{path} is not UTF-8 text; inspect it with `file`, `xxd` or `iconv` in bash"))
}

/// Returns the requested lines and where to continue.
fn read_lines(
    reader: BufReader<std::fs::File>,
    arguments: &FileReadArgs,
    secrets: &SecretMasker,
) -> Result<String, ToolError> {
    let first = arguments.offset.unwrap_or(1).max(1);
    let limit = arguments.limit.unwrap_or(DEFAULT_READ_LINES).max(1);
    let mut reader = reader.take(MAX_LINE_COUNT_BYTES);
    let (mut shown, mut total, mut last, mut is_full) = (String::new(), 0, 0, false);
    loop {
        let wanted = total + 1 >= first && total + 1 - first < limit && !is_full;
        // Keep more than is shown: the safe cut depends on the bytes that follow.
        let keep = if wanted { MAX_READ_LINE_BYTES + secrets.max_secret_len() } else { 0 };
        let Some(line) = read_bounded_line(&mut reader, keep).map_err(|error| path_error(&arguments.path, &error))?
        else {
            break;
        };
        total += 1;
        if !wanted {
            continue;
        }
        let text = line.text().ok_or_else(|| not_text_error(&arguments.path))?;
        if last > 0 {
            shown.push('\n');
        }
        let text = &text[..secrets.safe_cut(text, MAX_READ_LINE_BYTES)];
        shown.push_str(text);
        let omitted = line.total_len() - text.len();
        if omitted > 0 {
            shown.extend([" [", &omitted.to_string(), " bytes of this line left out]"]);
        }
        last = total;
        is_full = shown.len() >= MAX_READ_OUTPUT_BYTES;
    }
    let is_all_read = reader.limit() > 0;
    if !is_all_read {
        // The line limit may have cut a secret in two.
        secrets.mask_fragment(&mut shown);
    }
    let total_text = if is_all_read { format!("{total}") } else { format!("more than {total}") };
    let lines_text = if is_all_read { count_noun(total as u64, "line") } else { format!("more than {total} lines") };
    Ok(match (last, total) {
        (_, 0) => "[the file is empty]".to_owned(),
        (0, _) => format!("[line {first} is past the end: the file has {lines_text}]"),
        _ if last == total && is_all_read => shown,
        _ => format!("{shown}\n[lines {first}-{last} of {total_text}; continue with offset={}]", last + 1),
    })
}
