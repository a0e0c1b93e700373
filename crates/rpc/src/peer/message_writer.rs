//! Writes the lines of the queue, several at a time.

use std::sync::Arc;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::timeout;

use super::PeerShared;
use crate::RpcCloseReason;

/// Maximum bytes of lines that are written together.
const WRITE_BATCH_BYTES: usize = 64 * 1024;

/// Writes until the queue is closed and empty, or the connection ends.
pub(super) async fn write_lines(shared: Arc<PeerShared>, mut output: impl AsyncWrite + Unpin) {
    let mut bytes = Vec::new();
    loop {
        let batch = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            batch = shared.queue.pop_batch(WRITE_BATCH_BYTES) => batch,
        };
        let Some(batch) = batch else { break };
        bytes.clear();
        for line in &batch {
            bytes.extend_from_slice(&line.bytes);
            bytes.push(b'\n');
        }
        let written = tokio::select! {
            biased;
            () = shared.close_token.cancelled() => return,
            written = timeout(shared.options.stall_timeout, write_all(&mut output, &bytes)) => written,
        };
        match written {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return shared.close(RpcCloseReason::WriteFailed(error.to_string())),
            Err(_) => return shared.close(RpcCloseReason::Stalled),
        }
        if bytes.capacity() > 2 * WRITE_BATCH_BYTES {
            bytes = Vec::new();
        }
    }
    let closed = tokio::select! {
        () = shared.close_token.cancelled() => return,
        closed = timeout(shared.options.stall_timeout, output.shutdown()) => closed,
    };
    if !matches!(closed, Ok(Ok(()))) {
        shared.close(RpcCloseReason::Stalled);
    }
}

async fn write_all(output: &mut (impl AsyncWrite + Unpin), bytes: &[u8]) -> std::io::Result<()> {
    output.write_all(bytes).await?;
    output.flush().await
}
