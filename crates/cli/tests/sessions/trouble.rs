//! A store that fails for a while: what was begun is brought to its end. On paused time.

use std::sync::Arc;

use capstan::hooks::contracts::{Debounce, Intake};
use capstan::protocol::{Event, Outcome};
use capstan::tape::Fact;
use capstan_testing::Gate;
use std::time::Duration;

use crate::frail::Frail;
use crate::house::{House, echoes_at, in_words, submit};
use crate::phone::Phone;

fn settles(fact: &Fact) -> bool {
    matches!(fact, Fact::Settle { .. })
}

#[tokio::test(start_paused = true)]
async fn x01_the_end_of_a_turn_is_tried_again_although_the_host_stops() {
    let (gate, store, phone) = (Gate::new(), Frail::new(), Arc::new(Phone::new("phone")));
    let house = House::over(store.clone());
    let host = house.host().channel(&phone).plugin(echoes_at(&gate)).start().await;
    let event = Event::message("phone", "1", "one");
    submit(&host, &event).await;
    gate.reached().await;
    store.refuse_first(3, settles);
    let stopping = tokio::spawn(host.stop());
    tokio::time::sleep(Duration::from_millis(1)).await;
    gate.open();
    stopping.await.unwrap().unwrap();
    assert_eq!(house.outcome(&event).await.as_ref().map(in_words).as_deref(), Some("replied: re: one"));
    assert_eq!(phone.sent(), ["1: re: one"]);
    house.assert_tidy().await;
}

#[tokio::test(start_paused = true)]
async fn x01_a_store_that_never_takes_the_end_of_a_turn_does_not_keep_the_host_from_stopping() {
    let (gate, store, phone) = (Gate::new(), Frail::new(), Arc::new(Phone::new("phone")));
    let house = House::over(store.clone());
    let host = house.host().channel(&phone).plugin(echoes_at(&gate)).start().await;
    let event = Event::message("phone", "1", "one");
    submit(&host, &event).await;
    gate.reached().await;
    store.refuse_first(usize::MAX, settles);
    gate.open();
    host.stop().await.unwrap();
    assert_eq!(house.outcome(&event).await, None, "it is in flight, for the next start");
}

#[tokio::test(start_paused = true)]
async fn c03_an_event_that_is_let_go_is_settled_when_the_store_works_again() {
    let window = Some(Duration::from_mins(1));
    let debounce = Debounce { quiet: Duration::from_secs(1), max_wait: Duration::from_secs(2), active_window: window };
    let phone = Phone::new("phone").taking_in(Intake { admission: None, debounce: Some(debounce) });
    let store = Frail::new();
    let house = House::over(store.clone());
    let host = house.host().channel(&Arc::new(phone)).start().await;
    store.refuse_first(3, settles);
    let mut overheard = Event::message("phone", "1", "nice weather");
    overheard.metadata.insert(Event::ADDRESSED.to_owned(), false.into());
    submit(&host, &overheard).await;
    while house.outcome(&overheard).await.is_none() {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(house.outcome(&overheard).await, Some(Outcome::Dropped));
    host.stop().await.unwrap();
    house.assert_tidy().await;
}
