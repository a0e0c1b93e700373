//! Session service: wires the components of this crate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use capstan_delivery::{ChannelDirectory, Outbox, OutboxOptions, OwnerRegistry as _, StalePolicy};
use capstan_hooks::HookRuntime;
use capstan_hooks::contracts::IntakeOptions;
use capstan_policy::BindingStore;
use capstan_protocol::{ChannelName, Clock, EntryId, Event, SessionId, WorkspaceId};
use capstan_runs::{ActiveRuns, Orchestrator, ToolCatalog};
use capstan_tape::{EventAcceptance, TapeAddress, TapeRepository, TapeSlice, fork_of_session, tape_name};
use capstan_turn::TurnPipeline;
use tokio::sync::Semaphore;

use crate::active_sessions::ActiveSessions;
use crate::closing::TurnCloser;
use crate::closing::notices::NoticeDispatcher;
use crate::duplicate_replies::DuplicateReplies;
use crate::intake::{AdmissionPlanner, AnchoredTapes, EventCommitter, IntakeQueues};
use crate::intake_policy::IntakePolicy;
use crate::lease_keeper::LeaseKeeper;
use crate::outcome_relay::OutcomeRelay;
use crate::recovery::SessionRecovery;
use crate::session_actor::SessionPool;
use crate::unserved_events::UnservedEvents;
use crate::{EventIntake, EventResolver, HostError, HostLifecycle, LeaseOwner, RecoverySweeper};

/// Options of a [`SessionService`].
#[derive(Debug, Clone)]
pub struct SessionOptions {
    /// Maximum size of the input of an event, in bytes.
    pub max_message_bytes: usize,
    /// Maximum number of queued events of one session.
    pub max_queued_events: usize,
    /// Maximum number of turns that run at the same time. Further ones wait, in order of arrival.
    pub max_active_turns: usize,
    /// Timeout of a run, which a lease outlasts.
    pub run_timeout: Duration,
    /// Timeout of the wait for a session that another process holds.
    pub session_wait_timeout: Duration,
    /// Age from which a message in the outbox is held for the operator; `None`: messages are never held.
    pub delivery_stale_after: Option<Duration>,
    /// Intake options that override those of a channel.
    pub intake_overrides: BTreeMap<ChannelName, IntakeOptions>,
    /// Owner of the leases of this process.
    pub lease_owner: LeaseOwner,
    /// Clock of the host.
    pub clock: Clock,
}

/// Components that a [`SessionService`] depends on.
pub struct SessionDependencies {
    /// Hooks of the host.
    pub hooks: HookRuntime,
    /// Tapes of the host.
    pub tapes: TapeRepository,
    /// Identity of the workspace.
    pub workspace_id: WorkspaceId,
    /// Channels of the host.
    pub channels: ChannelDirectory,
    /// Bindings of the host.
    pub bindings: Arc<BindingStore>,
    /// Tools of the host.
    pub tools: Arc<ToolCatalog>,
    /// Runs of this process.
    pub active_runs: ActiveRuns,
    /// Pipeline of the turns.
    pub turn_pipeline: TurnPipeline<Orchestrator>,
}

/// Sessions of a host: accepts events, runs their turns, and recovers the work of dead processes. Cheap to clone.
#[derive(Clone)]
pub struct SessionService {
    intake: Arc<EventIntake>,
    sweeper: Arc<RecoverySweeper>,
    recovery: Arc<SessionRecovery>,
    pool: Arc<SessionPool>,
    outbox: Outbox,
    lifecycle: HostLifecycle,
    tapes: TapeRepository,
    workspace_id: WorkspaceId,
    owner: LeaseOwner,
}

