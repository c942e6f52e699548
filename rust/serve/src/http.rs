//! A port that answers `GET` of some pages, and nothing else.
//!
//! It reads one request of a connection, answers it and closes. Whoever sends too much, too slowly or anything else gets an answer that
//! says so, and at most [`CONNECTIONS`] are answered at a time.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// A request may be no longer than this.
const MOST_BYTES: usize = 8 * 1024;
/// A connection that has not sent its request, or taken its answer, after so long is closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are answered at a time.
const CONNECTIONS: usize = 16;
/// The time to breathe after the system had no connection to give.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// What a browser must not do with an answer: run scripts that found their way into it, show it in a frame, guess its type, or keep it.
const GUARDS: &str = "Content-Security-Policy: default-src 'none'; img-src data:; style-src 'unsafe-inline'; frame-ancestors 'none'\r\n\
                      X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n";

/// The type of counters as OpenMetrics text.
pub const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The type of plain text.
pub const TEXT: &str = "text/plain; charset=utf-8";

/// What is at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Its type, as in `Content-Type`.
    pub content_type: &'static str,
    /// Whether whatever it speaks of is as it should be; otherwise the answer is 503.
    pub is_well: bool,
    /// What is sent.
    pub body: String,
}

/// The pages of a port.
pub trait Pages: Send + Sync + 'static {
    /// The paths that there are, as `/metrics`.
    fn paths(&self) -> &'static [&'static str];

    /// What is at one of them.
    fn page<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Page>;

    /// Whether only programs of this machine are answered that name it as their own. A web page elsewhere can have a browser ask under
    /// another name.
    fn is_local(&self) -> bool {
        false
    }
}

/// Answers as long as it lives.
pub struct HttpServer {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl HttpServer {
    /// Listens on an address; requests are answered from this call on.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub async fn listen(address: SocketAddr, pages: Arc<dyn Pages>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, task: tokio::spawn(serve(listener, pages)) })
    }

    /// The address, with the port that the system chose if none was given.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(listener: TcpListener, pages: Arc<dyn Pages>) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let pages = Arc::clone(&pages);
                tokio::spawn(async move {
                    answer(stream, pages.as_ref()).await;
                    drop(turn);
                });
            }
            // As where the process has no more files to open.
            Err(_) => tokio::time::sleep(AFTER_ERROR).await,
        }
    }
}

/// What is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Ok,
    Unavailable,
    Misdirected,
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Timeout,
    TooLarge,
    OtherVersion,
}

impl Status {
    fn line(self) -> &'static str {
        match self {
            Self::Ok => "200 OK",
            Self::Unavailable => "503 Service Unavailable",
            Self::Misdirected => "421 Misdirected Request",
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::OtherVersion => "505 HTTP Version Not Supported",
        }
    }
}

async fn answer(mut stream: TcpStream, pages: &dyn Pages) {
    let mut is_browser = false;
    let asked = match tokio::time::timeout(PATIENCE, read_head(&mut stream)).await {
        Ok(Ok(Some(head))) => {
            is_browser = takes_html(&head);
            path_of(&head, pages)
        }
        Ok(Ok(None)) => Err(Status::TooLarge),
        // Nobody is there any more.
        Ok(Err(_)) => return,
        Err(_) => Err(Status::Timeout),
    };
    let (status, kind, body) = match asked {
        Ok(path) => {
            let Page { content_type, is_well, body } = pages.page(path).await;
            // Browsers save what is of a type that they do not know.
            let kind = if is_browser && content_type == OPEN_METRICS { TEXT } else { content_type };
            (if is_well { Status::Ok } else { Status::Unavailable }, kind, body)
        }
        Err(other) => (other, TEXT, format!("{}: ask for GET {}\n", other.line(), pages.paths().join(", "))),
    };
    let allow = if status == Status::MethodNotAllowed { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\n{GUARDS}Connection: close\r\n\r\n",
        status.line(),
        body.len()
    );
    let sent = async {
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.shutdown().await?;
        // What was sent besides is taken, too: a connection that is closed before that may take the answer with it.
        let mut rest = [0; 1024];
        while stream.read(&mut rest).await? > 0 {}
        Ok::<_, io::Error>(())
    };
    // Whoever went away before the end is no concern of the job.
    let _ = tokio::time::timeout(PATIENCE, sent).await;
}

