//! The moving parts of a running host, shared by the tasks that move them.

use std::collections::{BTreeSet, HashMap};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capstan_hooks::{Inbound, Lifespan};
use capstan_protocol::{Binding, ChannelName, EventKey, Outcome, RunId, SessionId, TapeName};
use capstan_tape::{Batch, StoreError};
use capstan_turn::{RunFailure, Turn, TurnError};
use futures::FutureExt as _;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::delivery::outbox::{Outbox, Parcel, Row};
use crate::intake::order::Lines;
use crate::runs::orchestrator::TurnRun;
use crate::runs::steering::Steering;
use crate::services::Services;
use crate::sessions::attending::Turns;
use crate::sessions::awake::{Reservation, Sessions};
use crate::sessions::item::{Caller, Group};
use crate::sessions::lane::Lane;
use crate::turns::ending::Ended;
use crate::turns::journal::Journal;
use crate::turns::staging::Staging;
use crate::{HostError, Served};

/// How long the scope of a message may take to close.
const LIFESPAN_DEADLINE: Duration = Duration::from_secs(30);
/// How often the store is asked what became of an event that another process works on.
const POLL: Duration = Duration::from_millis(100);

/// The moving parts of a running host.
pub(crate) struct Engine {
    pub(crate) services: Arc<Services>,
    pub(crate) turn: Turn,
    pub(crate) sessions: Sessions,
    /// The turns that go on.
    pub(crate) turns: Turns,
    pub(crate) outbox: Outbox,
    pub(crate) lines: Lines,
    /// Every task of the host.
    pub(crate) tasks: TaskTracker,
    /// Fires when every run is to end.
    pub(crate) cancelled: CancellationToken,
    /// Fires when no further turn is to begin: what waits is taken up at the next start.
    pub(crate) stopping: CancellationToken,
    /// Fires when the host can wait no longer: neither for whoever takes what is sent, nor for a store that fails.
    pub(crate) giving_up: CancellationToken,
    /// The sessions that are awake.
    pub(crate) lanes: TaskTracker,
    listening: Mutex<BTreeSet<ChannelName>>,
    /// What dead processes left was looked for in every session, and is looked for again.
    pub(crate) sweeps: AtomicBool,
    /// The task that looks again has begun.
    sweep_begun: AtomicBool,
}

/// A turn that is going on, as its session reaches it.
#[derive(Clone)]
pub(crate) struct Active {
    pub(crate) journal: Arc<Journal>,
    pub(crate) cancelled: CancellationToken,
    pub(crate) steering: Arc<Steering>,
    /// What it is done under; without one nothing is done.
    pub(crate) binding: Option<Arc<Binding>>,
    /// A message of the same session ended it: whoever sent that need not be told that it was cancelled.
    pub(crate) interrupted: Arc<AtomicBool>,
}

impl Engine {
    pub(crate) fn new(services: Arc<Services>, turn: Turn) -> Self {
        Self {
            services,
            turn,
            sessions: Sessions::default(),
            turns: Turns::default(),
            outbox: Outbox::default(),
            lines: Lines::default(),
            tasks: TaskTracker::new(),
            cancelled: CancellationToken::new(),
            stopping: CancellationToken::new(),
            giving_up: CancellationToken::new(),
            lanes: TaskTracker::new(),
            listening: Mutex::default(),
            sweeps: AtomicBool::new(false),
            sweep_begun: AtomicBool::new(false),
        }
    }

    /// Whether this host looks for what dead processes left in every session.
    pub(crate) fn sweeps(&self) -> bool {
        self.sweeps.load(Ordering::SeqCst)
    }

    /// Begins to look for it now and again, once.
    pub(crate) fn begin_sweep(self: &Arc<Self>) {
        if !self.sweep_begun.swap(true, Ordering::SeqCst) {
            self.tasks.spawn(Arc::clone(self).sweep());
        }
    }