impl SessionService {
    /// Wires the components. No task runs until an event arrives.
    pub fn new(dependencies: SessionDependencies, options: SessionOptions) -> Self {
        let lifecycle = HostLifecycle::default();
        let outbox = new_outbox(&dependencies, &options, &lifecycle);
        let leases = new_lease_keeper(&dependencies, &options);
        let relay = new_outcome_relay(&dependencies, &options, &lifecycle, &outbox);
        let resolver = new_event_resolver(&dependencies, &options);
        let SessionDependencies { hooks, tapes, workspace_id, channels, bindings, tools, active_runs, turn_pipeline } =
            dependencies;
        let SessionOptions { lease_owner: owner, clock, .. } = options;
        let turn_pipeline = Arc::new(turn_pipeline);
        let unserved_events = UnservedEvents::default();
        let closer = Arc::new(TurnCloser {
            unserved_events: unserved_events.clone(),
            relay: relay.clone(),
            notices: NoticeDispatcher {
                hooks: hooks.clone(),
                turn_pipeline: Arc::clone(&turn_pipeline),
                bindings: Arc::clone(&bindings),
            },
            outbox: outbox.clone(),
            tapes: tapes.clone(),
            owner: owner.clone(),
            clock: clock.clone(),
            abort_token: lifecycle.abort_token.clone(),
        });
        let intake_policy = IntakePolicy { channels: channels.clone(), overrides: Arc::new(options.intake_overrides) };
        let recovery = Arc::new(SessionRecovery {
            tapes: tapes.clone(),
            workspace_id: workspace_id.clone(),
            channels: channels.clone(),
            intake_policy: intake_policy.clone(),
            owner: owner.clone(),
            unserved_events: unserved_events.clone(),
            clock: clock.clone(),
            active_runs,
            tools: Arc::clone(&tools),
            closer: Arc::clone(&closer),
            outbox: outbox.clone(),
        });
        let pool = Arc::new(SessionPool {
            sessions: ActiveSessions::default(),
            max_queued_events: options.max_queued_events,
            turn_permits: Arc::new(Semaphore::new(options.max_active_turns.clamp(1, Semaphore::MAX_PERMITS))),
            lifecycle: lifecycle.clone(),
            leases: leases.clone(),
            bindings: Arc::clone(&bindings),
            recovery: Arc::clone(&recovery),
            turn_pipeline,
            channels: channels.clone(),
            closer: Arc::clone(&closer),
            outbox: outbox.clone(),
            tapes: tapes.clone(),
            clock: clock.clone(),
            is_sweeping: AtomicBool::new(false),
        });
        let sweeper = Arc::new(RecoverySweeper {
            recovery: Arc::clone(&recovery),
            pool: Arc::clone(&pool),
            outbox: outbox.clone(),
            tapes: tapes.clone(),
            lifecycle: lifecycle.clone(),
            is_started: AtomicBool::new(false),
        });
        let intake = Arc::new(EventIntake {
            planner: AdmissionPlanner {
                has_model_stage_override: hooks.has_model_stage_override(),
                hooks: hooks.clone(),
                tapes: tapes.clone(),
                channels: channels.clone(),
                bindings,
                intake_policy,
                tools,
                leases: leases.clone(),
            },
            committer: EventCommitter {
                tapes: tapes.clone(),
                workspace_id: workspace_id.clone(),
                owner: owner.clone(),
                clock: clock.clone(),
                leases: leases.clone(),
                anchored_tapes: AnchoredTapes::default(),
            },
            duplicates: DuplicateReplies {
                tapes: tapes.clone(),
                relay,
                recovery: Arc::clone(&recovery),
                pool: Arc::clone(&pool),
            },
            unserved_events,
            resolver,
            tapes: tapes.clone(),
            channels,
            clock,
            leases,
            queues: IntakeQueues::default(),
            pool: Arc::clone(&pool),
            closer,
            outbox: outbox.clone(),
            lifecycle: lifecycle.clone(),
        });
        Self { intake, sweeper, recovery, pool, outbox, lifecycle, tapes, workspace_id, owner }
    }

    /// Intake of events.
    pub fn intake(&self) -> &Arc<EventIntake> {
        &self.intake
    }

    /// Sweeper for the orphaned work of dead processes.
    pub fn sweeper(&self) -> &Arc<RecoverySweeper> {
        &self.sweeper
    }

    /// Tasks and tokens of the host.
    pub fn lifecycle(&self) -> &HostLifecycle {
        &self.lifecycle
    }

    /// Recovers one session, and delivers the orphaned messages of its channel, which has to listen already.
    pub async fn recover_session(&self, session: &SessionId) -> Result<(), HostError> {
        self.outbox.adopt_orphaned_messages().await?;
        let tape = self.tapes.session_tape(&self.session_address(session)).await?;
        let (orphaned, _) = self.recovery.partition_orphaned(&tape).await?;
        if !orphaned.is_empty() {
            self.pool.reserve(&tape)?.request_recovery(orphaned.len());
        }
        Ok(())
    }

