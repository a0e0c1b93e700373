//! What a model got, at any past call.
//!
//! Before a request is sent, an entry `model.call` records the content hashes of its system prompt, tools and messages;
//! the contents are kept once, as blobs. [`ModelCalls`] puts them together again.

use capstan_hooks::contracts::{ModelProvider, RequestBody};
use capstan_models::wire;
use capstan_protocol::{BlobHash, Map, ModelRequest, RunId};
use capstan_tape::{Draft, Entry, Fact, Kind, Slice, Store, StoreError, Tapes, blob_hash, canonical_json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The name of the event that records a call.
pub const MODEL_CALL: &str = "model.call";

/// A recorded call: hashes in place of contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    call: u32,
    provider: String,
    model: String,
    messages: Vec<BlobHash>,
    tools: Vec<BlobHash>,
    /// Everything else of the body. Calls of older versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rest: Option<BlobHash>,
    /// What the provider calls the messages, where that is not `messages`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    messages_key: Option<String>,
}

/// What a model got at one call, in the form in which its provider receives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedCall {
    /// The run.
    pub run_id: RunId,
    /// Which call of the run, from 1 on.
    pub call: u32,
    /// The provider.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The messages. Providers that have no place apart for the system prompt get it first among them.
    pub messages: Vec<Value>,
    /// The tools.
    pub tools: Vec<Value>,
    /// Everything else of the body: options, and the system prompt where it has a place apart.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub rest: Map,
    /// What the provider calls the messages, where that is not `messages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_key: Option<String>,
}

/// The name most providers give the conversation.
const MESSAGES: &str = "messages";

/// The facts that record a call: its contents, and the entry that names them.
pub(crate) fn record(provider: &dyn ModelProvider, request: &ModelRequest, call: u32) -> (Vec<Fact>, Draft) {
    let body = provider.body(request).unwrap_or_else(|| RequestBody { rest: Map::new(), ..wire::openai_body(request) });
    let mut facts = Vec::new();
    let mut keep = |value: &Value| {
        let bytes = canonical_json(value).into_bytes();
        let hash = blob_hash(&bytes);
        facts.push(Fact::PutBlob { hash: hash.clone(), bytes });
        hash
    };
    let record = Record {
        call,
        provider: request.model.provider().to_owned(),
        model: request.model.name().to_owned(),
        messages: body.messages.iter().map(&mut keep).collect(),
        tools: body.tools.iter().map(&mut keep).collect(),
        rest: (!body.rest.is_empty()).then(|| keep(&Value::Object(body.rest))),
        messages_key: (body.messages_key != MESSAGES).then_some(body.messages_key),
    };
    (facts, Draft::event(MODEL_CALL, json!(record)).hidden())
}

/// Reads recorded calls.
pub struct ModelCalls<'a> {
    /// Where the tapes are.
    pub tapes: &'a Tapes,
}

impl ModelCalls<'_> {
    /// The calls of a run, in order; `None` when there is no such run.
    pub async fn of_run(&self, run_id: &RunId) -> Result<Option<Vec<RecordedCall>>, StoreError> {
        let store = self.tapes.store();
        let Some(run) = store.run(run_id).await? else { return Ok(None) };
        let events = Slice { kinds: vec![Kind::Event], ..Slice::after(run.begins_after) };
        let mut calls = Vec::new();
        for generation in 1..=self.tapes.record(&run.tape).await?.map_or(0, |record| record.generation) {
            for entry in self.tapes.read_generation(&run.tape, generation, &events).await? {
                if entry.name() == Some(MODEL_CALL) && entry.run_id() == Some(run_id.as_str()) {
                    calls.push(restore(store.as_ref(), run_id, &entry).await?);
                }
            }
        }
        Ok(Some(calls))
    }
}

async fn restore(store: &dyn Store, run_id: &RunId, entry: &Entry) -> Result<RecordedCall, StoreError> {
    let what = || format!("the call recorded in entry {}", entry.id);
    let data = entry.payload.get("data").cloned().unwrap_or_default();
    let record: Record = serde_json::from_value(data).map_err(|error| StoreError::corrupt(what(), error))?;
    let mut contents = Vec::new();
    for hash in record.messages.iter().chain(&record.tools).chain(&record.rest) {
        let bytes = store.blob(hash).await?;
        let bytes = bytes.ok_or_else(|| StoreError::corrupt(what(), format!("content {hash} is missing")))?;
        contents.push(serde_json::from_slice(&bytes).map_err(|error| StoreError::corrupt(what(), error))?);
    }
    let mut tools = contents.split_off(record.messages.len());
    let rest = tools.split_off(record.tools.len()).pop();
    Ok(RecordedCall {
        run_id: run_id.clone(),
        call: record.call,
        provider: record.provider,
        model: record.model,
        messages: contents,
        tools,
        rest: rest.and_then(|rest| rest.as_object().cloned()).unwrap_or_default(),
        messages_key: record.messages_key,
    })
}
