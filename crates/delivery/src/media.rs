//! Images and files of outbound messages, adapted to the capabilities of a channel.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use capstan_hooks::contracts::{ChannelCapabilities, ChannelReply};
use capstan_protocol::{Artifact, Content, ContentPart, OutboundMessage};
use capstan_tape::{StoreError, TapeRepository};

/// Adapts a message to a channel: a channel without media gets lines that name the files, any other channel gets the
/// content of artifacts inline. The stored message keeps the references.
pub(crate) async fn adapt_message<'a>(
    message: &'a OutboundMessage,
    capabilities: ChannelCapabilities,
    tapes: &TapeRepository,
) -> Result<Cow<'a, OutboundMessage>, StoreError> {
    let Content::Parts(parts) = &message.content else { return Ok(Cow::Borrowed(message)) };
    let content = if !capabilities.media {
        Content::Text(message.content.text_with_file_names())
    } else if parts.iter().any(|part| part.artifact().is_some()) {
        let mut adapted = Vec::with_capacity(parts.len());
        for part in parts {
            adapted.push(match part.artifact() {
                Some(artifact) => {
                    let inline = inline_artifact(&artifact, tapes).await?;
                    inline.unwrap_or_else(|| ContentPart::from_text(part.to_text_line()))
                }
                None => part.clone(),
            });
        }
        Content::Parts(adapted)
    } else {
        return Ok(Cow::Borrowed(message));
    };
    Ok(Cow::Owned(OutboundMessage { content, ..message.clone() }))
}

/// Adapts the messages of a reply to a channel.
pub(crate) async fn adapt_reply<'a>(
    reply: &'a ChannelReply,
    capabilities: ChannelCapabilities,
    tapes: &TapeRepository,
) -> Result<Cow<'a, ChannelReply>, StoreError> {
    if reply.messages.iter().all(|message| matches!(message.content, Content::Text(_))) {
        return Ok(Cow::Borrowed(reply));
    }
    let mut adapted = reply.clone();
    for message in &mut adapted.messages {
        *message = adapt_message(message, capabilities, tapes).await?.into_owned();
    }
    Ok(Cow::Owned(adapted))
}

/// Part with the content of an artifact; `None` if the content is not stored.
async fn inline_artifact(artifact: &Artifact, tapes: &TapeRepository) -> Result<Option<ContentPart>, StoreError> {
    let Some(content) = tapes.artifact_content(artifact).await? else { return Ok(None) };
    let data_url = format!("data:{};base64,{}", artifact.media_type, BASE64.encode(&content));
    let is_image = artifact.media_type.starts_with("image/");
    Ok(Some(if is_image {
        ContentPart::from_image_url(data_url)
    } else {
        ContentPart::from_file(&artifact.name, &data_url)
    }))
}
