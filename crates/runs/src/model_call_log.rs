//! Log of model calls: every past request can be restored.
//!
//! # Format
//!
//! Before a request is sent, an entry `model.call` records the content hashes of its system prompt, tools and messages.
//! Contents are stored once, as blobs. A conversation only grows, so the hashes of its older messages are stored once
//! too: in lists of a fixed length, which later calls refer to. The hashes of all tools form one list.
//! [`ModelCallReader`] restores the calls.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capstan_hooks::SecretMasker;
use capstan_hooks::contracts::{RequestBody, ToolList};
use capstan_protocol::{BlobHash, JsonObject, ModelId, RunId};
use capstan_tape::{
    Entry, EntryDraft, EntryKind, Fact, ModelCallRecord, Store, StoreError, TapeEvent, TapeEventKind, TapeRepository,
    TapeSlice, blob_hash, canonical_json,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// One request to a model, in the form in which its provider receives it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RecordedModelCall {
    /// The run.
    pub run_id: RunId,
    /// Number of the call in its run, starting at 1.
    pub call: u32,
    /// The provider.
    pub provider: String,
    /// The model's name at the provider.
    pub model: String,
    /// The messages. For providers without a separate field for the system prompt it is the first message.
    pub messages: Vec<Value>,
    /// The tools.
    pub tools: Vec<Value>,
    /// The remaining fields of the body: options, and the system prompt if it has a separate field.
    #[serde(skip_serializing_if = "JsonObject::is_empty")]
    pub rest: JsonObject,
    /// The provider's name for the field of the messages, if it is not `messages`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages_key: Option<String>,
}

/// Name of the field of the messages at most providers.
const DEFAULT_MESSAGES_KEY: &str = "messages";
/// Number of hashes in a list. A call with n messages writes about n / `HASHES_PER_LIST` + `HASHES_PER_LIST` / 2
/// hashes.
const HASHES_PER_LIST: usize = 32;

/// Cache of the blobs that most calls have in common.
#[derive(Default)]
pub(crate) struct CallContentCache {
    tools: Mutex<Option<(ToolList, Arc<ToolContents>)>>,
    /// The system prompt, if it is a message.
    system: Mutex<Option<(Value, BlobContent)>>,
}

/// Blobs of a set of tools.
struct ToolContents {
    items: Vec<BlobContent>,
    list: BlobContent,
}

/// A blob with its hash.
#[derive(Clone)]
struct BlobContent {
    hash: BlobHash,
    bytes: Arc<[u8]>,
}

impl BlobContent {
    fn from_value(value: &Value) -> Self {
        let bytes: Arc<[u8]> = canonical_json(value).into_bytes().into();
        Self { hash: blob_hash(&bytes), bytes }
    }

    fn from_hashes<'a>(hashes: impl IntoIterator<Item = &'a BlobHash>) -> Self {
        Self::from_value(&hashes.into_iter().map(|hash| json!(hash)).collect())
    }
}

impl CallContentCache {
    /// Blobs of a list of tools.
    fn tool_contents(&self, tools: &ToolList) -> Arc<ToolContents> {
        if let Some((last, contents)) = &*lock_cache(&self.tools)
            && last == tools
        {
            return Arc::clone(contents);
        }
        let items: Vec<BlobContent> = tools.iter().map(BlobContent::from_value).collect();
        let list = BlobContent::from_hashes(items.iter().map(|content| &content.hash));
        let contents = Arc::new(ToolContents { items, list });
        *lock_cache(&self.tools) = Some((tools.clone(), Arc::clone(&contents)));
        contents
    }

    /// Blob of a message.
    fn message_content(&self, message: &Value) -> BlobContent {
        if !matches!(message["role"].as_str(), Some("system" | "developer")) {
            return BlobContent::from_value(message);
        }
        if let Some((last, content)) = &*lock_cache(&self.system)
            && last == message
        {
            return content.clone();
        }
        let content = BlobContent::from_value(message);
        *lock_cache(&self.system) = Some((message.clone(), content.clone()));
        content
    }
}

fn lock_cache<T>(cache: &Mutex<T>) -> MutexGuard<'_, T> {
    // A poisoned lock is harmless: values are replaced as a whole.
    cache.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records a call: returns the facts that store its contents, and the entry that refers to them. Secrets that the
