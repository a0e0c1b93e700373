//! Requests and notifications between two peers.

use std::time::Duration;

use capstan_protocol::plugin_protocol::PluginConnectionLimits;
use capstan_rpc::{RpcCallError, RpcCloseReason, error_code};
use serde_json::{Value, json};

use crate::support::{connect, options, small_limits};

fn remote_code(result: Result<Value, RpcCallError>) -> i64 {
    match result {
        Err(RpcCallError::Remote(error)) => error.code,
        other => panic!("no error of the other side: {other:?}"),
    }
}

#[tokio::test]
async fn k06_both_sides_send_requests_in_pieces_of_any_size() {
    for pipe_bytes in [1, 3, 64 * 1024] {
        let (left, right) = connect(pipe_bytes, options(), options());
        let text = "tab\t \"quoted\" \u{2028} \u{1f600} \u{0} \\ line\nend \u{fffd}";
        let params = json!({"text": text, "list": [1, 2.5, null, true], "empty": {}});
        for peer in [&left.peer, &right.peer] {
            let echo: Value = peer.request("echo", &params, None).await.unwrap();
            assert_eq!(echo, params, "pipe of {pipe_bytes}");
        }
        let echo: Value = left.peer.request("call.back", &json!({}), None).await.unwrap();
        assert_eq!(echo, json!({"back": true}));
    }
}

#[tokio::test]
async fn k06_requests_are_answered_in_any_order() {
    let (left, right) = connect(1024, options(), options());
    let held = left.call("hold", json!({}));
    let others = async {
        for number in 0..50 {
            let echo: Value = left.peer.request("echo", &json!({"n": number}), None).await.unwrap();
            assert_eq!(echo["n"], number);
        }
        right.release.add_permits(1);
    };
    let (held, ()) = tokio::join!(held, others);
    assert_eq!(held.unwrap(), "held");
}

#[tokio::test]
async fn k06_errors_have_a_code_and_data_and_an_unknown_method_is_named() {
    let (left, _right) = connect(1024, options(), options());
    let failed = left.call("fail", json!({})).await.unwrap_err();
    let RpcCallError::Remote(error) = failed else { panic!("{failed}") };
    assert_eq!((error.code, error.data), (-32000, Some(json!({"code": "x"}))));
    let unknown = left.call("burn", json!({})).await;
    assert_eq!(remote_code(unknown), error_code::METHOD_NOT_FOUND);
    for method in ["panic", "panic.later"] {
        let panicked = left.call(method, json!({})).await;
        assert_eq!(remote_code(panicked), error_code::INTERNAL_ERROR);
    }
    let malformed = left.peer.request::<u64>("echo", &json!({}), None).await;
    assert!(matches!(malformed, Err(RpcCallError::Malformed { .. })), "{malformed:?}");
}

#[tokio::test]
async fn k06_a_request_that_is_given_up_is_cancelled_at_the_other_side() {
    let (left, right) = connect(1024, options(), options());
    let late = left.peer.request::<Value>("hold", &json!({}), Some(Duration::from_millis(10))).await;
    assert_eq!(late, Err(RpcCallError::DeadlineExceeded));
    right.dropped.notified().await;
    let echo: Value = left.peer.request("echo", &json!({"a": 1}), None).await.unwrap();
    assert_eq!(echo, json!({"a": 1}));
    assert_eq!(left.peer.counters().stray_answers, 1, "the answer to the cancelled request");
    assert_eq!(right.peer.served_requests(), 0);
}

#[tokio::test]
async fn k06_requests_over_the_limit_are_refused_and_nesting_ones_do_not_count() {
    let (left, right) = connect(1024, options(), small_limits(2));
    let hold = || left.call("hold", json!({}));
    let checks = async {
        // Both are being served.
        right.holding.acquire_many(2).await.unwrap().forget();
        let refused = left.call("echo", json!({})).await;
        assert_eq!(remote_code(refused), error_code::OVERLOADED);
        let nested = left.call("nest.hold", json!({}));
        let release = async {
            right.holding.acquire().await.unwrap().forget();
            right.release.add_permits(3);
        };
        tokio::join!(nested, release).0.unwrap();
    };
    let (one, two, ()) = tokio::join!(hold(), hold(), checks);
    assert_eq!((one.unwrap(), two.unwrap()), (json!("held"), json!("held")));
    assert_eq!(right.peer.counters().overloads, 1);
}

#[tokio::test]
async fn k06_a_peer_that_knows_the_limits_of_the_other_waits_instead() {
    let (left, right) = connect(1024, options(), small_limits(1));
    left.peer.set_remote_limits(PluginConnectionLimits { max_concurrent_requests: 1, ..small_limits(1).limits });
    let (held, echo, ()) = tokio::join!(left.call("hold", json!({})), left.call("echo", json!({"n": 1})), async {
        right.holding.acquire().await.unwrap().forget();
        right.release.add_permits(1);
    },);
    assert_eq!((held.unwrap(), echo.unwrap()), (json!("held"), json!({"n": 1})));
    assert_eq!(right.peer.counters().overloads, 0);
    let long = left.call("echo", json!({"text": "x".repeat(1000)})).await;
    assert_eq!(long, Err(RpcCallError::TooLarge));
    assert_eq!(right.peer.counters().bad_lines, 0, "it was not sent");
}

#[tokio::test]
async fn k06_an_answer_over_the_limit_is_replaced_by_an_error() {
    let (left, right) = connect(1024, small_limits(8), options());
    right.peer.set_remote_limits(small_limits(8).limits);
    let big = left.call("big", json!({})).await;
    assert_eq!(remote_code(big), error_code::TOO_LARGE);
}

#[tokio::test]
async fn k06_notifications_arrive_in_order_after_the_requests_before_them() {
    let (left, mut right) = connect(16, options(), options());
    for number in 0..100 {
        left.peer.notify("note", &json!({"n": number})).await.unwrap();
        left.peer.notify_now("other", &json!({"n": number}));
    }
    for number in 0..100 {
        for method in ["note", "other"] {
            let (name, params) = right.notifications.recv().await.unwrap();
            assert_eq!((name.as_str(), &params["n"]), (method, &json!(number)));
        }
    }
}

#[tokio::test]
async fn k06_the_end_of_the_connection_ends_every_request_on_both_sides() {
    let (left, right) = connect(1024, options(), options());
    let held = left.call("hold", json!({}));
    let close = async {
        right.holding.acquire().await.unwrap().forget();
        left.peer.close("enough");
    };
    let (held, ()) = tokio::join!(held, close);
    assert_eq!(held, Err(RpcCallError::Closed(RpcCloseReason::Closed("enough".to_owned()))));
    left.peer.joined().await;
    assert_eq!(right.peer.closed().await, RpcCloseReason::InputEnded);
    right.dropped.notified().await;
    right.peer.joined().await;
    let after = right.call("echo", json!({})).await;
    assert_eq!(after, Err(RpcCallError::Closed(RpcCloseReason::InputEnded)));
    assert!(right.peer.notify("note", &json!({})).await.is_err());
}

#[tokio::test]
async fn k06_closing_the_output_lets_out_what_waits() {
    let (left, mut right) = connect(16, options(), options());
    for number in 0..20 {
        left.peer.notify_now("note", &json!({"n": number}));
    }
    left.peer.close_output();
    for number in 0..20 {
        assert_eq!(right.notifications.recv().await.unwrap().1["n"], number);
    }
    assert_eq!(right.peer.closed().await, RpcCloseReason::InputEnded);
}
