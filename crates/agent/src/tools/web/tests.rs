use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use capstan_hooks::SecretMasker;
use reqwest::Url;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::fetch::{FetchedPage, MAX_CONCURRENT_FETCHES, NameResolver, PageFetcher, SystemResolver};
use super::page_content::PageContent;
use super::{WebOptions, html_text, render_page};

type ServedPages = &'static [(&'static str, &'static str)];

/// Local web server that answers each path with a fixed response and records the requests.
struct PageServer {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl PageServer {
    async fn start(pages: ServedPages) -> Self {
        Self::start_at("127.0.0.1:0", pages).await
    }

    async fn start_at(address: &str, pages: ServedPages) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let recorded = Arc::clone(&requests);
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = Vec::new();
                while !request.ends_with(b"\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else { break };
                    request.push(byte);
                }
                let request = String::from_utf8_lossy(&request).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                recorded.lock().unwrap().push(request);
                let page =
                    pages.iter().find(|(known, _)| *known == path).map_or("HTTP/1.1 404 Not Found\r\n\r\n", |p| p.1);
                let page = page.replace("PORT", &address.port().to_string());
                // The client may have disconnected.
                let _gone = stream.write_all(page.as_bytes()).await;
            }
        });
        Self { address, requests }
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns a fetcher that allows this server and nothing else.
    fn allowed_fetcher(&self) -> PageFetcher {
        let options = WebOptions { allow_private: vec![self.address.to_string().parse().unwrap()], proxy: None };
        PageFetcher::new(options, Arc::new(SystemResolver))
    }

    fn requests(&self) -> usize {
        self.requests.lock().unwrap().len()
    }
}

/// Returns a fetcher without exceptions.
fn default_fetcher() -> PageFetcher {
    PageFetcher::new(WebOptions::default(), Arc::new(SystemResolver))
}

async fn fetch_error(fetcher: &PageFetcher, url: &str) -> String {
    fetcher.fetch_page(url).await.expect_err(url)
}

async fn fetch_text(fetcher: &PageFetcher, url: &str) -> String {
    match fetcher.fetch_page(url).await.unwrap().content {
        PageContent::Text { text, .. } => text,
        PageContent::Image(content) => panic!("{content:?}"),
    }
}

#[tokio::test]
async fn x06_private_addresses_are_refused_in_every_notation() {
    let server = PageServer::start(&[("/", "HTTP/1.1 200 OK\r\n\r\nsecret")]).await;
    let port = server.address.port();
    let fetcher = default_fetcher();
    for host in [
        "127.0.0.1",
        "localhost",
        "127.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "[::1]",
        "[::ffff:7f00:1]",
        "0.0.0.0",
    ] {
        let reason = fetch_error(&fetcher, &format!("http://{host}:{port}/")).await;
        assert!(reason.contains("private address") || reason.contains("cannot be resolved"), "{host}: {reason}");
    }
    for url in [
        "http://169.254.169.254/latest/meta-data/",
        "http://[fd00:ec2::254]/",
        "http://10.0.0.1/",
        "http://100.100.100.200/",
    ] {
        assert!(fetch_error(&fetcher, url).await.contains("private address"), "{url}");
    }
    assert_eq!(server.requests(), 0, "no request was sent");
}

#[tokio::test]
async fn x06_only_http_without_credentials_is_fetched() {
    let fetcher = default_fetcher();
    for url in ["file:///etc/passwd", "ftp://example.com/", "gopher://example.com/", "data:text/plain,x"] {
        assert!(fetch_error(&fetcher, url).await.contains("not allowed"), "{url}");
    }
    assert!(fetch_error(&fetcher, "http://user:password@example.com/").await.contains("user name or password"));
    assert!(fetch_error(&fetcher, "not a URL").await.contains("invalid URL"));
}

