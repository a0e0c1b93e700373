//! Tool outputs that are too long for a conversation: stored as artifacts, with a preview in their place.

use capstan_protocol::{ArtifactId, Content, ContentPart, ToolOutput};

use crate::payload_size::content_part_size;

/// Maximum size of all parts other than text in the results of a step: about the limit of providers' requests.
pub(crate) const MAX_STEP_INLINE_BYTES: usize = 12 * 1024 * 1024;
/// Placeholder of a part that exceeds the limit.
const OMITTED_IMAGE_NOTE: &str = "[image left out: a step shows at most 12 MiB of images; look at fewer at a time]";
/// Maximum length of a command's output, which people read on a screen.
const MAX_COMMAND_OUTPUT_BYTES: usize = 64 * 1024;
/// Maximum length of a preview.
const MAX_PREVIEW_BYTES: usize = 8 * 1024;

/// Takes the text out of an output, without a copy, if it is longer than `limit` bytes.
pub(crate) fn take_long_text(output: &mut ToolOutput, limit: usize) -> Option<String> {
    match &mut output.content {
        Content::Text(text) => (text.len() > limit).then(|| std::mem::take(text)),
        parts @ Content::Parts(_) => Some(parts.text()).filter(|text| text.len() > limit),
    }
}

/// Output with a preview in place of its text. Other parts stay.
pub(crate) fn with_preview(output: ToolOutput, text: &str, artifact: &ArtifactId, limit: usize) -> ToolOutput {
    with_text(output, build_preview(text, artifact, limit.min(MAX_PREVIEW_BYTES)))
}

/// Output with `text` in place of its own text. Other parts stay.
fn with_text(output: ToolOutput, text: String) -> ToolOutput {
    let content = match output.content {
        Content::Text(_) => Content::Text(text),
        Content::Parts(parts) => {
            let others = parts.into_iter().filter(|part| part.as_text().is_none());
            Content::Parts(std::iter::once(ContentPart::from_text(text)).chain(others).collect())
        }
    };
    ToolOutput { content, ..output }
}

/// Shortens the output of a command for people: a long text is reduced to its beginning and its end.
pub(crate) fn shorten_command_output(mut output: ToolOutput) -> ToolOutput {
    let Some(text) = take_long_text(&mut output, MAX_COMMAND_OUTPUT_BYTES) else { return output };
    let head = text.floor_char_boundary(MAX_COMMAND_OUTPUT_BYTES / 2);
    let tail = text.ceil_char_boundary(text.len() - MAX_COMMAND_OUTPUT_BYTES / 2);
    with_text(output, format!("{}\n[{} bytes left out]\n{}", &text[..head], tail - head, &text[tail..]))
}

/// Output with a note in place of each part other than text that exceeds the limit. `remaining_bytes` is the rest of
/// the limit; it is reduced by the parts that fit.
pub(crate) fn limit_inline_parts(output: ToolOutput, remaining_bytes: &mut usize) -> ToolOutput {
    let Content::Parts(parts) = output.content else { return output };
    let part_or_note = |part: ContentPart| {
        let bytes =
            if part.as_text().is_some() { 0 } else { usize::try_from(content_part_size(&part)).unwrap_or(usize::MAX) };
        match remaining_bytes.checked_sub(bytes) {
            Some(remaining) => {
                *remaining_bytes = remaining;
                part
            }
            None => ContentPart::from_text(OMITTED_IMAGE_NOTE),
        }
    };
    ToolOutput { content: Content::Parts(parts.into_iter().map(part_or_note).collect()), ..output }
}

/// Preview of a text: its beginning, its end, and the artifact that has all of it.
fn build_preview(text: &str, artifact: &ArtifactId, limit: usize) -> String {
    let head = text.floor_char_boundary(limit / 4 * 3);
    let tail = text.ceil_char_boundary(text.len().saturating_sub(limit / 4));
    format!(
        "{}\n[... {} of {} bytes left out: they are in artifact {artifact}, which artifact_read shows part by part, \
         from offset {head} on ...]\n{}",
        &text[..head],
        tail - head,
        text.len(),
        &text[tail..]
    )
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ArtifactId, Content, ContentPart, ToolOutput};

    use super::{OMITTED_IMAGE_NOTE, limit_inline_parts, shorten_command_output, take_long_text, with_preview};

    #[test]
    fn a10_a_preview_has_the_beginning_the_end_and_the_artifact_id() {
        let text = format!("begin {} end", "é".repeat(5000));
        let mut output = ToolOutput::error(text.clone());
        assert_eq!(take_long_text(&mut output, text.len()), None);
        assert_eq!(output.text(), text, "a text within the limit stays");
        assert_eq!(take_long_text(&mut output, text.len() - 1).as_deref(), Some(text.as_str()));
        let shown = with_preview(output, &text, &ArtifactId::new("run-1.2"), 1024);
        let preview = shown.text();
        assert!(shown.is_error && preview.starts_with("begin é") && preview.ends_with("é end"), "{preview}");
        assert!(preview.contains("artifact run-1.2") && preview.len() < 1300, "{preview}");
    }

    #[test]
    fn a10_images_are_shown_up_to_the_limit_of_a_step() {
        let image = |length: usize| ContentPart::from_image_url("x".repeat(length));
        let output = |parts| ToolOutput::ok(Content::Parts(parts));
        let mut remaining_bytes = 100;
        let shown =
            limit_inline_parts(output(vec![ContentPart::from_text("y".repeat(500)), image(60)]), &mut remaining_bytes);
        assert_eq!(
            shown,
            output(vec![ContentPart::from_text("y".repeat(500)), image(60)]),
            "text has a limit of its own"
        );
        let shown = limit_inline_parts(output(vec![image(50), image(40)]), &mut remaining_bytes);
        assert_eq!(shown, output(vec![ContentPart::from_text(OMITTED_IMAGE_NOTE), image(40)]));
        assert_eq!(remaining_bytes, 0);
    }

    #[test]
    fn a03_a_long_command_output_is_reduced_to_its_beginning_and_end() {
        let shown = shorten_command_output(ToolOutput::error(format!("begin {} end", "é".repeat(500_000)))).text();
        assert!(shown.len() < 66_000 && shown.starts_with("begin é") && shown.ends_with("é end"), "{}", shown.len());
        assert!(shown.contains("\n[934474 bytes left out]\né"), "{}", &shown[32_700..32_900]);
        assert_eq!(shorten_command_output(ToolOutput::ok("short")), ToolOutput::ok("short"));
    }

    #[test]
    fn a10_parts_other_than_text_stay() {
        let image = ContentPart::from_image_url("data:image/png;base64,AAAA");
        let parts = vec![ContentPart::from_text("x".repeat(3000)), image.clone()];
        let mut output = ToolOutput::ok(Content::Parts(parts));
        let text = take_long_text(&mut output, 2000).unwrap();
        let Content::Parts(parts) = with_preview(output, &text, &ArtifactId::new("a"), 2000).content else { panic!() };
        assert_eq!((parts.len(), &parts[1]), (2, &image));
    }
}
