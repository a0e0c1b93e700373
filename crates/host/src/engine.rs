//! The moving parts of a running host, shared by the tasks that move them.

use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::{InboundEvent, TurnLifespan};
use capstan_protocol::{ErrorCode, EventKey, Outcome, RunId, TapeName};
use capstan_tape::{Batch, StoreError};
use capstan_turn::{RunError, TurnContext, TurnError, TurnPipeline, TurnReport};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::delivery::channel_target::ChannelTarget;
use crate::delivery::event_delivery::OutboxRow;
use crate::delivery::outbox::{Outbox, OutboxOptions};
use crate::intake::intake_queue::IntakeQueues;
use crate::runs::active_turn::ActiveTurn;
use crate::runs::orchestrator::{Orchestrator, RunReport};
use crate::services::Services;
use crate::sessions::accepted_event::{AcceptedEvent, TurnBatch};
use crate::sessions::active_sessions::{ActiveSessions, SessionReservation};
use crate::sessions::running_turns::RunningTurns;
use crate::sessions::session_actor::SessionActor;
use crate::{HostError, ServedEvent};

/// How long the scope of a message may take to close.
const LIFESPAN_CLOSE_TIMEOUT: Duration = Duration::from_secs(30);
/// How often the store is asked what became of an event that another process works on.
const OUTCOME_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The moving parts of a running host.
pub(crate) struct Engine {
    pub(crate) services: Arc<Services>,
    pub(crate) turn_pipeline: TurnPipeline<Orchestrator>,
    pub(crate) active_sessions: ActiveSessions,
    /// The turns that go on.
    pub(crate) running_turns: RunningTurns,
    pub(crate) outbox: Outbox,
    pub(crate) intake_queues: IntakeQueues,
    /// Every task of the host.
    pub(crate) tasks: TaskTracker,
    /// Fires when every run is to end.
    pub(crate) cancel_token: CancellationToken,
    /// Fires when no further turn is to begin: what waits is taken up at the next start.
    pub(crate) stop_token: CancellationToken,
    /// Fires when the host can wait no longer: neither for whoever takes what is sent, nor for a store that fails.
    pub(crate) abort_token: CancellationToken,
    /// The sessions that are awake.
    pub(crate) session_tasks: TaskTracker,
    /// What dead processes left was looked for in every session, and is looked for again.
    pub(crate) is_sweeping: AtomicBool,
    /// The task that looks again has begun.
    is_sweeper_started: AtomicBool,
}

impl Engine {
    pub(crate) fn new(services: Arc<Services>, turn: TurnPipeline<Orchestrator>) -> Self {
        let (tasks, stop_token, abort_token) = (TaskTracker::new(), CancellationToken::new(), CancellationToken::new());
        let options = OutboxOptions {
            workspace_id: services.workspace_id.clone(),
            owner: Arc::new(services.options.lease_owner.clone()),
            tasks: tasks.clone(),
            stop_token: stop_token.clone(),
            abort_token: abort_token.clone(),
        };
        let outbox = Outbox::new(options, services.channels.clone(), services.tapes.clone());
        Self {
            services,
            turn_pipeline: turn,
            active_sessions: ActiveSessions::default(),
            running_turns: RunningTurns::default(),
            outbox,
            intake_queues: IntakeQueues::default(),
            tasks,
            cancel_token: CancellationToken::new(),
            stop_token,
            abort_token,
            session_tasks: TaskTracker::new(),
            is_sweeping: AtomicBool::new(false),
            is_sweeper_started: AtomicBool::new(false),
        }
    }

    /// Whether this host looks for what dead processes left in every session.
    pub(crate) fn is_sweeping(&self) -> bool {
        self.is_sweeping.load(Ordering::SeqCst)
    }

    /// Begins to look for it now and again, once.
    pub(crate) fn start_sweeper(self: &Arc<Self>) {
        if !self.is_sweeper_started.swap(true, Ordering::SeqCst) {
            self.tasks.spawn(Arc::clone(self).run_recovery_sweeps());
        }
    }

