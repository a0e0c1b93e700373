//! Service of the tests, and the other side as plain lines.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use capstan_protocol::plugin_protocol::PluginConnectionLimits;
use capstan_rpc::{
    IncomingNotification, IncomingRequest, RequestFuture, RpcCallError, RpcError, RpcOptions, RpcPeer, RpcService,
};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream, Lines, ReadHalf, WriteHalf};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Service with a few methods: `echo`, `fail`, `panic`, `hold` (until released or cancelled) and `nest`.
pub(crate) struct TestService {
    pub(crate) peer: RpcPeer,
    /// Lets that many `hold` requests end.
    pub(crate) release: Arc<Semaphore>,
    /// Permit for each `hold` that has begun.
    pub(crate) holding: Arc<Semaphore>,
    /// Fires when a `hold` is dropped before its end.
    pub(crate) dropped: Arc<Notify>,
    pub(crate) notifications: mpsc::UnboundedSender<(String, Value)>,
    pub(crate) anomalies: Arc<Mutex<Vec<String>>>,
}

struct DropSignal(Option<Arc<Notify>>);

impl DropSignal {
    fn defuse(mut self) {
        self.0 = None;
    }
}

impl Drop for DropSignal {
    fn drop(&mut self) {
        if let Some(dropped) = self.0.take() {
            dropped.notify_one();
        }
    }
}

impl RpcService for TestService {
    fn serve(&self, request: IncomingRequest) -> RequestFuture {
        match request.method.as_str() {
            "echo" => Box::pin(async move { Ok(request.params) }),
            "fail" => Box::pin(async { Err(RpcError::new(-32000, "no").with_data(&json!({"code": "x"}))) }),
            "panic" => panic!("a test panics"),
            "panic.later" => Box::pin(async { panic!("a test panics") }),
            "hold" | "nest.hold" => {
                let (release, holding) = (Arc::clone(&self.release), Arc::clone(&self.holding));
                let signal = DropSignal(Some(Arc::clone(&self.dropped)));
                Box::pin(async move {
                    holding.add_permits(1);
                    release.acquire().await.unwrap().forget();
                    signal.defuse();
                    Ok(to_raw_value("held").unwrap())
                })
            }
            "call.back" => {
                let peer = self.peer.clone();
                Box::pin(async move {
                    let echo: Value = peer.request("echo", &json!({"back": true}), None).await.unwrap();
                    Ok(to_raw_value(&echo).unwrap())
                })
            }
            "big" => Box::pin(async { Ok(to_raw_value(&"x".repeat(2000)).unwrap()) }),
            method => {
                let error = RpcError::method_not_found(method);
                Box::pin(async { Err(error) })
            }
        }
    }

    fn notify(&self, notification: IncomingNotification) {
        if notification.method == "item" {
            let item: ItemParams = notification.parse().unwrap();
            self.peer.deliver(&item.stream, item.item, notification.line_bytes);
            return;
        }
        let params = notification.parse().unwrap();
        // The test may have ended.
        let _ended = self.notifications.send((notification.method, params));
    }

    fn may_nest(&self, request: &IncomingRequest) -> bool {
        request.method.starts_with("nest.")
    }

    fn report(&self, anomaly: &str) {
        self.anomalies.lock().unwrap().push(anomaly.to_owned());
    }
}

#[derive(serde::Deserialize)]
struct ItemParams {
    stream: String,
    item: Box<RawValue>,
}

/// Side of a connection with its service.
pub(crate) struct TestSide {
    pub(crate) peer: RpcPeer,
    pub(crate) release: Arc<Semaphore>,
    pub(crate) holding: Arc<Semaphore>,
    pub(crate) dropped: Arc<Notify>,
    pub(crate) notifications: mpsc::UnboundedReceiver<(String, Value)>,
    pub(crate) anomalies: Arc<Mutex<Vec<String>>>,
}

impl TestSide {
    /// Sends a request without a deadline.
    pub(crate) async fn call(&self, method: &'static str, params: Value) -> Result<Value, RpcCallError> {
        self.peer.request(method, &params, None).await
    }
}

pub(crate) fn options() -> RpcOptions {
    RpcOptions { stall_timeout: Duration::from_hours(1), ..RpcOptions::default() }
}

pub(crate) fn small_limits(max_concurrent_requests: usize) -> RpcOptions {
    let limits = PluginConnectionLimits { max_frame_bytes: 1000, max_frame_depth: 20, max_concurrent_requests };
    RpcOptions { limits, ..options() }
}

pub(crate) fn start_side(pipe: DuplexStream, options: RpcOptions) -> TestSide {
    let (input, output) = tokio::io::split(pipe);
    let (sender, notifications) = mpsc::unbounded_channel();
    let (release, holding, dropped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)), Arc::default());
    let anomalies = Arc::default();
    let peer = RpcPeer::start(input, output, options, |peer| {
        Arc::new(TestService {
            peer: peer.clone(),
            release: Arc::clone(&release),
            holding: Arc::clone(&holding),
            dropped: Arc::clone(&dropped),
            notifications: sender,
            anomalies: Arc::clone(&anomalies),
        })
    });
    TestSide { peer, release, holding, dropped, notifications, anomalies }
}

/// Two sides of one connection, over pipes that hold `pipe_bytes`.
pub(crate) fn connect(pipe_bytes: usize, left: RpcOptions, right: RpcOptions) -> (TestSide, TestSide) {
    let (one, other) = tokio::io::duplex(pipe_bytes);
    (start_side(one, left), start_side(other, right))
}

/// The other side as plain lines.
pub(crate) struct RawSide {
    pub(crate) input: Lines<BufReader<ReadHalf<DuplexStream>>>,
    pub(crate) output: WriteHalf<DuplexStream>,
}

impl RawSide {
    pub(crate) async fn write(&mut self, bytes: &[u8]) {
        self.output.write_all(bytes).await.unwrap();
    }

    pub(crate) async fn write_line(&mut self, message: &Value) {
        self.write(format!("{message}\n").as_bytes()).await;
    }

    pub(crate) async fn read_line(&mut self) -> Value {
        let line = self.input.next_line().await.unwrap().expect("the connection goes on");
        serde_json::from_str(&line).unwrap()
    }

    /// Sends `echo` and reads its answer: whatever came before was survived.
    pub(crate) async fn assert_alive(&mut self) {
        self.write_line(&json!({"jsonrpc": "2.0", "id": 999, "method": "echo", "params": {"alive": 1}})).await;
        loop {
            let answer = self.read_line().await;
            if answer["id"] == 999 {
                assert_eq!(answer["result"], json!({"alive": 1}));
                return;
            }
        }
    }
}

/// A side whose other side is plain lines.
pub(crate) fn connect_raw(options: RpcOptions) -> (TestSide, RawSide) {
    let (one, other) = tokio::io::duplex(4096);
    let (input, output) = tokio::io::split(other);
    (start_side(one, options), RawSide { input: BufReader::new(input).lines(), output })
}
