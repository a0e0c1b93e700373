//! A peer against bytes that are no messages.

use std::time::Duration;

use capstan_rpc::{RpcCallError, RpcCloseReason, RpcOptions};
use serde_json::{Value, json};

use crate::support::{connect_raw, options, small_limits};

fn echo(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "echo", "params": {"n": id}})
}

#[tokio::test]
async fn k06_garbage_between_frames_is_reported_and_survived() {
    let (side, mut raw) = connect_raw(small_limits(8));
    let deep = format!("{{\"jsonrpc\":\"2.0\",\"method\":\"note\",\"params\":{{\"a\":{}}}}}", "[".repeat(400));
    let long = "y".repeat(100_000);
    let garbage: [&[u8]; 9] = [
        b"Hello from print()",
        b"\xff\xfe\x00binary\x80",
        b"{\"jsonrpc\":\"2.0\",\"method\":",
        b"[]",
        b"null",
        b"{}",
        b"}{",
        deep.as_bytes(),
        long.as_bytes(),
    ];
    for (number, line) in garbage.iter().enumerate() {
        raw.write(line).await;
        raw.write(b"\n").await;
        let id = number as u64;
        raw.write_line(&echo(id)).await;
        assert_eq!(raw.read_line().await, json!({"jsonrpc": "2.0", "id": id, "result": {"n": id}}));
    }
    assert_eq!(side.peer.counters().bad_lines, garbage.len() as u64);
    let anomalies = side.anomalies.lock().unwrap().join("\n");
    assert!(anomalies.contains("nested 402 levels") && anomalies.contains("100000 bytes"), "{anomalies}");
    assert!(!anomalies.contains("Hello"), "text of the other side is not repeated");
}

#[tokio::test]
async fn k06_frames_that_arrive_split_and_glued_are_read() {
    let (_side, mut raw) = connect_raw(options());
    let (one, two, three) = (echo(1).to_string(), echo(2).to_string(), echo(3).to_string());
    raw.write(&one.as_bytes()[..7]).await;
    tokio::task::yield_now().await;
    raw.write(format!("{}\n{two}\r\n\n{}", &one[7..], &three[..20]).as_bytes()).await;
    let mut answered = vec![raw.read_line().await["id"].clone(), raw.read_line().await["id"].clone()];
    answered.sort_by_key(Value::as_u64);
    assert_eq!(answered, [json!(1), json!(2)]);
    raw.write(format!("{}\n", &three[20..]).as_bytes()).await;
    assert_eq!(raw.read_line().await["id"], 3);
}

#[tokio::test]
async fn k06_too_many_bad_lines_end_the_connection() {
    for (max_bad_line_burst, max_bad_lines) in [(5, 1000), (1000, 5)] {
        let (side, mut raw) = connect_raw(RpcOptions { max_bad_line_burst, max_bad_lines, ..options() });
        raw.write(&b"x\n".repeat(5)).await;
        raw.assert_alive().await;
        raw.write(b"x\n").await;
        assert!(matches!(side.peer.closed().await, RpcCloseReason::BadLines(_)));
        side.peer.joined().await;
    }
}

#[tokio::test]
async fn k06_answers_without_a_request_are_dropped_and_counted() {
    let (side, mut raw) = connect_raw(options());
    let peer = side.peer.clone();
    let request = tokio::spawn(async move { peer.request::<Value>("ask", &json!({}), None).await });
    let id = raw.read_line().await["id"].clone();
    let answers = [
        json!({"jsonrpc": "2.0", "id": 4711, "result": "unknown"}),
        json!({"jsonrpc": "2.0", "id": "4711", "result": "text"}),
        json!({"jsonrpc": "2.0", "id": id, "result": "first"}),
        json!({"jsonrpc": "2.0", "id": id, "result": "second"}),
        json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "third"}}),
    ];
    for answer in answers {
        raw.write_line(&answer).await;
    }
    assert_eq!(request.await.unwrap().unwrap(), "first");
    raw.assert_alive().await;
    assert_eq!(side.peer.counters().stray_answers, 4);
}

#[tokio::test]
async fn k06_a_request_whose_id_is_in_use_is_dropped() {
    let (side, mut raw) = connect_raw(options());
    let hold = json!({"jsonrpc": "2.0", "id": 5, "method": "hold"});
    raw.write_line(&hold).await;
    raw.write_line(&hold).await;
    raw.assert_alive().await;
    assert_eq!(side.peer.counters().bad_lines, 1);
    side.release.add_permits(1);
    assert_eq!(raw.read_line().await, json!({"jsonrpc": "2.0", "id": 5, "result": "held"}));
    raw.assert_alive().await;
}

#[tokio::test]
async fn k06_a_cancelled_request_is_answered_once() {
    let (side, mut raw) = connect_raw(options());
    raw.write_line(&json!({"jsonrpc": "2.0", "id": "h", "method": "hold"})).await;
    side.holding.acquire().await.unwrap().forget();
    for id in [json!("h"), json!("h"), json!("other"), json!({"odd": 1})] {
        raw.write_line(&json!({"jsonrpc": "2.0", "method": "request.cancel", "params": {"id": id}})).await;
    }
    let answer = raw.read_line().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!("h"), &json!(-32001)));
    side.dropped.notified().await;
    raw.assert_alive().await;
}

#[tokio::test]
async fn k06_an_invalid_request_with_an_id_is_answered() {
    let (_side, mut raw) = connect_raw(options());
    raw.write_line(&json!({"jsonrpc": "2.0", "id": 1, "method": "echo", "params": [1]})).await;
    let answer = raw.read_line().await;
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(1), &json!(-32600)));
}

#[tokio::test]
async fn k06_a_peer_that_never_reads_is_given_up_and_blocks_no_one_else() {
    let patient = RpcOptions { stall_timeout: Duration::from_millis(20), queue_bytes: 4096, ..options() };
    let (side, raw) = connect_raw(patient);
    let text = "x".repeat(3000);
    // The pipe and the queue fill up; the sender waits, and learns of the end.
    let ended = loop {
        match side.peer.notify("note", &json!({"text": text})).await {
            Ok(()) => {}
            Err(error) => break error,
        }
    };
    assert_eq!(ended, RpcCallError::Closed(RpcCloseReason::Stalled));
    side.peer.joined().await;
    drop(raw);
}

#[tokio::test]
async fn k06_a_peer_that_asks_without_end_and_never_reads_is_given_up() {
    let (side, mut raw) = connect_raw(options());
    let flood = async {
        // Large answers, so that their size is exceeded long before their number.
        let params = json!({"text": "x".repeat(100_000)});
        for id in 0..10_000 {
            let line = format!("{}\n", json!({"jsonrpc": "2.0", "id": id, "method": "echo", "params": params}));
            // Fails once the other side has given up.
            if tokio::io::AsyncWriteExt::write_all(&mut raw.output, line.as_bytes()).await.is_err() {
                return;
            }
            if side.peer.is_closed() {
                return;
            }
        }
        panic!("a gigabyte of answers was queued");
    };
    tokio::join!(flood, async {
        let reason = side.peer.closed().await;
        assert_eq!(reason, RpcCloseReason::Stalled);
    });
    side.peer.joined().await;
}