    /// Events of a channel that dead processes left without an outcome in this session, or whose reply they left
    /// unsent, in the order of their acceptance. A caller that submits one of them again gets its reply.
    pub async fn orphaned_events(&self, channel: &ChannelName, session: &SessionId) -> Result<Vec<Event>, HostError> {
        let (store, tape) = (self.tapes.store(), self.tapes.session_tape(&self.session_address(session)).await?);
        let (orphaned, _) = self.recovery.partition_orphaned(&tape).await?;
        let mut entries: BTreeSet<EntryId> =
            orphaned.into_iter().filter(|event| event.key.source == *channel).map(|event| event.entry).collect();
        let mut unsent = store.pending_outbound();
        while let Some(message) = unsent.next().await? {
            if message.message.channel == *channel
                && message.event.source == *channel
                && self.owner.has_orphans_of(message.owner.as_deref())
                && let Some(event) = store.inbox_record(&message.event).await?.filter(|event| event.tape == tape)
            {
                entries.insert(event.entry);
            }
        }
        let mut events = Vec::new();
        for entry in entries {
            let entry = self.tapes.read_any_generation(&tape, &TapeSlice::single(entry)).await?.pop();
            events.extend(entry.as_ref().and_then(EventAcceptance::from_entry).map(|accepted| *accepted.event));
        }
        Ok(events)
    }

    /// Cancels the running turn of a session in this process: it ends with its outcome recorded, and queued events get
    /// their turns. Returns true if a turn was running.
    pub fn cancel_turn(&self, session: &SessionId) -> bool {
        // A session that works on a fork has the tape of the fork.
        let tapes = [Some(tape_name(&self.session_address(session))), fork_of_session(session)];
        tapes.into_iter().flatten().any(|tape| self.pool.sessions.cancel_turn(&tape))
    }

    /// Number of events without an outcome that this process could settle: its own, and orphaned ones of channels that
    /// listen here.
    pub async fn count_unsettled(&self) -> Result<usize, HostError> {
        let mut count = 0;
        let mut events = self.tapes.store().in_flight_events(None);
        while let Some(event) = events.next().await? {
            let is_mine = event.owner.as_deref() == Some(self.owner.name());
            let can_settle = is_mine || self.recovery.is_orphaned_event(&event).await?;
            let is_ours = match self.tapes.record(&event.tape).await? {
                Some(record) => self.recovery.is_workspace_tape(&record),
                None => false,
            };
            count += usize::from(can_settle && is_ours);
        }
        Ok(count)
    }

    /// Number of active sessions, conversations in intake, and chats with pending deliveries.
    pub fn active_counts(&self) -> (usize, usize, usize) {
        (self.pool.sessions.active_count(), self.intake.queues.queue_count(), self.outbox.queue_count())
    }

    fn session_address(&self, session: &SessionId) -> TapeAddress {
        TapeAddress { workspace: self.workspace_id.clone(), session: session.clone() }
    }
}

fn new_outbox(dependencies: &SessionDependencies, options: &SessionOptions, lifecycle: &HostLifecycle) -> Outbox {
    let outbox_options = OutboxOptions {
        workspace_id: dependencies.workspace_id.clone(),
        owners: Arc::new(options.lease_owner.clone()),
        stale_policy: StalePolicy { stale_after: options.delivery_stale_after, clock: options.clock.clone() },
        tasks: lifecycle.tasks.clone(),
        stop_token: lifecycle.stop_token.clone(),
        abort_token: lifecycle.abort_token.clone(),
    };
    Outbox::new(outbox_options, dependencies.channels.clone(), dependencies.tapes.clone())
}

fn new_outcome_relay(
    dependencies: &SessionDependencies,
    options: &SessionOptions,
    lifecycle: &HostLifecycle,
    outbox: &Outbox,
) -> OutcomeRelay {
    OutcomeRelay {
        tapes: dependencies.tapes.clone(),
        channels: dependencies.channels.clone(),
        outbox: outbox.clone(),
        owner: options.lease_owner.clone(),
        lifecycle: lifecycle.clone(),
    }
}

fn new_event_resolver(dependencies: &SessionDependencies, options: &SessionOptions) -> EventResolver {
    EventResolver {
        hooks: dependencies.hooks.clone(),
        channels: dependencies.channels.all().iter().map(|channel| channel.name()).collect(),
        workspace_id: dependencies.workspace_id.clone(),
        max_message_bytes: options.max_message_bytes,
    }
}

fn new_lease_keeper(dependencies: &SessionDependencies, options: &SessionOptions) -> LeaseKeeper {
    LeaseKeeper {
        tapes: dependencies.tapes.clone(),
        owner: options.lease_owner.clone(),
        clock: options.clock.clone(),
        run_timeout: options.run_timeout,
        session_wait_timeout: options.session_wait_timeout,
    }
}
