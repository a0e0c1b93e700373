//! Methods of `tape.*`: the session's tape.

use std::sync::Arc;

use capstan_hooks::args::TapeContextArgs;
use capstan_hooks::contracts::methods::{
    TapeAnchors, TapeFork, TapeHandoff, TapeInfo, TapeNote, TapeReset, TapeSay, TapeSearch, TapeView,
};
use capstan_hooks::points::BuildTapeContext;
use capstan_hooks::{ContextModelAccess, HookError, HookErrorReason, HookPoint as _};
use capstan_protocol::run_api::{
    AnchorsCall, EmptyCall, ForkCall, ForkSummary, HandoffCall, NoteCall, ResetCall, SayCall, TapeEntry,
    TapeSearchCall, TapeSummary,
};
use capstan_protocol::{ApiError, ApiErrorCode, ChatMessage, TapeAccess, TapeName};
use capstan_tape::{
    DefaultView, Entry, EntryDraft, EntryKind, EntryOrder, Fact, Query, TapeEventKind, TapeReader, TapeRepository,
    TapeSlice, conversation, fork_session, searchable_words,
};
use tokio::sync::SemaphorePermit;

use super::method_handler::MethodHandler;
use super::required_permission::RequiredPermission;
use super::{hook_api_error, store_api_error};
use crate::nesting;
use crate::payload_size::{PayloadSize, content_size, json_size, text_size};
use crate::run::call_limiter::CallPermit;
use crate::run::{PendingHandoff, Run};

/// Maximum number of entries in a response: each may be a megabyte.
const MAX_TAPE_ENTRIES_READ: usize = 200;
/// Maximum number of forks that a run may create.
const MAX_FORKS: u32 = 100;
/// Maximum number of words of a search, each of which is compared with all words of the index.
const MAX_SEARCH_WORDS: usize = 32;
/// Entries read at once to count them.
const ENTRY_COUNT_PAGE_SIZE: usize = 100;

const TAPE_READ: RequiredPermission = RequiredPermission::Tape(TapeAccess::Read);
const TAPE_WRITE: RequiredPermission = RequiredPermission::Tape(TapeAccess::Write);

impl MethodHandler for TapeView {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<Vec<ChatMessage>, ApiError> {
        run.ingest_message();
        if let Some(selected) = select_context(run).await? {
            return Ok(conversation::normalize_request(selected));
        }
        // Includes pending entries, which are committed before the run acts on the view.
        let messages = run.journal.view(DefaultView::KINDS, |window| DefaultView.messages(window)).await;
        Ok(conversation::normalize_request(messages.map_err(|error| store_api_error(&error))?))
    }
}

impl MethodHandler for TapeHandoff {
    fn permission(_: &Run, _: &HandoffCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &HandoffCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name) + json_size(&call.state))
    }

    async fn handle(run: &Arc<Run>, call: HandoffCall, _: CallPermit) -> Result<(), ApiError> {
        let HandoffCall { name, mut state } = call;
        if name.trim().is_empty() {
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, "an anchor needs a name"));
        }
        nesting::check_nesting(&state)?;
        // Secrets are masked: the state is copied into every later view.
        let masker = &run.environment.options.secret_masker;
        state.values_mut().for_each(|value| masker.mask_value(value));
        run.request_handoff(PendingHandoff { name, state }).await.map_err(|error| store_api_error(&error))
    }
}

impl MethodHandler for TapeNote {
    fn permission(_: &Run, _: &NoteCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &NoteCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.name) + json_size(&call.data))
    }

    async fn handle(run: &Arc<Run>, call: NoteCall, _: CallPermit) -> Result<(), ApiError> {
        let NoteCall { name, data } = call;
        if TapeEventKind::is_reserved_name(&name) {
            let message = format!(
                "the event name {name:?} is reserved for the host; use a prefix of your own, such as \"NAME.event\""
            );
            return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        }
        nesting::check_nesting(&data)?;
        run.append(EntryDraft::event(&name, data));
        Ok(())
    }
}

impl MethodHandler for TapeSay {
    fn permission(_: &Run, _: &SayCall) -> RequiredPermission {
        TAPE_WRITE
    }

    fn payload(_: &Run, call: &SayCall) -> PayloadSize {
        PayloadSize::Content(content_size(&call.content))
    }

    async fn handle(run: &Arc<Run>, call: SayCall, _: CallPermit) -> Result<(), ApiError> {
        nesting::check_nesting(&call.content)?;
        run.append(EntryDraft::message(&ChatMessage::user(call.content)));
        Ok(())
    }
}