    /// Reserves a place in a session, which is woken if it is asleep.
    pub(crate) fn reserve(self: &Arc<Self>, tape: &TapeName) -> Result<Reservation, HostError> {
        if self.stopping.is_cancelled() {
            return Err(HostError::Stopping);
        }
        let settings = &self.services.settings;
        let (reservation, begun) = self.sessions.reserve(tape, &settings.owner, settings.session_queue);
        if let Some(lane) = begun {
            let lane = Lane::new(Arc::clone(self), lane).run();
            self.tasks.spawn(self.lanes.track_future(lane));
        }
        Ok(reservation)
    }

    /// The channels that listen in this process.
    pub(crate) fn listening(&self) -> MutexGuard<'_, BTreeSet<ChannelName>> {
        self.listening.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes events through a turn. One that crashes, which hooks and runners cannot make it do, still has an end.
    pub(crate) async fn take_turn_guarded(&self, group: &Group, active: &Active) -> Ended {
        match AssertUnwindSafe(self.take_turn(group, active)).catch_unwind().await {
            Ok(ended) => ended,
            Err(_) => Ended {
                turn: Err(TurnError::Run(RunFailure {
                    message: "the turn crashed".to_owned(),
                    code: Some("run-failed".to_owned()),
                })),
                staging: Staging::default(),
                run: None,
                goes_on: None,
                journal: Some(Arc::clone(&active.journal)),
            },
        }
    }

    /// Takes events through a turn. Whatever goes wrong is in what is returned.
    async fn take_turn(&self, group: &Group, active: &Active) -> Ended {
        let inbound = &group.inbound;
        let staging = Staging::default();
        inbound.extensions().insert(staging.clone());
        inbound.extensions().insert(TurnRun {
            journal: Arc::clone(&active.journal),
            cancelled: active.cancelled.clone(),
            steering: Arc::clone(&active.steering),
            binding: active.binding.clone(),
            begins_after: group.head(),
            events: group.items().map(|item| (item.key.clone(), item.message)).collect(),
            report: Mutex::default(),
            goes_on: Mutex::default(),
        });
        let turn = self.turn.process(inbound.clone(), group.lead.session.clone()).await;
        close_lifespan(inbound, turn.as_ref().err()).await;
        let run = inbound.extensions().get::<TurnRun>();
        let goes_on = run.as_ref().and_then(|run| run.goes_on.lock().unwrap_or_else(PoisonError::into_inner).take());
        let run = run.and_then(|run| run.report.lock().unwrap_or_else(PoisonError::into_inner).clone());
        Ended { turn, staging, run, goes_on, journal: Some(Arc::clone(&active.journal)) }
    }

    /// Tells whoever sent an event again what became of it, as soon as that is known.
    pub(crate) async fn answer_again(
        self: &Arc<Self>,
        inbound: Inbound,
        key: EventKey,
        session: SessionId,
        caller: Option<Caller>,
    ) {
        if let Err(error) = self.take_up_if_left(&key).await {
            tracing::warn!(%error, "whether a dead process left an event could not be told");
        }
        if caller.is_none() && !self.services.caller_waits(&inbound.source) {
            // Nobody waits for an answer to what was sent again.
            return;
        }
        let known = tokio::select! {
            known = self.outcome_of(&key) => known,
            () = self.stopping.cancelled() => Ok(None),
            () = self.cancelled_in_vain(&key) => Ok(None),
        };
        // What was read may have been written a moment ago: nobody is told before the disk has it.
        let known = match known {
            Ok(Some(found)) => match self.services.tapes.store().commit(Batch::new()).await {
                Ok(_) => Ok(Some(found)),
                Err(error) => Err(error.into()),
            },
            known => known,
        };
        let served = Served { duplicate: true, ..Served::in_flight(session) };
        let failed = match known {
            Ok(Some((outcome, run_id))) => match self.services.tapes.store().outbox(&key).await {
                Ok(rows) => {
                    let output = if let Outcome::Replied { text } = &outcome { text.clone() } else { String::new() };
                    // What nobody has taken is given to this caller.
                    let (rows, given): (Vec<_>, Vec<_>) =
                        rows.into_iter().partition(|row| self.is_not_given(&inbound, row));
                    let outbounds = given.into_iter().map(|row| row.message).collect();
                    let outcome_now = Some(outcome.clone());
                    let served = Served { run_id, output, outbounds, outcome: outcome_now, ..served };
                    let rows = rows.into_iter().map(Row::to_be_given).collect();
                    return self.deliver(Parcel { inbound, served, outcome, rows, caller }).await;
                }
                Err(error) => Err(error.into()),
            },
            Ok(None) => Ok(served),
            Err(error) => Err(error),
        };
        if let Some(caller) = caller {
            // Whoever asked may have gone.
            let _unheard = caller.send(failed);
        }
    }