#[tokio::test]
async fn x06_every_redirect_is_checked() {
    let server = PageServer::start(&[
        ("/metadata", "HTTP/1.1 302 Found\r\nlocation: http://169.254.169.254/latest/\r\n\r\n"),
        ("/elsewhere", "HTTP/1.1 301 Moved\r\nlocation: http://127.0.0.1:1/\r\n\r\n"),
        ("/file", "HTTP/1.1 302 Found\r\nlocation: file:///etc/passwd\r\n\r\n"),
        ("/named", "HTTP/1.1 302 Found\r\nlocation: http://a:b@127.0.0.1:PORT/end\r\n\r\n"),
        ("/round", "HTTP/1.1 307 Again\r\nlocation: /round\r\n\r\n"),
        ("/one", "HTTP/1.1 302 Found\r\nlocation: two#part\r\n\r\n"),
        ("/two", "HTTP/1.1 302 Found\r\nlocation: //127.0.0.1:PORT/end\r\n\r\n"),
        ("/end", "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nthere"),
    ])
    .await;
    let fetcher = server.allowed_fetcher();
    assert!(fetch_error(&fetcher, &server.url("/metadata")).await.contains("169.254.169.254"));
    assert!(fetch_error(&fetcher, &server.url("/elsewhere")).await.contains("private address"));
    assert!(fetch_error(&fetcher, &server.url("/file")).await.contains("not allowed"));
    assert!(fetch_error(&fetcher, &server.url("/named")).await.contains("user name or password"));
    assert!(fetch_error(&fetcher, &server.url("/round")).await.contains("more than 5 times"));
    assert_eq!(fetch_text(&fetcher, &server.url("/one")).await, "there");
}

/// Resolver that returns the first address once and the second from then on.
struct RebindingResolver(AtomicUsize, [SocketAddr; 2]);

#[async_trait]
impl NameResolver for RebindingResolver {
    async fn lookup(&self, _: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        Ok(vec![self.1[self.0.fetch_add(1, Ordering::SeqCst).min(1)]])
    }
}

/// Resolver that returns fixed addresses, or an error if there are none.
struct FixedResolver(Vec<SocketAddr>);

#[async_trait]
impl NameResolver for FixedResolver {
    async fn lookup(&self, host: &str, _: u16) -> std::io::Result<Vec<SocketAddr>> {
        if self.0.is_empty() { Err(std::io::Error::new(ErrorKind::NotFound, host)) } else { Ok(self.0.clone()) }
    }
}

#[tokio::test]
async fn x06_name_is_resolved_once_and_only_that_address_is_used() {
    let secret = PageServer::start(&[("/", "HTTP/1.1 200 OK\r\n\r\nsecret")]).await;
    let port = secret.address.port();
    let harmless =
        PageServer::start_at(&format!("127.0.0.2:{port}"), &[("/", "HTTP/1.1 200 OK\r\n\r\nharmless")]).await;
    let resolver = Arc::new(RebindingResolver(AtomicUsize::new(0), [harmless.address, secret.address]));
    let options = WebOptions { allow_private: vec!["127.0.0.2".parse().unwrap()], proxy: None };
    let fetcher = PageFetcher::new(options, Arc::clone(&resolver) as Arc<dyn NameResolver>);
    let url = format!("http://rebind.example:{port}/");
    assert_eq!(fetch_text(&fetcher, &url).await, "harmless");
    assert_eq!(resolver.0.load(Ordering::SeqCst), 1);
    assert!(fetch_error(&fetcher, &url).await.contains("private address"), "the next fetch resolves it again");
    assert_eq!(secret.requests(), 0);
}

/// Proxy that tunnels every request to one server and records the requests.
async fn start_proxy(server: SocketAddr) -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, requests) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let recorded = Arc::clone(&requests);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            recorded.lock().unwrap().push(String::from_utf8(request).unwrap());
            stream.write_all(b"HTTP/1.1 200 Connection established\r\nvia: me\r\n\r\n").await.unwrap();
            let mut server = TcpStream::connect(server).await.unwrap();
            // The client may have disconnected.
            let _ended = tokio::io::copy_bidirectional(&mut stream, &mut server).await;
        }
    });
    (format!("http://me:pass%20word@{address}"), requests)
}