    /// Reserves a place in a session, which is woken if it is asleep.
    pub(crate) fn reserve_session(self: &Arc<Self>, tape: &TapeName) -> Result<SessionReservation, HostError> {
        if self.stop_token.is_cancelled() {
            return Err(HostError::Stopping);
        }
        let settings = &self.services.options;
        let (reservation, begun) =
            self.active_sessions.reserve(tape, &settings.lease_owner, settings.max_queued_events);
        if let Some(lane) = begun {
            let lane = SessionActor::new(Arc::clone(self), lane).run();
            self.tasks.spawn(self.session_tasks.track_future(lane));
        }
        Ok(reservation)
    }

    /// Takes a batch through its turn. A turn that panics, which hooks and runners cannot make it do, still has an end.
    pub(crate) async fn run_turn(&self, batch: &TurnBatch, turn: &ActiveTurn) -> TurnReport<RunReport> {
        let is_gone = batch.lead.is_caller_gone;
        let reply_target = ChannelTarget::new(&self.services.channels, &batch.inbound, turn.binding.clone(), is_gone);
        let context = TurnContext { turn, reply_target: &reply_target };
        let turn = async {
            let report = self.turn_pipeline.process(batch.inbound.clone(), batch.lead.session.clone(), &context).await;
            close_lifespan(&batch.inbound, report.result.as_ref().err()).await;
            report
        };
        AssertUnwindSafe(turn).catch_unwind().await.unwrap_or_else(|_| {
            let (message, code) = ("the turn crashed".to_owned(), Some(ErrorCode::RunFailed.into()));
            TurnReport::failed(TurnError::Run(RunError { message, code }), None)
        })
    }

