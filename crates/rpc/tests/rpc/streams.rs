//! Streams under credit.

use capstan_rpc::{RpcCallError, StreamViolation};
use serde_json::{Value, json};

use crate::support::{connect, connect_raw, options};

#[tokio::test]
async fn k06_a_stream_that_is_not_consumed_does_not_hold_up_another() {
    let (left, right) = connect(1024, options(), options());
    let _unread = right.peer.open_incoming("slow", 4).unwrap();
    let mut read = right.peer.open_incoming("fast", 4).unwrap();
    let slow = left.peer.open_outgoing("slow", 4).unwrap();
    let fast = left.peer.open_outgoing("fast", 4).unwrap();
    let blocked = tokio::spawn(async move {
        for number in 0..5 {
            slow.send("stream.item", &json!({"stream": "slow", "item": number})).await.unwrap();
        }
    });
    let sending = async {
        for number in 0..200 {
            fast.send("stream.item", &json!({"stream": "fast", "item": number})).await.unwrap();
        }
    };
    let receiving = async {
        for number in 0..200 {
            let item = read.next_item().await.unwrap().unwrap();
            assert_eq!(item.get(), number.to_string());
        }
    };
    tokio::join!(sending, receiving);
    let echo: Value = left.peer.request("echo", &json!({"a": 1}), None).await.unwrap();
    assert_eq!(echo, json!({"a": 1}), "requests are not held up either");
    assert!(!blocked.is_finished(), "the fifth item has no credit");
    left.peer.close("done");
    assert!(blocked.await.is_err(), "a sender without credit learns of the end");
}

#[tokio::test]
async fn k06_items_larger_than_the_credit_pass_one_at_a_time() {
    let (left, right) = connect(64 * 1024, options(), options());
    let mut read = right.peer.open_incoming("s", 1).unwrap();
    let sender = left.peer.open_outgoing("s", 1).unwrap();
    let text = "x".repeat(1024 * 1024);
    let sending = async {
        for _ in 0..4 {
            sender.send("stream.item", &json!({"stream": "s", "item": text})).await.unwrap();
        }
    };
    let receiving = async {
        for _ in 0..4 {
            assert_eq!(read.next_item().await.unwrap().unwrap().get().len(), text.len() + 2);
        }
    };
    tokio::join!(sending, receiving);
}

#[tokio::test]
async fn k06_an_item_without_credit_ends_its_stream_and_nothing_else() {
    let (side, mut raw) = connect_raw(options());
    let mut violated = side.peer.open_incoming("bad", 2).unwrap();
    let mut good = side.peer.open_incoming("good", 2).unwrap();
    for (stream, number) in [("bad", 1), ("bad", 2), ("bad", 3), ("bad", 4), ("good", 1), ("none", 1)] {
        let params = json!({"stream": stream, "item": number});
        raw.write_line(&json!({"jsonrpc": "2.0", "method": "stream.item", "params": params})).await;
    }
    raw.assert_alive().await;
    assert_eq!(good.next_item().await.unwrap().unwrap().get(), "1");
    for number in ["1", "2"] {
        assert_eq!(violated.next_item().await.unwrap().unwrap().get(), number);
    }
    assert!(matches!(violated.next_item().await, Some(Err(StreamViolation))));
    assert!(violated.next_item().await.is_none());
    assert_eq!(side.peer.counters().stray_items, 2, "one after the violation, one of an unknown stream");
}

#[tokio::test]
async fn k06_items_after_the_end_of_a_stream_are_dropped_and_counted() {
    let (side, mut raw) = connect_raw(options());
    let mut stream = side.peer.open_incoming("s", 8).unwrap();
    assert!(side.peer.open_incoming("s", 8).is_none(), "the name is in use");
    let item = json!({"jsonrpc": "2.0", "method": "item", "params": {"stream": "s", "item": 1}});
    raw.write_line(&item).await;
    raw.assert_alive().await;
    stream.end();
    raw.write_line(&item).await;
    raw.write_line(&json!({"jsonrpc": "2.0", "method": "stream.credit", "params": {"stream": "x", "credit": 1}})).await;
    raw.assert_alive().await;
    assert!(stream.next_item().await.unwrap().is_ok());
    assert!(stream.next_item().await.is_none());
    assert_eq!(side.peer.counters().stray_items, 2);
    assert!(side.peer.open_incoming("s", 8).is_some(), "the name is free");
}

#[tokio::test]
async fn k06_credit_is_given_back_as_items_are_consumed() {
    let (side, mut raw) = connect_raw(options());
    let mut stream = side.peer.open_incoming("s", 4).unwrap();
    for number in 0..4 {
        let params = json!({"stream": "s", "item": number});
        raw.write_line(&json!({"jsonrpc": "2.0", "method": "stream.item", "params": params})).await;
    }
    for _ in 0..2 {
        stream.next_item().await.unwrap().unwrap();
    }
    let credit = raw.read_line().await;
    assert_eq!((&credit["method"], &credit["params"]), (&json!("stream.credit"), &json!({"stream": "s", "credit": 1})));
}

#[tokio::test]
async fn k06_a_sender_whose_connection_ends_learns_of_it() {
    let (side, raw) = connect_raw(options());
    let stream = side.peer.open_outgoing("s", 1).unwrap();
    stream.send("stream.item", &json!({"stream": "s", "item": 1})).await.unwrap();
    let item = json!({"stream": "s", "item": 2});
    let waiting = stream.send("stream.item", &item);
    let (ended, ()) = tokio::join!(waiting, async { drop(raw) });
    assert!(matches!(ended, Err(RpcCallError::Closed(_))), "{ended:?}");
}