impl MethodHandler for TapeReset {
    fn permission(_: &Run, _: &ResetCall) -> RequiredPermission {
        TAPE_WRITE
    }

    async fn handle(run: &Arc<Run>, call: ResetCall, _: CallPermit) -> Result<(), ApiError> {
        let tapes = flushed_tapes(run).await?;
        let tape = run.journal.tape();
        let refuse = |message: &str| Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
        if !run.is_command() {
            return refuse("only a comma command can reset the tape; tape.handoff starts a new context");
        }
        let mut in_flight = tapes.store().in_flight_events(Some(tape));
        while let Some(event) = in_flight.next().await.map_err(|error| store_api_error(&error))? {
            let is_own = run.served_events.iter().any(|(key, _)| *key == event.key);
            // A queued event gets its turn in the new generation. An ingested message would be left in the old one.
            if !is_own && event.ingestion.is_some() {
                return refuse("another message of this session is in progress; try again when it is answered");
            }
        }
        run.journal.push(Fact::ResetTape { tape: tape.clone(), archive: call.archive });
        for draft in EntryDraft::session_start() {
            run.append(draft);
        }
        run.journal.flush().await.map_err(|error| store_api_error(&error))
    }
}

impl MethodHandler for TapeFork {
    fn permission(_: &Run, _: &ForkCall) -> RequiredPermission {
        TAPE_WRITE
    }

    async fn handle(run: &Arc<Run>, call: ForkCall, _: CallPermit) -> Result<ForkSummary, ApiError> {
        let invalid = |message: String| ApiError::new(ApiErrorCode::InvalidArgument, message);
        let tape = run.journal.tape();
        let record = flushed_tapes(run).await?.record(tape).await.map_err(|error| store_api_error(&error))?;
        let head = record.map(|record| record.head).unwrap_or_default();
        let position = call.at.unwrap_or(head);
        if position > head {
            return Err(invalid(format!("the tape has no entry {position}; the newest is {head}")));
        }
        let number = {
            let mut progress = run.progress();
            if progress.fork_count >= MAX_FORKS {
                return Err(invalid(format!("a run creates at most {MAX_FORKS} forks")));
            }
            progress.fork_count += 1;
            progress.fork_count
        };
        let fork = TapeName::parse(format!("{tape}__{}.{number}", run.id()));
        let fork = fork.map_err(|error| ApiError::new(ApiErrorCode::RuntimeError, error.to_string()))?;
        run.journal.push(Fact::ForkTape { fork: fork.clone(), parent: tape.clone(), position });
        run.journal.flush().await.map_err(|error| store_api_error(&error))?;
        Ok(ForkSummary { session_id: fork_session(&fork), tape: fork, position })
    }
}

impl MethodHandler for TapeInfo {
    fn permission(_: &Run, _: &EmptyCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, _: EmptyCall, _: CallPermit) -> Result<TapeSummary, ApiError> {
        let tapes = flushed_tapes(run).await?;
        let name = run.journal.tape();
        let record = tapes.record(name).await.map_err(|error| store_api_error(&error))?;
        let head = record.map(|record| record.head).unwrap_or_default();
        // A command runs concurrently with a turn that writes: entries after the head are not counted.
        let up_to_head = TapeSlice { up_to: Some(head), ..TapeSlice::default() };
        let last_anchor = TapeSlice { up_to: Some(head), ..TapeSlice::last_anchor() };
        let last_anchor = tapes.read(name, &last_anchor).await.map_err(|error| store_api_error(&error))?.pop();
        let anchors = TapeSlice { kinds: vec![EntryKind::Anchor], ..up_to_head.clone() };
        let since_anchor = TapeSlice { after: last_anchor.as_ref().map(|anchor| anchor.id), ..up_to_head };
        Ok(TapeSummary {
            name: name.clone(),
            head,
            anchors: count_entries(run, anchors).await?,
            last_anchor: last_anchor.as_ref().and_then(Entry::name).map(str::to_owned),
            entries_since_last_anchor: count_entries(run, since_anchor).await?,
        })
    }
}

impl MethodHandler for TapeAnchors {
    fn permission(_: &Run, _: &AnchorsCall) -> RequiredPermission {
        TAPE_READ
    }