#[tokio::test]
async fn x06_proxy_connects_to_the_checked_address() {
    let server = PageServer::start(&[("/page", "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nthere")]).await;
    let (proxy, requests) = start_proxy(server.address).await;
    let options = WebOptions { proxy: Some(proxy), ..WebOptions::default() };
    let public: SocketAddr = "93.184.215.14:8080".parse().unwrap();
    let resolver = Arc::new(RebindingResolver(AtomicUsize::new(0), [public, "10.0.0.1:8080".parse().unwrap()]));
    let fetcher = PageFetcher::new(options, Arc::clone(&resolver) as Arc<dyn NameResolver>);
    assert_eq!(fetch_text(&fetcher, "http://rebind.example:8080/page").await, "there");
    let connects = requests.lock().unwrap().clone();
    assert!(connects[0].starts_with("CONNECT 93.184.215.14:8080 HTTP/1.1\r\n"), "{connects:?}");
    assert!(connects[0].contains("\r\nProxy-Authorization: Basic bWU6cGFzcyB3b3Jk\r\n"), "{connects:?}");
    let request = server.requests.lock().unwrap()[0].to_lowercase();
    assert!(request.starts_with("get /page ") && request.contains("host: rebind.example:8080"), "{request}");
    let refused = fetch_error(&fetcher, "http://rebind.example:8080/page").await;
    assert!(refused.contains("private address") && !refused.contains("10.0.0.1"), "now it is private: {refused}");
    for private in ["http://127.0.0.1/", "http://169.254.169.254/", "http://[::1]/"] {
        assert!(fetch_error(&fetcher, private).await.contains("private address"), "{private}");
    }
    assert_eq!(requests.lock().unwrap().len(), 1, "no other request reached the proxy");
}

#[tokio::test]
async fn x06_tls_inside_the_tunnel_uses_the_name() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (proxy, requests) = start_proxy(listener.local_addr().unwrap()).await;
    let hello = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut hello = vec![0; 64 * 1024];
        let length = stream.read(&mut hello).await.unwrap();
        hello[..length].to_vec()
    });
    let resolver = Arc::new(FixedResolver(vec!["93.184.215.14:443".parse().unwrap()]));
    let fetcher = PageFetcher::new(WebOptions { proxy: Some(proxy), ..WebOptions::default() }, resolver);
    fetch_error(&fetcher, "https://name.example/").await;
    let hello = hello.await.unwrap();
    assert!(hello.windows(12).any(|part| part == b"name.example"), "the TLS handshake carries the name");
    assert!(requests.lock().unwrap()[0].starts_with("CONNECT 93.184.215.14:443 "));
}

#[tokio::test]
async fn x06_name_known_only_to_the_proxy_needs_the_users_permission() {
    let server = PageServer::start(&[("/", "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\ninside")]).await;
    let (proxy, requests) = start_proxy(server.address).await;
    let allow_private = vec!["wiki.internal:80".parse().unwrap()];
    let fetcher =
        PageFetcher::new(WebOptions { allow_private, proxy: Some(proxy) }, Arc::new(FixedResolver(Vec::new())));
    assert!(fetch_error(&fetcher, "http://metadata.internal/").await.contains("web_allow_private"));
    assert!(fetch_error(&fetcher, "http://wiki.internal:81/").await.contains("web_allow_private"));
    assert_eq!(requests.lock().unwrap().len(), 0, "no request reached the proxy");
    assert_eq!(fetch_text(&fetcher, "http://wiki.internal/").await, "inside");
    assert!(requests.lock().unwrap()[0].starts_with("CONNECT wiki.internal:80 "));
}

#[tokio::test]
async fn x06_refusal_by_the_proxy_is_reported() {
    let refusing = PageServer::start(&[("93.184.215.14:80", "HTTP/1.1 403 Not here\r\n\r\n")]).await;
    let options = WebOptions { proxy: Some(format!("http://{}", refusing.address)), ..WebOptions::default() };
    let fetcher = PageFetcher::new(options, Arc::new(SystemResolver));
    let reason = fetch_error(&fetcher, "http://93.184.215.14/").await;
    assert!(reason.contains("the proxy: it refused a tunnel to 93.184.215.14:80: HTTP/1.1 403 Not here"), "{reason}");
}

#[tokio::test]
async fn x06_one_private_address_among_others_is_refused() {
    let addresses = ["93.184.215.14:80", "10.0.0.1:80"].map(|address| address.parse().unwrap());
    let fetcher = PageFetcher::new(WebOptions::default(), Arc::new(FixedResolver(addresses.to_vec())));
    let reason = fetch_error(&fetcher, "http://mixed.example/").await;
    assert!(reason.contains("mixed.example leads to a private address") && !reason.contains("10.0.0.1"), "{reason}");
    let unknown = PageFetcher::new(WebOptions::default(), Arc::new(FixedResolver(Vec::new())));
    assert!(fetch_error(&unknown, "http://unknown.example/").await.contains("cannot be resolved"));
}

