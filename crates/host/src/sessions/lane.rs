//! A session that is awake: one turn at a time, under one lease, and what comes meanwhile.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use capstan_protocol::{Binding, Outcome, TapeName};
use capstan_tape::{Batch, Fact, Fence};
use capstan_turn::{Decision, Mailbox, Session, TurnError};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::authority::Bound;
use super::awake::{Arrived, Heard, Inbox, NewLane};
use super::item::{Group, Item};
use super::lease::Claim;
use crate::delivery::outbox::Parcel;
use crate::engine::{Active, Engine};
use crate::recovery::left;
use crate::runs::steering::Steering;
use crate::turns::ending::{Closed, EndingOrder, Lease};
use crate::turns::journal::Journal;

/// How many turns may go on beside one.
const BESIDE: usize = 8;

/// The lane of one session. It ends when nothing is left to do.
pub(crate) struct Lane {
    engine: Arc<Engine>,
    tape: TapeName,
    claim: Arc<Claim>,
    inbox: Inbox,
    mailbox: Mailbox<Item>,
    woken: Instant,
    /// The lease, while this lane holds it.
    fence: Option<Fence>,
    /// What dead processes left on this session was looked for. That is done before the first turn.
    is_taken_up: bool,
    /// Somebody wants that done although there is no turn.
    is_to_take_up: bool,
    /// A turn is going on, or waits for the lease.
    is_in_turn: bool,
    /// Turns beside the one that is going on.
    beside: JoinSet<()>,
    /// Where turns wait that end at the same time.
    endings: EndingOrder,
}

/// What goes on while something is heard.
#[derive(Clone, Copy)]
enum During<'a> {
    Nothing,
    Turn(&'a Active),
}

impl Lane {
    pub(crate) fn new(engine: Arc<Engine>, new: NewLane) -> Self {
        // A host that sweeps has looked at every session, and looks again; a lease that came with an event was free, so
        // nobody died under it.
        let is_taken_up = engine.sweeps();
        Self {
            engine,
            tape: new.tape,
            claim: new.claim,
            inbox: new.inbox,
            mailbox: Mailbox::default(),
            woken: Instant::now(),
            fence: None,
            is_taken_up,
            is_to_take_up: false,
            is_in_turn: false,
            beside: JoinSet::new(),
            endings: Arc::default(),
        }
    }

    /// Works until there is nothing left to do, or the host stops: then what waits stays on disk.
    pub(crate) async fn run(mut self) {
        loop {
            while let Some(arrived) = self.inbox.next_event() {
                self.arrive(arrived, During::Nothing);
            }
            self.look_whether_to_take_up();
            if self.engine.stopping.is_cancelled() {
                break;
            }
            let now = self.now();
            self.mailbox.pass(now);
            match self.mailbox.next(now).and_then(Group::new) {
                Some(group) => {
                    self.enter_turn();
                    Box::pin(self.next_turn(group)).await;
                    self.leave_turn();
                }
                // Seldom done and large, so it does not make every lane large.
                None if self.is_to_take_up => Box::pin(self.only_take_up()).await,
                None => {
                    if self.is_done().await {
                        return;
                    }
                    self.wait().await;
                }
            }
        }
        while self.beside.join_next().await.is_some() {}
        self.give_lease_back().await;
        // Not asleep but gone: whoever still holds a reservation hears that nobody listens.
    }

    fn now(&self) -> Duration {
        self.woken.elapsed()
    }

    /// Waits until something happens.
    async fn wait(&mut self) {
        let look_again = self.mailbox.look_again().map(|after| self.woken + after);
        tokio::select! {
            heard = self.inbox.next() => self.hear(heard, During::Nothing),
            () = until(look_again) => {}
            Some(_) = self.beside.join_next() => {}
            () = self.engine.stopping.cancelled() => {}
        }
    }

    /// Whether the lane may end.
    async fn is_done(&mut self) -> bool {
        if !self.mailbox.is_empty() || self.mailbox.look_again().is_some() || !self.beside.is_empty() {
            return false;
        }
        if self.fence.is_some() {
            if !self.engine.sessions.begin_release(&self.tape) {
                return false;
            }
            self.give_lease_back().await;
            self.engine.sessions.end_release(&self.tape);
        }
        self.engine.sessions.fall_asleep(&self.tape)
    }

    async fn give_lease_back(&mut self) {
        if self.fence.take().is_some() {
            let batch = Batch { facts: vec![self.claim.release()], ..Batch::new() };
            if let Err(error) = self.engine.services.tapes.store().commit(batch).await {
                // It is void as soon as this claim is dropped.
                tracing::warn!(tape = %self.tape, %error, "a lease could not be given back");
            }
        }
    }