/// configuration adds to the body are masked.
pub(crate) fn record_model_call(
    body: &RequestBody,
    model: &ModelId,
    call: u32,
    cache: &CallContentCache,
    secrets: &SecretMasker,
) -> (Vec<Fact>, EntryDraft) {
    let mut facts = Vec::new();
    let mut store_blob = |content: BlobContent| {
        facts.push(Fact::PutBlob { hash: content.hash.clone(), bytes: content.bytes });
        content.hash
    };
    let tool_list = (!body.tools.is_empty()).then(|| {
        let tools = cache.tool_contents(&body.tools);
        tools.items.iter().cloned().for_each(|tool| drop(store_blob(tool)));
        store_blob(tools.list.clone())
    });
    let messages: Vec<BlobHash> =
        body.messages.iter().map(|message| store_blob(cache.message_content(message))).collect();
    let lists = messages.chunks_exact(HASHES_PER_LIST);
    let record = ModelCallRecord {
        call,
        provider: model.provider().to_owned(),
        model: model.name().to_owned(),
        messages: lists.remainder().to_vec(),
        earlier: lists.map(|list| store_blob(BlobContent::from_hashes(list))).collect(),
        tool_list,
        tools: Vec::new(),
        rest: (!body.rest.is_empty()).then(|| {
            let mut rest = Value::Object(body.rest.clone());
            secrets.mask_value(&mut rest);
            store_blob(BlobContent::from_value(&rest))
        }),
        messages_key: (body.messages_key != DEFAULT_MESSAGES_KEY).then(|| body.messages_key.clone()),
    };
    (facts, TapeEvent::ModelCall(record).into())
}

/// Reads recorded calls.
pub struct ModelCallReader<'a> {
    /// The tapes and their store.
    pub tapes: &'a TapeRepository,
}

impl ModelCallReader<'_> {
    /// Calls of a run, in order; `None` if there is no such run.
    pub async fn read_run(&self, run_id: &RunId) -> Result<Option<Vec<RecordedModelCall>>, StoreError> {
        let store = self.tapes.store();
        let Some(run) = store.run(run_id).await? else { return Ok(None) };
        let events = TapeSlice { kinds: vec![EntryKind::Event], ..TapeSlice::after(run.begins_after) };
        let mut calls = Vec::new();
        for generation in 1..=self.tapes.record(&run.tape).await?.map_or(0, |record| record.generation) {
            for entry in self.tapes.read_generation(&run.tape, generation, &events).await? {
                if entry.event_kind() == Some(TapeEventKind::ModelCall) && entry.run_id() == Some(run_id.as_str()) {
                    calls.push(restore_call(store.as_ref(), run_id, &entry).await?);
                }
            }
        }
        Ok(Some(calls))
    }
}