    /// Tells whoever sent an event again what became of it, as soon as that is known.
    pub(crate) async fn reply_to_duplicate(self: &Arc<Self>, event: AcceptedEvent) {
        let (inbound, key) = (&event.inbound, &event.key);
        if let Err(error) = self.recover_if_orphaned(key).await {
            tracing::warn!(%error, "whether a dead process left an event could not be told");
        }
        if event.caller.is_none() && !self.services.channels.has_waiting_caller(&inbound.source) {
            // Nobody waits for an answer to what was sent again.
            return;
        }
        let known = tokio::select! {
            known = self.wait_for_outcome(key) => known,
            () = self.stop_token.cancelled() => Ok(None),
            () = self.wait_until_cancelled_elsewhere(key) => Ok(None),
        };
        // What was read may have been written a moment ago: nobody is told before the disk has it.
        let known = match known {
            Ok(Some(found)) => match self.services.tapes.store().commit(Batch::new()).await {
                Ok(_) => Ok(Some(found)),
                Err(error) => Err(error.into()),
            },
            known => known,
        };
        let served = ServedEvent { is_duplicate: true, ..ServedEvent::in_flight(event.session.clone()) };
        let failed = match known {
            Ok(Some((outcome, run_id))) => match self.services.tapes.store().outbox_records(key).collect().await {
                Ok(rows) => {
                    let output = if let Outcome::Replied { text } = &outcome { text.clone() } else { String::new() };
                    // What nobody has taken is given to this caller.
                    let (rows, given): (Vec<_>, Vec<_>) =
                        rows.into_iter().partition(|row| self.outbox.is_unclaimed(inbound, row));
                    let outbounds = given.into_iter().map(|row| row.message).collect();
                    let outcome_now = Some(outcome.clone());
                    let served = ServedEvent { run_id, output, outbounds, outcome: outcome_now, ..served };
                    let rows = rows.into_iter().map(OutboxRow::from_unclaimed).collect();
                    return self.outbox.deliver(event.into_delivery(served, outcome, rows)).await;
                }
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(served),
            Err(error) => Err(error),
        };
        if let Some(caller) = event.caller {
            // Whoever asked may have gone.
            let _unheard = caller.send(failed);
        }
    }

    /// Returns when every run of this host is to end and an event is not among what that ends: another process works on
    /// it, and goes on.
    async fn wait_until_cancelled_elsewhere(&self, key: &EventKey) {
        self.cancel_token.cancelled().await;
        let store = self.services.tapes.store();
        let is_mine = async {
            let (event, me) = (store.in_flight_event(key).await?, self.services.options.lease_owner.name());
            Ok::<_, StoreError>(event.is_some_and(|event| event.owner.as_deref() == Some(me)))
        };
        if is_mine.await.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// An event that a dead process left has nobody to end it but whoever asks for it again.
    async fn recover_if_orphaned(self: &Arc<Self>, key: &EventKey) -> Result<(), HostError> {
        let store = self.services.tapes.store();
        let Some(record) = store.inbox_record(key).await?.filter(|record| record.outcome.is_none()) else {
            return Ok(());
        };
        // Tools work in the workspace of their session, and that may be another one.
        let tape = self.services.tapes.record(&record.tape).await?;
        let is_ours = tape.is_some_and(|tape| self.is_workspace_tape(&tape));
        let (left, _) = self.partition_orphaned(&record.tape).await?;
        if is_ours && left.iter().any(|event| event.key == *key) {
            self.reserve_session(&record.tape)?.request_recovery(left.len());
        }
        Ok(())
    }

    /// Waits until an event has ended: it may wait for others, and each of them for as long as a run may take.
    async fn wait_for_outcome(&self, key: &EventKey) -> Result<Option<(Outcome, Option<RunId>)>, HostError> {
        loop {
            match self.services.tapes.store().inbox_record(key).await {
                Ok(record) => {
                    if let Some(outcome) = record.and_then(|record| record.outcome) {
                        return Ok(Some(outcome));
                    }
                }
                Err(error) if error.is_transient() => tracing::warn!(%error, "what became of an event is asked again"),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(OUTCOME_POLL_INTERVAL).await;
        }
    }
}

/// A turn that failed before its prompt had no `save_state`, which would have closed the lifespan.
async fn close_lifespan(inbound: &InboundEvent, error: Option<&TurnError>) {
    let Some(lifespan) = inbound.extensions().get::<TurnLifespan>() else { return };
    let failure = error.map(ToString::to_string);
    match tokio::time::timeout(LIFESPAN_CLOSE_TIMEOUT, lifespan.close(failure.as_deref())).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "the lifespan of a message did not close"),
        Err(_) => tracing::warn!("the lifespan of a message did not close in time"),
    }
}

/// The runs that go on in this process, and how to end them.
#[derive(Debug, Default, Clone)]
pub(crate) struct ActiveRuns(Arc<Mutex<HashMap<RunId, CancellationToken>>>);

/// A run that goes on here until this is dropped: from before it is on record until its end is. In between nobody may
/// take it for one of a dead process.
#[derive(Debug)]
pub(crate) struct ActiveRunGuard {
    runs: ActiveRuns,
    run_id: RunId,
}

impl Drop for ActiveRunGuard {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.run_id);
    }
}

impl ActiveRuns {
    pub(crate) fn register(&self, run_id: RunId, cancelled: CancellationToken) -> ActiveRunGuard {
        self.lock().insert(run_id.clone(), cancelled);
        ActiveRunGuard { runs: self.clone(), run_id }
    }

    pub(crate) fn contains(&self, run_id: &RunId) -> bool {
        self.lock().contains_key(run_id)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.lock().is_empty()
    }

    /// Ends a run; says whether it goes on here.
    pub(crate) fn cancel(&self, run_id: &RunId) -> bool {
        self.lock().get(run_id).inspect(|cancelled| cancelled.cancel()).is_some()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<RunId, CancellationToken>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
