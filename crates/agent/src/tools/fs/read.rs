//! `fs.read`.

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::ToolError;
use capstan_protocol::ToolOutput;
use schemars::JsonSchema;
use serde::Deserialize;

use super::FileToolContext;
use super::bounded_line::read_bounded_line;
use super::path_bounds::path_error;
use crate::tools::image;

/// How many lines are shown when nobody says.
const DEFAULT_READ_LINES: usize = 2000;
/// How much of a line is shown.
const MAX_READ_LINE_BYTES: usize = 2000;
/// How much is shown in all.
const MAX_READ_OUTPUT_BYTES: usize = 128 * 1024;
/// How far a file is read to count its lines.
const MAX_LINE_COUNT_BYTES: u64 = 64 * 1024 * 1024;
/// How much is looked at to tell text from other things.
const TEXT_SNIFF_BYTES: usize = 8 * 1024;

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileReadArgs {
    /// The file, relative to the workspace.
    pub(super) path: String,
    /// The first line to show, from 1 on.
    pub(super) offset: Option<usize>,
    /// How many lines to show at most.
    pub(super) limit: Option<usize>,
}

pub(super) fn read_file(ground: FileToolContext<'_>, arguments: &FileReadArgs) -> Result<ToolOutput, ToolError> {
    let place = ground.bounds.resolve_path(ground.workspace, &arguments.path)?;
    let failed = |error: std::io::Error| path_error(place.requested(), &error);
    let file = place.open().map_err(|error| match error.kind() {
        ErrorKind::IsADirectory => ToolError::new(format!("{}: {error}; `ls` in bash lists it", place.requested())),
        _ => failed(error),
    })?;
    let size = file.metadata().map_err(failed)?.len();
    let mut reader = BufReader::with_capacity(TEXT_SNIFF_BYTES, file);
    let begin = reader.fill_buf().map_err(failed)?;
    if let Some(kind) = image::media_type(begin) {
        if size > image::MAX_IMAGE_BYTES {
            let message = format!("{} is an image of {size} bytes, more than a model takes", place.requested());
            return Err(ToolError::new(message));
        }
        let mut bytes = Vec::new();
        reader.take(image::MAX_IMAGE_BYTES).read_to_end(&mut bytes).map_err(failed)?;
        return image::image_content(place.requested(), kind, &bytes).map(ToolOutput::ok).map_err(ToolError::new);
    }
    if begin.contains(&0) {
        return Err(not_text_error(place.requested()));
    }
    read_lines(reader, arguments, ground.secrets).map(ToolOutput::ok)
}

fn not_text_error(path: &str) -> ToolError {
    ToolError::new(format!("{path} is no UTF-8 text; `file`, `xxd` or `iconv` in bash can look at it"))
}

/// The lines that are asked for, and where to read on.
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
        // More than is shown: where to cut it depends on what follows.
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
        let left_out = line.total_len() - text.len();
        if left_out > 0 {
            shown.extend([" [", &left_out.to_string(), " bytes of this line left out]"]);
        }
        last = total;
        is_full = shown.len() >= MAX_READ_OUTPUT_BYTES;
    }
    let is_all_read = reader.limit() > 0;
    if !is_all_read {
        // The last line may have been cut where nobody looked.
        secrets.mask_fragment(&mut shown);
    }
    let of = if is_all_read { format!("{total}") } else { format!("more than {total}") };
    Ok(match (last, total) {
        (_, 0) => "[the file is empty]".to_owned(),
        (0, _) => format!("[line {first} is past the end: the file has {of} lines]"),
        _ if last == total && is_all_read => shown,
        _ => format!("{shown}\n[lines {first}-{last} of {of}; read on with offset={}]", last + 1),
    })
}