    fn hear(&mut self, heard: Heard, during: During<'_>) {
        match heard {
            Heard::Event(arrived) => self.arrive(arrived, during),
            Heard::Call => self.look_whether_to_take_up(),
        }
    }

    fn look_whether_to_take_up(&mut self) {
        if self.engine.sessions.is_to_take_up(&self.tape) {
            self.is_taken_up = false;
            self.is_to_take_up = true;
        }
    }

    /// Takes an event in, perhaps with the lease.
    fn arrive(&mut self, arrived: Arrived, during: During<'_>) {
        self.fence = arrived.lease.or(self.fence.take());
        self.admit(*arrived.item, during);
        self.engine.sessions.heard(&self.tape, self.is_in_turn || self.mailbox.is_ready());
    }

    /// What comes from now on comes during a turn.
    fn enter_turn(&mut self) {
        self.is_in_turn = true;
        self.engine.sessions.works(&self.tape, true);
    }

    /// What comes from now on does not come during the turn that was.
    fn leave_turn(&mut self) {
        self.is_in_turn = false;
        self.engine.sessions.works(&self.tape, self.mailbox.is_ready());
    }

    fn admit(&mut self, item: Item, during: During<'_>) {
        let session = match during {
            During::Nothing => Session::Free,
            During::Turn(_) => Session::Busy,
        };
        let arrival = match during {
            During::Turn(active) => active.admits(&item),
            During::Nothing => item.arrival,
        };
        let now = self.now();
        match self.mailbox.arrive(item, &arrival, session, now) {
            Decision::Waits => {}
            Decision::Interrupts => {
                if let During::Turn(active) = during {
                    active.interrupted.store(true, Ordering::SeqCst);
                    active.cancelled.cancel();
                }
            }
            Decision::Steer(item) => {
                let left = match during {
                    During::Turn(active) => active.steering.offer(item),
                    During::Nothing => Some(item),
                };
                self.mailbox.put_back(left.into_iter().collect(), |item| item.entry);
            }
            Decision::Beside(item) => match &self.fence {
                Some(fence) if self.beside.len() < BESIDE => self.begin_beside(item, fence.clone()),
                // It waits its turn, as other commands do.
                _ => self.mailbox.queue_last(item),
            },
            Decision::Drop(item) => self.let_go(item),
        }
    }

    /// Lets an event go that turned out not to be meant for the bot. The turn that goes on does not wait for it.
    fn let_go(&self, item: Item) {
        let engine = Arc::clone(&self.engine);
        self.engine.tasks.spawn(async move {
            let settle = Fact::Settle { key: item.key.clone(), outcome: Outcome::Dropped, run_id: None };
            match engine.commit_patiently(Batch { facts: vec![settle], ..Batch::new() }).await {
                Ok(_) => engine.deliver_at_once(Parcel::dropped(item)),
                Err(error) => tracing::error!(%error, "an event could not be let go"),
            }
        });
    }

    /// Makes sure of the lease; meanwhile others may come. Fails when another process works on the session for too
    /// long, and gives nothing when the host stops first.
    async fn hold_lease(&mut self) -> Result<Option<Fence>, TurnError> {
        if let Some(fence) = &self.fence {
            return Ok(Some(fence.clone()));
        }
        let (engine, claim) = (Arc::clone(&self.engine), Arc::clone(&self.claim));
        let taken = engine.services.wait_for_lease(&claim, &engine.cancelled);
        tokio::pin!(taken);
        let fence = loop {
            tokio::select! {
                fence = &mut taken => break fence?,
                heard = self.inbox.next() => self.hear(heard, During::Nothing),
                () = engine.stopping.cancelled() => return Ok(None),
            }
        };
        // It was not free when the event was accepted: whoever had it may have died.
        self.is_taken_up = false;
        self.fence = Some(fence.clone());
        Ok(Some(fence))
    }

    /// Takes up what dead processes left, though nothing new has come.
    async fn only_take_up(&mut self) {
        self.is_to_take_up = false;
        match self.hold_lease().await {
            Ok(Some(fence)) => self.take_up(&fence).await,
            Ok(None) => {}
            Err(error) => {
                tracing::info!(tape = %self.tape, %error, "what a dead process left is not taken up now");
            }
        }
    }

    async fn take_up(&mut self, fence: &Fence) {
        self.is_taken_up = true;
        self.is_to_take_up = false;
        match left::take_up(&self.engine, &self.tape, fence).await {
            Ok(mut groups) => {
                // There may be fewer places: who is first in line needs none for long.
                let last_first = groups.iter_mut().flatten().rev();
                for (item, seat) in last_first.zip(self.engine.sessions.take_seats(&self.tape)) {
                    item.place = Some(seat);
                }
                for items in groups.into_iter().rev() {
                    self.mailbox.put_first(items);
                }
            }
            Err(error) => tracing::error!(tape = %self.tape, %error, "what a dead process left could not be taken up"),
        }
    }