async fn restore_call(store: &dyn Store, run_id: &RunId, entry: &Entry) -> Result<RecordedModelCall, StoreError> {
    let subject = || format!("the call recorded in entry {}", entry.id);
    let event = TapeEvent::read(entry).map_err(|error| StoreError::corrupt(subject(), error))?;
    let Some(TapeEvent::ModelCall(record)) = event else {
        return Err(StoreError::corrupt(subject(), "the entry is not a model.call event"));
    };
    let read_blob = async |hash: &BlobHash| {
        let bytes = store.blob(hash).await?;
        bytes.ok_or_else(|| StoreError::corrupt(subject(), format!("content {hash} is missing")))
    };
    let read_list = async |hash: &BlobHash| parse_blob::<Vec<BlobHash>>(&read_blob(hash).await?, subject);
    let mut messages = Vec::new();
    for earlier in &record.earlier {
        messages.extend(read_list(earlier).await?);
    }
    messages.extend(record.messages);
    let tool_hashes = match &record.tool_list {
        Some(tools) => read_list(tools).await?,
        None => record.tools,
    };
    let mut contents = Vec::new();
    for hash in messages.iter().chain(&tool_hashes).chain(&record.rest) {
        contents.push(parse_blob(&read_blob(hash).await?, subject)?);
    }
    let mut tools = contents.split_off(messages.len());
    let rest = tools.split_off(tool_hashes.len()).pop();
    Ok(RecordedModelCall {
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

fn parse_blob<T: DeserializeOwned>(bytes: &[u8], subject: impl Fn() -> String) -> Result<T, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::corrupt(subject(), error))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use capstan_hooks::contracts::{RequestBody, ToolList};
    use capstan_models::wire;
    use capstan_protocol::{ChatMessage, EntryId, ModelId, ModelRequest, RunId, Timestamp};
    use capstan_tape::{Batch, Fact, JournalStore as _, MemoryStore};
    use serde_json::json;

    use super::{CallContentCache, HASHES_PER_LIST, SecretMasker, record_model_call, restore_call};

    fn model() -> ModelId {
        "p:m".parse().unwrap()
    }

    fn body(messages: usize) -> RequestBody {
        let messages = (0..messages).map(|number| ChatMessage::user(format!("message {number}"))).collect();
        let (system, tools, options) = Default::default();
        let body = wire::openai_body(&ModelRequest { model: model(), system, messages, tools, options });
        RequestBody { rest: Default::default(), ..body }
    }

    #[tokio::test]
    async fn x06_secrets_of_the_configured_body_are_masked_on_the_tape() {
        let store = Arc::new(MemoryStore::new());
        let rest = json!({ "token": "5ecret-of-mine", "temperature": 0.2 }).as_object().unwrap().clone();
        let secrets = SecretMasker::new(["5ecret-of-mine".to_owned()]);
        let body = RequestBody { rest, ..body(1) };
        let (facts, entry) = record_model_call(&body, &model(), 1, &CallContentCache::default(), &secrets);
        store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
        let entry = entry.into_entry(EntryId(1), Timestamp::from_millis(0), &[]);
        let call = restore_call(store.as_ref(), &RunId::new("r"), &entry).await.unwrap();
        assert_eq!(call.rest["temperature"], 0.2);
        assert!(!json!(call).to_string().contains("5ecret-of-mine"), "{call:?}");
        assert_eq!(body.rest["token"], "5ecret-of-mine", "the provider gets it");
    }

    #[tokio::test]
    async fn g10_a_call_of_any_length_is_restored() {
        let store = Arc::new(MemoryStore::new());
        for length in [1, HASHES_PER_LIST - 1, HASHES_PER_LIST, HASHES_PER_LIST + 1, 5 * HASHES_PER_LIST + 3] {
            let (facts, entry) =
                record_model_call(&body(length), &model(), 1, &CallContentCache::default(), &SecretMasker::default());
            store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
            let entry = entry.into_entry(EntryId(1), Timestamp::from_millis(0), &[]);
            let call = restore_call(store.as_ref(), &RunId::new("r"), &entry).await.unwrap();
            let texts: Vec<_> = call.messages.iter().map(|message| message["content"].as_str().unwrap()).collect();
            let expected: Vec<_> = (0..length).map(|number| format!("message {number}")).collect();
            assert_eq!(texts, expected);
        }
    }

    #[tokio::test]
    async fn p15_tools_are_recorded_as_one_list_and_the_older_format_is_still_read() {
        let store = Arc::new(MemoryStore::new());
        let cache = CallContentCache::default();
        let sets = [vec![json!({"name": "a"}), json!({"name": "b"})], vec![json!({"name": "c"})], Vec::new()];
        let lists = sets.map(ToolList::from_iter);
        let equal_lists = lists.iter().map(|tools| tools.iter().cloned().collect());
        for tools in lists.iter().cloned().chain(equal_lists).chain(lists.iter().cloned()) {
            let body = RequestBody { tools: tools.clone(), ..body(1) };
            let (facts, entry) = record_model_call(&body, &model(), 1, &cache, &SecretMasker::default());
            let hashes: Vec<_> = facts
                .iter()
                .filter_map(|fact| if let Fact::PutBlob { hash, .. } = fact { Some(hash.clone()) } else { None })
                .collect();
            store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
            let entry = entry.into_entry(EntryId(1), Timestamp::from_millis(0), &[]);
            let mut older_format = entry.clone();
            let restored = async |entry| restore_call(store.as_ref(), &RunId::new("r"), entry).await.unwrap().tools;
            assert_eq!(restored(&entry).await, *tools);
            let data = older_format.payload["data"].as_object_mut().unwrap();
            assert_eq!(data.remove("tool_list").is_some(), !tools.is_empty());
            assert!(!data.contains_key("tools"), "{data:?}");
            data.insert("tools".to_owned(), json!(hashes[..tools.len()]));
            assert_eq!(restored(&older_format).await, *tools);
        }
    }

    #[tokio::test]
    async fn p15_each_call_is_restored_with_its_own_system_prompt() {
        let store = Arc::new(MemoryStore::new());
        let cache = CallContentCache::default();
        for text in ["one", "two", "two", "one"] {
            let messages = vec![json!({"role": "system", "content": text}), json!({"role": "user", "content": "hi"})];
            let (facts, entry) = record_model_call(
                &RequestBody { messages: messages.clone(), ..body(1) },
                &model(),
                1,
                &cache,
                &SecretMasker::default(),
            );
            store.commit(Batch { facts, ..Batch::new() }).await.unwrap();
            let entry = entry.into_entry(EntryId(1), Timestamp::from_millis(0), &[]);
            assert_eq!(restore_call(store.as_ref(), &RunId::new("r"), &entry).await.unwrap().messages, messages);
        }
    }

    #[test]
    fn p14_a_growing_conversation_writes_only_new_contents() {
        let mut blobs = BTreeSet::new();
        let mut sizes = Vec::new();
        for length in (2..=1000).step_by(2) {
            let (facts, entry) =
                record_model_call(&body(length), &model(), 1, &CallContentCache::default(), &SecretMasker::default());
            blobs.extend(facts.into_iter().map(|fact| match fact {
                Fact::PutBlob { hash, .. } => hash,
                other => panic!("not a blob: {other:?}"),
            }));
            sizes.push(entry.payload.to_string().len());
        }
        assert_eq!(blobs.len(), 1000 + 1000 / HASHES_PER_LIST, "one blob per message and per full list");
        let largest = sizes.into_iter().max().unwrap();
        assert!(largest < 70 * (1000 / HASHES_PER_LIST + HASHES_PER_LIST) + 500, "{largest} bytes for one call");
    }
}