#[tokio::test]
async fn a04_page_is_returned_as_text_and_binary_data_is_refused() {
    let server = PageServer::start(&[
        (
            "/page",
            "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\n\r\n<title>T</title><p>Hello <b>you</b>",
        ),
        ("/json", "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n\r\n{\"a\": \"<p>\"}"),
        ("/zip", "HTTP/1.1 200 OK\r\ncontent-type: application/zip\r\n\r\nPK"),
        ("/sad", "HTTP/1.1 500 Sad\r\ncontent-type: text/plain\r\n\r\nno luck"),
    ])
    .await;
    let fetcher = server.allowed_fetcher();
    assert_eq!(fetch_text(&fetcher, &server.url("/page")).await, "T\n\nHello you");
    assert_eq!(fetch_text(&fetcher, &server.url("/json")).await, "{\"a\": \"<p>\"}");
    assert!(fetch_error(&fetcher, &server.url("/zip")).await.contains("application/zip"));
    let failed = render_page(fetcher.fetch_page(&server.url("/sad")).await.unwrap(), 100, &SecretMasker::default());
    assert!(failed.is_error);
    assert_eq!(
        failed.text(),
        format!("the server answered 500 Internal Server Error\n{}\n\nno luck", server.url("/sad"))
    );
    let request = server.requests.lock().unwrap()[0].to_lowercase();
    assert!(
        request.starts_with("get /page ") && !request.contains("cookie") && !request.contains("referer"),
        "{request}"
    );
}

#[tokio::test]
async fn a04_reading_of_a_page_is_bounded() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let server = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\n").await.unwrap();
        // The response never ends.
        let more = vec![b'x'; 65536];
        while stream.write_all(&more).await.is_ok() {}
    });
    let options = WebOptions { allow_private: vec![address.to_string().parse().unwrap()], proxy: None };
    let fetcher = PageFetcher::new(options, Arc::new(SystemResolver));
    let page = fetcher.fetch_page(&format!("http://{address}/")).await.unwrap();
    server.await.unwrap();
    let shown = render_page(page, 1000, &SecretMasker::default()).text();
    assert!(shown.len() < 1200 && shown.ends_with("characters left out; raise max_chars for more]"), "{}", shown.len());
}

#[test]
fn x06_page_is_never_cut_through_a_secret() {
    const PAGE_SECRET: &str = "sk-SECRETOPENAI-1234567890abcdef";
    let secrets = SecretMasker::new([PAGE_SECRET.to_owned()]);
    let page = |text: String, is_truncated| FetchedPage {
        url: Url::parse("https://example.com/").unwrap(),
        content: PageContent::Text { text, is_truncated },
        problem: None,
    };
    for chars in 101..132 {
        let text = format!("{}{PAGE_SECRET} and more", "é".repeat(100));
        let shown = render_page(page(text, false), chars, &secrets).text();
        assert!(
            shown.ends_with(&format!("é{PAGE_SECRET}\n[9 characters left out; raise max_chars for more]")),
            "{shown}"
        );
    }
    let shown = render_page(page(format!("x {}", &PAGE_SECRET[..20]), true), 1000, &secrets).text();
    assert!(shown.ends_with("x [masked]\n[the page is longer than the part that was read]"), "{shown}");
}

/// Converts a page whose text is shorter than the maximum length.
fn to_markdown(base: &Url, html: &str) -> String {
    let markdown = html_text::html_to_markdown(base, html, 1 << 20);
    assert!(!markdown.is_truncated);
    markdown.text
}

#[test]
fn a04_html_becomes_text_with_structure_and_links() {
    let base = Url::parse("https://example.com/docs/").unwrap();
    let html = "<!DOCTYPE html><html><head><title>A &amp; B</title><style>p{}</style>\
        <script>if (a < b) document.write('</p>')</script></head><body><!-- <p>hidden</p> -->\
        <h2>Head   <i>line</i></h2><p>One\n two<br>three <a href='../x?a=1&amp;b=2'>a link</a>, \
        <a href='#top'>top</a> <a href='javascript:alert(1)'>click</a>.</p>\
        <ul><li>first<li>second<ol><li>inner</li></ol></li></ul>\
        <pre>let x =\n    &lt;1&gt;;</pre><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>\
        <img src=x alt='A cat'><noscript>no</noscript> 1 < 2</body></html>";
    let text = to_markdown(&base, html);
    assert_eq!(
        text,
        "A & B\n\n## Head line\n\nOne two\nthree [a link](https://example.com/x?a=1&b=2), top click.\n\n\
         - first\n- second\n  1. inner\n\n```\nlet x =\n    <1>;\n```\n\nk | v |\n1 | 2 |\n\n[image: A cat] 1 < 2"
    );
}

