//! Tool outputs that are too long for a conversation: kept as artifacts, with a preview in their place.

use capstan_protocol::{ArtifactId, Content, ContentPart, ToolOutput};

/// How long a preview is at most.
const PREVIEW_BYTES: usize = 8 * 1024;

/// The text of an output, if it is longer than this.
pub(crate) fn text_over(output: &ToolOutput, limit: usize) -> Option<String> {
    let text = output.content.text();
    (text.len() > limit).then_some(text)
}

/// The output with a preview in place of its text. What is no text stays.
pub(crate) fn previewed(output: ToolOutput, text: &str, artifact: &ArtifactId, limit: usize) -> ToolOutput {
    let preview = preview(text, artifact, limit.min(PREVIEW_BYTES));
    let content = match output.content {
        Content::Text(_) => Content::Text(preview),
        Content::Parts(parts) => {
            let others = parts.into_iter().filter(|part| part.as_text().is_none());
            Content::Parts(std::iter::once(ContentPart::text(preview)).chain(others).collect())
        }
    };
    ToolOutput { content, ..output }
}

/// The beginning and the end of a text, and where the whole is.
fn preview(text: &str, artifact: &ArtifactId, limit: usize) -> String {
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

    use super::{previewed, text_over};

    #[test]
    fn a10_a_preview_has_the_beginning_the_end_and_the_handle() {
        let text = format!("begin {} end", "é".repeat(5000));
        let output = ToolOutput::error(text.clone());
        assert_eq!(text_over(&output, text.len()), None);
        assert_eq!(text_over(&output, text.len() - 1).as_deref(), Some(text.as_str()));
        let shown = previewed(output, &text, &ArtifactId::new("run-1.2"), 1024);
        let preview = shown.text();
        assert!(shown.is_error && preview.starts_with("begin é") && preview.ends_with("é end"), "{preview}");
        assert!(preview.contains("artifact run-1.2") && preview.len() < 1300, "{preview}");
    }

    #[test]
    fn a10_what_is_no_text_stays() {
        let image = ContentPart::image("data:image/png;base64,AAAA");
        let parts = vec![ContentPart::text("x".repeat(3000)), image.clone()];
        let output = ToolOutput::ok(Content::Parts(parts));
        let text = text_over(&output, 2000).unwrap();
        let Content::Parts(parts) = previewed(output, &text, &ArtifactId::new("a"), 2000).content else { panic!() };
        assert_eq!((parts.len(), &parts[1]), (2, &image));
    }
}