/// The request up to the empty line; none if it is too long.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    let mut part = [0; 1024];
    loop {
        let read = stream.read(&mut part).await?;
        head.extend_from_slice(part.get(..read).unwrap_or_default());
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
        if head.len() > MOST_BYTES {
            return Ok(None);
        }
        if read == 0 {
            // Cut off, which is answered as what it is.
            return Ok(Some(head));
        }
    }
}

/// The path that a request asks for, or why it gets none. Only its first line and its `Host` say anything.
fn path_of(head: &[u8], pages: &dyn Pages) -> Result<&'static str, Status> {
    let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
    let mut lines = head.split(|byte| *byte == b'\n').map(|line| line.strip_suffix(b"\r"));
    let first = lines.next().flatten().filter(|_| is_whole).and_then(|line| std::str::from_utf8(line).ok());
    let words: Vec<&str> = first.ok_or(Status::BadRequest)?.split(' ').collect();
    let [method, target, version] = words.as_slice() else { return Err(Status::BadRequest) };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !target.starts_with('/') || target.contains(|letter: char| letter.is_control()) {
        return Err(Status::BadRequest);
    }
    match *version {
        "HTTP/1.0" | "HTTP/1.1" => {}
        other if other.starts_with("HTTP/") => return Err(Status::OtherVersion),
        _ => return Err(Status::BadRequest),
    }
    if pages.is_local() && !lines.flatten().filter_map(host_of).all(is_this_machine) {
        return Err(Status::Misdirected);
    }
    let path = target.split('?').next().unwrap_or_default();
    match (*method, pages.paths().iter().find(|known| **known == path)) {
        ("GET", Some(known)) => Ok(*known),
        (_, Some(_)) => Err(Status::MethodNotAllowed),
        _ => Err(Status::NotFound),
    }
}

/// The value of a line that says who is asked.
fn host_of(line: &[u8]) -> Option<&str> {
    value_of(line, "host")
}

/// Whether a request is one of somebody who looks, as those of browsers are.
fn takes_html(head: &[u8]) -> bool {
    head.split(|byte| *byte == b'\n')
        .filter_map(|line| value_of(line, "accept"))
        .any(|types| types.contains("text/html"))
}

/// The value of a line of this name.
fn value_of<'a>(line: &'a [u8], wanted: &str) -> Option<&'a str> {
    let (name, value) = std::str::from_utf8(line).ok()?.split_once(':')?;
    name.eq_ignore_ascii_case(wanted).then(|| value.trim())
}