    /// Returns when every run of this host is to end and an event is not among what that ends: another process works on
    /// it, and goes on.
    async fn cancelled_in_vain(&self, key: &EventKey) {
        self.cancelled.cancelled().await;
        let store = self.services.tapes.store();
        let is_mine = async {
            let Some(record) = store.accepted(key).await? else { return Ok(false) };
            let (events, me) = (store.in_flight(Some(&record.tape)).await?, self.services.settings.owner.name());
            Ok::<_, StoreError>(events.iter().any(|event| event.key == *key && event.owner.as_deref() == Some(me)))
        };
        if is_mine.await.unwrap_or(false) {
            std::future::pending::<()>().await;
        }
    }

    /// An event that a dead process left has nobody to end it but whoever asks for it again.
    async fn take_up_if_left(self: &Arc<Self>, key: &EventKey) -> Result<(), HostError> {
        let store = self.services.tapes.store();
        let Some(record) = store.accepted(key).await?.filter(|record| record.outcome.is_none()) else { return Ok(()) };
        let events = store.in_flight(Some(&record.tape)).await?;
        // Tools work in the workspace of their session, and that may be another one.
        let tape = self.services.tapes.record(&record.tape).await?;
        let is_ours = tape.is_some_and(|tape| self.is_ours(&tape));
        let (left, _) = self.part_left(events).await?;
        if is_ours && left.iter().any(|event| event.key == *key) {
            self.reserve(&record.tape)?.take_up(left.len());
        }
        Ok(())
    }

    /// Waits until an event has ended: it may wait for others, and each of them for as long as a run may take.
    async fn outcome_of(&self, key: &EventKey) -> Result<Option<(Outcome, Option<RunId>)>, HostError> {
        loop {
            match self.services.tapes.store().accepted(key).await {
                Ok(record) => {
                    if let Some(outcome) = record.and_then(|record| record.outcome) {
                        return Ok(Some(outcome));
                    }
                }
                Err(error) if error.may_pass() => tracing::warn!(%error, "what became of an event is asked again"),
                Err(error) => return Err(error.into()),
            }
            tokio::time::sleep(POLL).await;
        }
    }
}

/// A turn that failed before its prompt had no `save_state`, which would have closed the lifespan.
async fn close_lifespan(inbound: &Inbound, error: Option<&TurnError>) {
    let Some(lifespan) = inbound.extensions().get::<Lifespan>() else { return };
    let failure = error.map(ToString::to_string);
    match tokio::time::timeout(LIFESPAN_DEADLINE, lifespan.close(failure.as_deref())).await {
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
pub(crate) struct GoesOn {
    runs: ActiveRuns,
    run_id: RunId,
}

impl Drop for GoesOn {
    fn drop(&mut self) {
        self.runs.lock().remove(&self.run_id);
    }
}

impl ActiveRuns {
    pub(crate) fn enter(&self, run_id: RunId, cancelled: CancellationToken) -> GoesOn {
        self.lock().insert(run_id.clone(), cancelled);
        GoesOn { runs: self.clone(), run_id }
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
