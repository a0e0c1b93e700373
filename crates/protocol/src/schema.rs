//! The JSON Schemas of the protocol, generated from its types.

use schemars::{Schema, schema_for};

use crate::{
    Binding, Descriptor, Event, Grant, ModelRequest, OutboundMessage, Outcome, RunContext, RunResult, StreamEvent,
};

/// A schema and the file it is kept in.
pub struct SchemaFile {
    /// The file name under `schema/`.
    pub file: &'static str,
    /// The schema.
    pub schema: Schema,
}

/// Every schema that is checked in.
pub fn schema_files() -> Vec<SchemaFile> {
    let document = |file, schema| SchemaFile { file, schema };
    vec![
        document("binding.json", schema_for!(Binding)),
        document("descriptor.json", schema_for!(Descriptor)),
        document("event.json", schema_for!(Event)),
        document("grant.json", schema_for!(Grant)),
        document("model_request.json", schema_for!(ModelRequest)),
        document("outbound.json", schema_for!(OutboundMessage)),
        document("outcome.json", schema_for!(Outcome)),
        document("run_context.json", schema_for!(RunContext)),
        document("run_result.json", schema_for!(RunResult)),
        document("stream_event.json", schema_for!(StreamEvent)),
    ]
}
