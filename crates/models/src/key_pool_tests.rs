use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use capstan_protocol::{Clock, Timestamp};
use secrecy::{ExposeSecret as _, SecretString};

use super::{KeyFault, KeyPool, KeySelection, MAX_COOLDOWNS, PooledKey};

/// Pool with a clock that a test sets.
struct PoolFixture {
    pool: KeyPool,
    millis: Arc<AtomicI64>,
}

impl PoolFixture {
    fn new(keys: &[&str]) -> Self {
        let millis = Arc::new(AtomicI64::new(0));
        let time = Arc::clone(&millis);
        let clock = Clock::new(move || Timestamp::from_millis(time.load(Ordering::Relaxed)));
        let keys: Vec<SecretString> = keys.iter().map(|key| SecretString::from((*key).to_owned())).collect();
        Self { pool: KeyPool::new(&keys, clock), millis }
    }

    fn advance(&self, duration: Duration) {
        self.millis.fetch_add(i64::try_from(duration.as_millis()).unwrap(), Ordering::Relaxed);
    }

    fn free_key(&self, model: &str) -> Option<PooledKey> {
        match self.pool.select(model) {
            KeySelection::Free(key) => Some(key),
            KeySelection::Keyless | KeySelection::Cooling(_) => None,
        }
    }

    fn free_secret(&self, model: &str) -> Option<String> {
        self.free_key(model).map(|key| key.secret.expose_secret().to_owned())
    }

    fn fail(&self, model: &str, fault: KeyFault, requested: Option<Duration>) {
        let key = self.free_key(model).expect("a free key");
        self.pool.record_fault(&key, model, fault, requested, 1.0);
    }

    fn wait(&self, model: &str) -> Option<Duration> {
        match self.pool.select(model) {
            KeySelection::Cooling(cooldown) => Some(cooldown.wait),
            KeySelection::Keyless | KeySelection::Free(_) => None,
        }
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

#[test]
fn a08_keys_are_used_in_order_without_duplicates_and_blanks() {
    let fixture = PoolFixture::new(&[" one ", "", "two", "one"]);
    assert_eq!(fixture.free_secret("m").as_deref(), Some("one"));
    fixture.fail("m", KeyFault::RateLimited, Some(seconds(5)));
    let second = fixture.free_key("m").unwrap();
    assert_eq!((second.secret.expose_secret(), second.position.to_string().as_str()), ("two", "2 of 2"));
    assert!(matches!(PoolFixture::new(&[" "]).pool.select("m"), KeySelection::Keyless));
}

#[test]
fn a08_cool_down_depends_on_the_cause() {
    for (fault, expected, is_of_model) in [
        (KeyFault::RateLimited, Duration::from_millis(500), true),
        (KeyFault::QuotaExhausted, seconds(30 * 60), false),
        (KeyFault::Rejected, seconds(60 * 60), false),
        (KeyFault::Forbidden, seconds(10 * 60), true),
    ] {
        let fixture = PoolFixture::new(&["one", "two"]);
        fixture.fail("m", fault, None);
        fixture.fail("m", fault, None);
        assert_eq!(fixture.wait("m"), Some(expected), "{fault:?}");
        assert_eq!(fixture.free_key("other").is_some(), is_of_model, "{fault:?}");
        fixture.advance(expected);
        assert!(fixture.free_key("m").is_some(), "{fault:?}");
    }
}

#[test]
fn a08_the_only_key_cools_down_after_rate_limits_alone() {
    for fault in [KeyFault::QuotaExhausted, KeyFault::Rejected, KeyFault::Forbidden] {
        let fixture = PoolFixture::new(&["one"]);
        fixture.fail("m", fault, None);
        assert!(fixture.free_key("m").is_some(), "a user who mends it need not wait: {fault:?}");
    }
    let fixture = PoolFixture::new(&["one"]);
    fixture.fail("m", KeyFault::RateLimited, None);
    assert!(fixture.free_key("m").is_none());
}

#[test]
fn a08_rate_limit_lasts_as_long_as_requested_up_to_a_day() {
    let fixture = PoolFixture::new(&["one"]);
    fixture.fail("m", KeyFault::RateLimited, Some(seconds(90)));
    assert_eq!(fixture.wait("m"), Some(seconds(90)));
    fixture.advance(seconds(90));
    fixture.fail("m", KeyFault::RateLimited, Some(Duration::MAX));
    assert_eq!(fixture.wait("m"), Some(seconds(24 * 60 * 60)));
}

#[test]
fn a08_cool_down_without_a_requested_delay_doubles_until_a_success() {
    let fixture = PoolFixture::new(&["one"]);
    let mut waits = Vec::new();
    for _ in 0..9 {
        fixture.fail("m", KeyFault::RateLimited, None);
        let wait = fixture.wait("m").unwrap();
        waits.push(wait.as_millis());
        fixture.advance(wait);
    }
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 60_000, 60_000]);
    fixture.pool.record_success(&fixture.free_key("m").unwrap(), "m");
    fixture.fail("m", KeyFault::RateLimited, None);
    assert_eq!(fixture.wait("m"), Some(Duration::from_millis(500)));
}

#[test]
fn a08_requests_that_fail_together_count_as_one_failure() {
    let fixture = PoolFixture::new(&["one"]);
    let key = fixture.free_key("m").unwrap();
    for _ in 0..50 {
        fixture.pool.record_fault(&key, "m", KeyFault::RateLimited, None, 1.0);
    }
    fixture.pool.record_success(&key, "m");
    assert_eq!(fixture.wait("m"), Some(Duration::from_millis(500)), "and a late success does not end it");
}

#[test]
fn a08_earliest_key_and_all_causes_are_reported() {
    let fixture = PoolFixture::new(&["one", "two", "three"]);
    fixture.fail("m", KeyFault::Rejected, None);
    fixture.fail("m", KeyFault::RateLimited, Some(seconds(7)));
    fixture.fail("m", KeyFault::RateLimited, Some(seconds(9)));
    let KeySelection::Cooling(cooldown) = fixture.pool.select("m") else { panic!("every key cools down") };
    assert_eq!((cooldown.key.position.number, cooldown.until), (2, Timestamp::from_millis(7000)));
    assert_eq!(cooldown.causes, "2 rate limit, 1 rejected");
}

#[test]
fn a08_number_of_cool_downs_is_bounded() {
    let fixture = PoolFixture::new(&["one"]);
    for number in 0..MAX_COOLDOWNS + 10 {
        let requested = Some(seconds(100 + u64::try_from(number).unwrap()));
        fixture.fail(&format!("model-{number}"), KeyFault::RateLimited, requested);
    }
    assert_eq!(fixture.pool.lock().len(), MAX_COOLDOWNS);
    assert!(fixture.free_key("model-0").is_some(), "the one that ends first is dropped");
    assert!(fixture.free_key("model-500").is_none());
}