#[test]
fn a04_malformed_and_deeply_nested_pages_are_converted() {
    let base = Url::parse("https://example.com/").unwrap();
    for html in [
        "<",
        "</",
        "<a",
        "<a href=\"",
        "<a href",
        "<!--",
        "<script>",
        "<p =>",
        "&#",
        "<é>",
        "</pre></ul></a>",
        "<title>",
    ] {
        to_markdown(&base, html);
    }
    let links = format!("{}text{}", "<a href=x>".repeat(100_000), "</a>".repeat(100_000));
    assert_eq!(to_markdown(&base, &links), "[text](https://example.com/x)");
    let blank = format!("<pre>{}</pre>{}", "\n".repeat(100_000), "<p>".repeat(100_000));
    assert!(to_markdown(&base, &blank).ends_with("```"));
    let deep = "<ul><li><a href=x>".repeat(20_000);
    assert!(to_markdown(&base, &deep).contains('-'));
    assert_eq!(to_markdown(&base, &"<div>".repeat(100_000)), "");
    let quotes = format!("{}deep{}", "<blockquote>".repeat(20_000), "</blockquote>".repeat(20_000));
    assert_eq!(to_markdown(&base, &quotes), format!("{}deep", "> ".repeat(10)));
    let attributes = format!("<p {}>text", "a=1 b ".repeat(20_000));
    assert_eq!(to_markdown(&base, &attributes), "text");
}

/// Fragments of HTML with the text of each.
const HTML_RESULTS: &[(&str, &str)] = &[
    ("&aacute; &alpha; &copy 2024 &notanentity; &amp;lt; AT&T", "á α © 2024 ¬anentity; &lt; AT&T"),
    ("&#128; &#x41; &#0; &#xffffff; &#x; &", "€ A � � &#x; &"),
    ("a&nbsp;b&shy;c&zwj;d", "a bc\u{200d}d"),
    ("<a href='?a=1&copy=2&amp;b=3'>x</a>", "[x](https://example.com/?a=1&copy=2&b=3)"),
    ("<img alt=\"a &gt; b\">", "[image: a > b]"),
    ("<ol start=3><li>three<li>four</ol>", "3. three\n4. four"),
    ("<ol start=x><li>one</ol><ol start=-1><li>minus one<li>zero</ol>", "1. one\n\n-1. minus one\n0. zero"),
    ("<ul><li><p>first</p></li><li>second<ul><li>inner</ul></ul>", "- first\n\n- second\n  - inner"),
    (
        "<p>before<blockquote><p>one</p><p>two<br>three</p></blockquote>after",
        "before\n\n> one\n>\n> two\n> three\n\nafter",
    ),
    ("<blockquote>outer<blockquote>inner</blockquote></blockquote>", "> outer\n>\n> > inner"),
    ("<blockquote><ul><li>a<li>b</ul><pre>x\ny</pre></blockquote>", "> - a\n> - b\n>\n> ```\n> x\n> y\n> ```"),
    ("<P TITLE='a>b'>Upper<BR/>case</P>", "Upper\ncase"),
    ("a<!-- > --> b<!-->c<!--->d<!-- e", "a bcd"),
    ("<![CDATA[x]]>y<?php z ?>w", "yw"),
    ("<script>a</scripty>b</script >c<style>d</style>e", "ce"),
    ("<title>A <b>&amp;</b></title>text", "A <b>&</b>\n\ntext"),
    ("<textarea><p>no</textarea><select><option>no</select>yes", "yes"),
    ("<pre>\nfirst\n  <b>second</b></pre>after", "```\nfirst\n  second\n```\n\nafter"),
    ("<pre><code>x &lt; y</code></pre>", "```\nx < y\n```"),
    ("<h1>One</h1><h3>Three</h3><hr>text", "# One\n\n### Three\n\n---\n\ntext"),
    ("<table><tr><td>a<td>b<tr><td>c</table>", "ab\nc"),
    ("<dl><dt>term<dd>text</dl>", "term\ntext"),
    ("<a href=/x>one <b>two</b></a>, <a href=/y></a><a>none</a>", "[one two](https://example.com/x), none"),
    ("<a href=/x>one<p>two</a>three", "one\n\ntwo(https://example.com/x)three"),
    ("1 < 2 <3 </ > <>x", "1 < 2 <3 <>x"),
    ("x<br", "x"),
    ("<p a=b c='d", ""),
];