    /// Takes events through a turn, with whatever comes meanwhile.
    async fn next_turn(&mut self, group: Group) {
        let fence = match self.hold_lease().await {
            Ok(Some(fence)) => fence,
            // It waits on disk, for the next start.
            Ok(None) => return self.mailbox.put_first(group.into_items()),
            Err(error) => return Box::pin(self.engine.end_without_turn(group, &self.tape, error)).await,
        };
        if !self.is_taken_up {
            // What was left is older, and goes first.
            self.mailbox.put_first(group.into_items());
            return Box::pin(self.take_up(&fence)).await;
        }
        let Some(Bound { mut group, binding, rest }) = self.engine.services.of_one_binding(group).await else { return };
        for items in rest.into_iter().rev() {
            self.mailbox.put_first(items);
        }
        let active = match binding {
            Ok(binding) => self.begin(fence, binding),
            Err(error) => return self.engine.end_without_turn(group, &self.tape, error).await,
        };
        group.leave_queue();
        let engine = Arc::clone(&self.engine);
        let ended = {
            let _going_on = engine.turns.enter(&self.tape, active.cancelled.clone());
            let turn = engine.take_turn_guarded(&group, &active);
            tokio::pin!(turn);
            loop {
                tokio::select! {
                    ended = &mut turn => break ended,
                    heard = self.inbox.next() => self.hear(heard, During::Turn(&active)),
                    Some(_) = self.beside.join_next() => {}
                }
            }
        };
        if active.interrupted.load(Ordering::SeqCst) && matches!(ended.turn, Err(TurnError::Cancelled)) {
            ended.staging.withdraw_notice();
        }
        let steered = active.steering.end();
        self.mailbox.put_back(steered.left, |item| item.entry);
        // Whoever hears the answer may send something at once: it does not come during this turn.
        self.leave_turn();
        let is_last = self.mailbox.is_empty() && self.beside.is_empty();
        let releases = is_last && engine.sessions.begin_release(&self.tape);
        let lease = if releases { self.claim.release() } else { engine.services.renewal(&self.claim) };
        let (trouble, troubled) = oneshot::channel();
        let (taken, order) = (steered.taken, Some(Arc::clone(&self.endings)));
        let closed = Closed { group, taken, tape: self.tape.clone(), trouble: Some(trouble), order };
        let settling = engine.settle(closed, ended, Lease::Becomes(Box::new(lease)));
        tokio::pin!(settling);
        let settled = tokio::select! {
            settled = &mut settling => settled,
            // It goes on for as long as the store fails: whoever waits behind it must not wait for that.
            Ok(error) = troubled => {
                engine.tell_delayed(self.mailbox.iter_mut(), &error.into());
                settling.await
            }
        };
        if releases || matches!(&settled, Ok(settled) if settled.was_fenced) {
            self.fence = None;
        }
        if releases {
            engine.sessions.end_release(&self.tape);
        }
        match settled {
            Ok(settled) => engine.wait_for_room(&settled.chats).await,
            Err(error) => tracing::error!(tape = %self.tape, %error, "the end of a turn could not be written"),
        }
    }

    fn begin(&self, fence: Fence, binding: Option<Arc<Binding>>) -> Active {
        let services = &self.engine.services;
        let (clock, tasks) = (services.settings.clock.clone(), self.engine.tasks.clone());
        Active {
            journal: Arc::new(Journal::new(services.tapes.clone(), self.tape.clone(), fence, clock, tasks)),
            cancelled: self.engine.cancelled.child_token(),
            steering: Arc::new(Steering::default()),
            binding,
            interrupted: Arc::default(),
        }
    }

    /// Begins a turn beside the one that is going on, under the same lease.
    fn begin_beside(&mut self, item: Item, fence: Fence) {
        let Some(mut group) = Group::new(vec![item]) else { return };
        group.leave_queue();
        let mut active = self.begin(fence, None);
        let (engine, tape, endings) = (Arc::clone(&self.engine), self.tape.clone(), Arc::clone(&self.endings));
        self.beside.spawn(async move {
            active.binding = match engine.services.binding_of(&group.inbound).await {
                Ok(binding) => binding,
                Err(error) => return engine.end_without_turn(group, &tape, error).await,
            };
            let ended = engine.take_turn_guarded(&group, &active).await;
            let closed =
                Closed { group, taken: active.steering.end().taken, tape, trouble: None, order: Some(endings) };
            match engine.settle(closed, ended, Lease::Untouched).await {
                Ok(settled) => engine.wait_for_room(&settled.chats).await,
                Err(error) => tracing::error!(%error, "the end of a turn beside another could not be written"),
            }
        });
    }
}

async fn until(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}