fn is_this_machine(host: &str) -> bool {
    let has_port = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|digit| digit.is_ascii_digit()));
    let name = has_port.map_or(host, |(name, _)| name);
    name.eq_ignore_ascii_case("localhost")
        || name == "[::1]"
        || name.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Metrics {
        is_local: bool,
    }

    impl Pages for Metrics {
        fn paths(&self) -> &'static [&'static str] {
            &["/metrics", "/health"]
        }

        fn page<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Page> {
            let is_well = path == "/metrics";
            Box::pin(async move { Page { content_type: OPEN_METRICS, is_well, body: "# EOF\n".to_owned() } })
        }

        fn is_local(&self) -> bool {
            self.is_local
        }
    }

    fn status_of(head: &[u8]) -> Status {
        path_of(head, &Metrics { is_local: false }).err().unwrap_or(Status::Ok)
    }

    fn status(head: &str) -> Status {
        status_of(head.as_bytes())
    }

    #[test]
    fn pages_of_this_machine_are_not_given_to_whoever_calls_it_by_another_name() {
        let of = |host: &str| {
            let head = format!("GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n");
            path_of(head.as_bytes(), &Metrics { is_local: true })
        };
        for good in ["localhost", "LOCALHOST:8816", "127.0.0.1:8816", "127.0.0.1", "[::1]:8816", "[::1]"] {
            assert_eq!(of(good), Ok("/metrics"), "{good}");
        }
        for bad in ["example.org", "example.org:8816", "127.example.org", "localhost.example.org"] {
            assert_eq!(of(bad), Err(Status::Misdirected), "{bad}");
        }
    }

    #[test]
    fn the_metrics_are_answered_whatever_else_the_request_says() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"), Status::Ok);
        assert_eq!(status("GET /metrics?name[]=lakemark_lag_seconds HTTP/1.0\r\n\r\n"), Status::Ok);
    }

    #[test]
    fn whoever_looks_is_known_by_the_types_that_it_takes() {
        let of = |accept: &str| takes_html(format!("GET /metrics HTTP/1.1\r\nHost: a\r\n{accept}\r\n\r\n").as_bytes());
        assert!(of("Accept: text/html,application/xhtml+xml,*/*;q=0.8") && of("accept:text/html"));
        assert!(!of("Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5") && !of("X: text/html"));
    }

    #[test]
    fn other_paths_methods_and_versions_are_refused_by_their_names() {
        assert_eq!(status("GET / HTTP/1.1\r\n\r\n"), Status::NotFound);
        assert_eq!(status("GET /metrics/../etc/passwd HTTP/1.1\r\n\r\n"), Status::NotFound);
        assert_eq!(status("POST /other HTTP/1.1\r\n\r\n"), Status::NotFound);
        for method in ["POST", "HEAD", "DELETE", "OPTIONS"] {
            assert_eq!(status(&format!("{method} /metrics HTTP/1.1\r\n\r\n")), Status::MethodNotAllowed);
        }
        assert_eq!(status("GET /metrics HTTP/2\r\n\r\n"), Status::OtherVersion);
    }

    #[test]
    fn what_is_no_request_is_a_bad_one() {
        for bad in [
            "",
            "\r\n\r\n",
            "GET\r\n\r\n",
            "GET /metrics\r\n\r\n",
            "GET  /metrics HTTP/1.1\r\n\r\n",
            "GET /metrics HTTP/1.1 x\r\n\r\n",
            "GET /metrics FTP/1\r\n\r\n",
            "get /metrics HTTP/1.1\r\n\r\n",
            "GET http://a/metrics HTTP/1.1\r\n\r\n",
            "GET /met\u{7}rics HTTP/1.1\r\n\r\n",
            // Cut off, and without a carriage return.
            "GET /metrics HTTP/1.1\r\n",
            "GET /metrics HTTP/1.1\n\n",
        ] {
            assert_eq!(status(bad), Status::BadRequest, "{bad:?}");
        }
        assert_eq!(status_of(b"GET /\xff HTTP/1.1\r\n\r\n"), Status::BadRequest);
        assert_eq!(status_of(b"\x16\x03\x01\x02\x00 a handshake of TLS"), Status::BadRequest);
    }

    async fn asked(server: SocketAddr, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server).await.unwrap();
        stream.write_all(request).await.unwrap();
        stream.shutdown().await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn a_connection_gets_its_answer_and_bad_ones_do_not_keep_others_from_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(serve(listener, Arc::new(Metrics { is_local: false })));
        // More than are answered at a time: each of them ends by itself.
        for _ in 0..2 * CONNECTIONS {
            assert!(asked(address, b"nonsense").await.starts_with("HTTP/1.1 400 "));
        }
        let long = [b"GET /metrics HTTP/1.1\r\nX: ".as_slice(), &[b'x'; 2 * MOST_BYTES]].concat();
        let refused = asked(address, &long).await;
        assert!(refused.starts_with("HTTP/1.1 431 "), "{refused}");
        let answer = asked(address, b"GET /metrics HTTP/1.1\r\n\r\n").await;
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains(OPEN_METRICS), "{head}");
        assert!(head.contains(&format!("Content-Length: {}", body.len())), "{head}");
        assert!(head.contains("\r\nContent-Security-Policy: default-src 'none'; "), "{head}");
        assert_eq!(body, "# EOF\n");
        assert!(asked(address, b"GET /health HTTP/1.1\r\n\r\n").await.starts_with("HTTP/1.1 503 "));
        server.abort();
    }
}
