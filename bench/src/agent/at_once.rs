//! A model that takes no time of its own: it reads no more of a request than it needs to answer.
//!
//! The scripted server of the tests reads every request as JSON, holds it to the grammar and keeps it. For the two
//! requests of a turn that takes about a millisecond, which is no latency of a host.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// A server of models on a free port, for as long as this program runs.
pub(super) struct AtOnce {
    address: SocketAddr,
}

impl AtOnce {
    pub(super) fn start() -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        std::thread::spawn(move || {
            for connection in listener.incoming().flatten() {
                // Whoever hangs up has had enough.
                std::thread::spawn(move || serve(connection));
            }
        });
        Ok(Self { address })
    }

    pub(super) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }
}

fn serve(connection: TcpStream) -> std::io::Result<()> {
    connection.set_nodelay(true)?;
    let mut requests = BufReader::new(connection.try_clone()?);
    let mut answers = connection;
    let mut body = Vec::new();
    while let Some(length) = body_length(&mut requests)? {
        body.resize(length, 0);
        requests.read_exact(&mut body)?;
        answer(&mut answers, frames(&body))?;
    }
    Ok(())
}

/// How long the body of the next request is; nothing when there is none.
fn body_length(requests: &mut BufReader<TcpStream>) -> std::io::Result<Option<usize>> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if requests.read_line(&mut line)? == 0 {
            return Ok(None);
        }
        if line == "\r\n" {
            return Ok(Some(length));
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or_default();
        }
    }
}

/// What is answered, by the end of what was asked.
fn frames(body: &[u8]) -> [&'static str; 3] {
    const SAYS: &str =
        r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":"hello"},"finish_reason":null}]}"#;
    const LOOKS: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call","type":"function","function":{"name":"fs_read","arguments":"{\"path\":\"notes.txt\"}"}}]},"finish_reason":null}]}"#;
    const RUNS: &str = r#"{"choices":[{"index":0,"delta":{"role":"assistant","content":null,"tool_calls":[{"index":0,"id":"call","type":"function","function":{"name":"bash","arguments":"{\"cmd\":\"true\"}"}}]},"finish_reason":null}]}"#;
    const STOPS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}"#;
    const CALLS: &str = r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15}}"#;
    let newest = newest_message(body);
    let has = |text: &str| newest.windows(text.len()).any(|part| part == text.as_bytes());
    if has(r#""role":"tool""#) || has("hello") {
        [SAYS, STOPS, "[DONE]"]
    } else if has("look") {
        [LOOKS, CALLS, "[DONE]"]
    } else {
        [RUNS, CALLS, "[DONE]"]
    }
}

/// The last message of a request, as the bytes from its role on.
fn newest_message(body: &[u8]) -> &[u8] {
    const ROLE: &[u8] = br#""role":"#;
    let begin = body.windows(ROLE.len()).rposition(|part| part == ROLE).unwrap_or_default();
    &body[begin..]
}

/// Sends each frame when it is written, as a provider does.
fn answer(to: &mut TcpStream, frames: [&str; 3]) -> std::io::Result<()> {
    to.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")?;
    for frame in frames {
        let length = "data: ".len() + frame.len() + "\n\n".len();
        to.write_all(format!("{length:x}\r\ndata: {frame}\n\n\r\n").as_bytes())?;
    }
    to.write_all(b"0\r\n\r\n")
}