#[test]
fn x06_short_markup_cannot_produce_an_unlimited_text() {
    let base = Url::parse("https://example.com/").unwrap();
    let pages = [
        format!("<a href={}>x</a>", "y".repeat(2000)).repeat(1000),
        format!("{}<pre>x{}x", "<blockquote>".repeat(10), "\n".repeat(1_000_000)),
        format!("<ol start=9223372036854775807>{}", "<li>".repeat(100_000)),
        "<h6>x".repeat(100_000),
        "text ".repeat(100_000),
    ];
    for page in pages {
        let markdown = html_text::html_to_markdown(&base, &page, 100_000);
        assert!(markdown.is_truncated, "{}", &page[..20]);
        assert!((99_000..103_000).contains(&markdown.text.len()), "{}: {}", &page[..20], markdown.text.len());
    }
}

#[test]
fn x06_link_targets_of_excessive_length_are_omitted() {
    let far = Url::parse(&format!("https://example.com/{}/", "y".repeat(60_000))).unwrap();
    let links = "<a href=near>near</a> <a href=/root>root</a> <a href=https://example.com/x>far</a>";
    assert_eq!(to_markdown(&far, links), "near root [far](https://example.com/x)");
    let queried = Url::parse(&format!("https://example.com/dir/?{}", "q".repeat(60_000))).unwrap();
    assert_eq!(to_markdown(&queried, "<a href=near>near</a>"), "[near](https://example.com/dir/near)");
    let long = format!("<a href=/{}>long</a>", "z".repeat(3000));
    assert_eq!(to_markdown(&queried, &long), "long");
}

#[test]
fn character_references_are_decoded() {
    let decode = |html| to_markdown(&Url::parse("https://example.com/").unwrap(), html);
    assert_eq!(decode("a &lt; b &amp;&amp; c &#8364; &#x20AC; &euro;"), "a < b && c € € €");
    assert_eq!(decode("x & y &unknown; &#0; &#xffffff; &"), "x & y &unknown; \u{fffd} \u{fffd} &");
}

#[test]
fn a04_results_for_html_fragments_are_pinned() {
    let base = Url::parse("https://example.com/").unwrap();
    for (html, expected) in HTML_RESULTS {
        let actual = to_markdown(&base, html);
        assert_eq!(actual, *expected, "{html}");
    }
}

/// Server that answers a request only when `expected` requests wait for an answer. Records the most that waited.
async fn start_waiting_server(expected: usize) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, most) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
    let (waiting, recorded) = (Arc::new(AtomicUsize::new(0)), Arc::clone(&most));
    let barrier = Arc::new(tokio::sync::Barrier::new(expected));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let (waiting, most, barrier) = (Arc::clone(&waiting), Arc::clone(&recorded), Arc::clone(&barrier));
            tokio::spawn(async move {
                while stream.read_u8().await.unwrap() != b'\r' {}
                most.fetch_max(waiting.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                barrier.wait().await;
                waiting.fetch_sub(1, Ordering::SeqCst);
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
            });
        }
    });
    (address, most)
}

#[tokio::test]
async fn x06_pages_of_all_sessions_are_fetched_in_a_limited_number_of_slots() {
    let (address, most) = start_waiting_server(MAX_CONCURRENT_FETCHES).await;
    let options = WebOptions { allow_private: vec![address.to_string().parse().unwrap()], proxy: None };
    let fetcher = PageFetcher::new(options, Arc::new(SystemResolver));
    let url = format!("http://{address}/");
    let pending = (0..3 * MAX_CONCURRENT_FETCHES).map(|_| fetch_text(&fetcher, &url));
    let texts = futures::future::join_all(pending).await;
    assert!(texts.iter().all(|text| text == "hi"));
    assert_eq!(most.load(Ordering::SeqCst), MAX_CONCURRENT_FETCHES);
}
