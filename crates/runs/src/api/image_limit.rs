//! Limit of the images in a request: each is repeated in every request, and every provider has a limit.

use capstan_protocol::{ChatMessage, Content, ContentPart, KnownPart};

/// Maximum number of images in a request.
const MAX_REQUEST_IMAGES: usize = 20;
/// Maximum size of all images in a request, in bytes.
const MAX_REQUEST_IMAGE_BYTES: usize = 16 * 1024 * 1024;
/// Number of images that are dropped at once, so that the beginning of successive requests stays the same and a
/// provider can cache it.
const IMAGE_DROP_BATCH: usize = 10;
/// Placeholder of a dropped image.
const DROPPED_IMAGE_NOTE: &str = "[an image that was here is left out: there are too many newer ones]";

/// Drops the oldest images, until the rest is within the limits. The newest image always stays.
pub(super) fn keep_newest_images(mut messages: Vec<ChatMessage>) -> Vec<ChatMessage> {
    let lengths: Vec<usize> = messages.iter_mut().flat_map(image_parts).filter_map(|part| image_len(part)).collect();
    let drop_count = count_dropped(&lengths);
    for part in messages.iter_mut().flat_map(image_parts).take(drop_count) {
        *part = ContentPart::from_text(DROPPED_IMAGE_NOTE);
    }
    messages
}

/// Number of the oldest images to drop.
fn count_dropped(lengths: &[usize]) -> usize {
    let fits = |drop_count: &usize| {
        let rest = &lengths[(*drop_count).min(lengths.len())..];
        rest.len() <= MAX_REQUEST_IMAGES && rest.iter().sum::<usize>() <= MAX_REQUEST_IMAGE_BYTES
    };
    let counts = (0..=lengths.len()).step_by(IMAGE_DROP_BATCH).chain([lengths.len()]);
    counts.into_iter().find(fits).unwrap_or_default().min(lengths.len().saturating_sub(1))
}

fn image_parts(message: &mut ChatMessage) -> impl Iterator<Item = &mut ContentPart> {
    let parts = match &mut message.content {
        Content::Text(_) => [].iter_mut(),
        Content::Parts(parts) => parts.iter_mut(),
    };
    parts.filter(|part| image_len(part).is_some())
}

/// Size of an image; `None` for other parts.
fn image_len(part: &ContentPart) -> Option<usize> {
    match part {
        ContentPart::Known(KnownPart::ImageUrl { image_url }) => Some(image_url.url.len()),
        ContentPart::Known(KnownPart::Text { .. }) | ContentPart::Other(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use capstan_protocol::{ChatMessage, Content, ContentPart};

    use super::{DROPPED_IMAGE_NOTE, MAX_REQUEST_IMAGE_BYTES, count_dropped, keep_newest_images};

    #[test]
    fn p14_old_images_are_dropped_in_batches_and_the_newest_stays() {
        assert_eq!(count_dropped(&[]), 0);
        assert_eq!(count_dropped(&[1; 20]), 0);
        assert_eq!(count_dropped(&[1; 21]), 10);
        assert_eq!(count_dropped(&[1; 30]), 10, "the number stays the same within a batch");
        assert_eq!(count_dropped(&[1; 31]), 20);
        assert_eq!(count_dropped(&[MAX_REQUEST_IMAGE_BYTES / 4; 5]), 4, "together they exceed the size limit");
        assert_eq!(count_dropped(&[MAX_REQUEST_IMAGE_BYTES + 1]), 0);
    }

    #[test]
    fn p14_a_dropped_image_is_replaced_by_a_note_and_nothing_else_changes() {
        let message = |number: usize| {
            let image = ContentPart::from_image_url(format!("data:image/png;base64,{number}"));
            ChatMessage::user(Content::Parts(vec![ContentPart::from_text(format!("image {number}")), image]))
        };
        let messages: Vec<ChatMessage> = (0..21).map(message).collect();
        let sent = keep_newest_images(messages.clone());
        assert_eq!(sent[10..], messages[10..]);
        for (number, message) in sent[..10].iter().enumerate() {
            assert_eq!(message.content.text(), format!("image {number}\n{DROPPED_IMAGE_NOTE}"));
        }
    }
}