    async fn handle(run: &Arc<Run>, call: AnchorsCall, _: CallPermit) -> Result<Vec<TapeEntry>, ApiError> {
        let tapes = flushed_tapes(run).await?;
        let slice = TapeSlice {
            kinds: vec![EntryKind::Anchor],
            order: EntryOrder::NewestFirst,
            limit: Some(call.limit.min(MAX_TAPE_ENTRIES_READ)),
            ..TapeSlice::default()
        };
        let anchors = tapes.read(run.journal.tape(), &slice).await.map_err(|error| store_api_error(&error))?;
        Ok(anchors.into_iter().map(TapeEntry::from).collect())
    }
}

impl MethodHandler for TapeSearch {
    fn permission(_: &Run, _: &TapeSearchCall) -> RequiredPermission {
        TAPE_READ
    }

    fn payload(_: &Run, call: &TapeSearchCall) -> PayloadSize {
        PayloadSize::Arguments(text_size(&call.text))
    }

    async fn handle(run: &Arc<Run>, call: TapeSearchCall, _: CallPermit) -> Result<Vec<TapeEntry>, ApiError> {
        let _permit = admit_search(run, &call.text).await?;
        let tapes = flushed_tapes(run).await?;
        let kinds = vec![EntryKind::Message, EntryKind::ToolCall, EntryKind::ToolResult, EntryKind::Anchor];
        let query = Query { kinds, limit: Some(call.limit.min(MAX_TAPE_ENTRIES_READ)), ..Query::search(&call.text) };
        let found = tapes.query(run.journal.tape(), &query).await.map_err(|error| store_api_error(&error))?;
        Ok(found.into_iter().map(TapeEntry::from).collect())
    }
}

/// Messages that a plugin selects in place of the default view. A selection without messages is an error of the plugin: the
/// model would not even get the message that it is to answer. Any other selection is made valid by the caller.
async fn select_context(run: &Arc<Run>) -> Result<Option<Vec<ChatMessage>>, ApiError> {
    let hooks = &run.environment.hooks;
    if !hooks.is_implemented::<BuildTapeContext>() {
        return Ok(None);
    }
    let tapes = flushed_tapes(run).await?.clone();
    let args = TapeContextArgs {
        session_id: run.context.conversation.session_id.clone(),
        state: run.state.clone(),
        prompt: run.prompt.clone(),
        run_id: run.id().clone(),
        tape: TapeReader::new(tapes, run.journal.tape().clone()),
        model: ContextModelAccess::new(super::runner_api(run).models),
    };
    let decided = hooks.call_first::<BuildTapeContext>(&args).await.map_err(|failure| hook_api_error(&failure))?;
    let Some(decided) = decided else { return Ok(None) };
    if decided.value.is_empty() {
        let (hook, reason) = (BuildTapeContext::INFO.name, "selected no messages".to_owned());
        let failure = HookError { hook, plugin: decided.plugin, reason: HookErrorReason::Error(reason) };
        return Err(hook_api_error(&failure));
    }
    Ok(Some(decided.value))
}

/// Admits a search of bounded cost, one at a time: the calls of a step run in parallel and would occupy every database
/// reader.
pub(super) async fn admit_search<'a>(run: &'a Run, text: &str) -> Result<SemaphorePermit<'a>, ApiError> {
    if searchable_words(text).nth(MAX_SEARCH_WORDS).is_some() {
        let message = format!("a search has at most {MAX_SEARCH_WORDS} words; search for the rarest ones");
        return Err(ApiError::new(ApiErrorCode::InvalidArgument, message));
    }
    let permit = run.call_limiter.search_permit.acquire().await;
    permit.map_err(|error| ApiError::new(ApiErrorCode::RuntimeError, error.to_string()))
}

/// Tapes, with the pending entries of the run written.
async fn flushed_tapes(run: &Run) -> Result<&TapeRepository, ApiError> {
    run.flush_before_read().await.map_err(|error| store_api_error(&error))?;
    Ok(&run.environment.tapes)
}

/// Counts entries, with only a page of them in memory at once.
async fn count_entries(run: &Run, mut slice: TapeSlice) -> Result<u64, ApiError> {
    slice.limit = Some(ENTRY_COUNT_PAGE_SIZE);
    let mut count = 0;
    loop {
        let page = run.environment.tapes.read(run.journal.tape(), &slice).await;
        let page = page.map_err(|error| store_api_error(&error))?;
        let Some(last) = page.last() else { return Ok(count) };
        slice.after = Some(last.id);
        count += page.len() as u64;
    }
}
