//! A port that answers `GET /metrics`, and nothing else.
//!
//! It reads one request of a connection, answers it and closes. Whoever sends too much, too slowly or anything else gets an answer that
//! says so, and at most [`CONNECTIONS`] are answered at a time.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use crate::exporter::Exporter;

/// A request may be no longer than this.
const MOST_BYTES: usize = 8 * 1024;
/// A connection that has not sent its request, or taken its answer, after so long is closed.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections that are answered at a time.
const CONNECTIONS: usize = 16;
/// The time to breathe after the system had no connection to give.
const AFTER_ERROR: Duration = Duration::from_millis(100);

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const TEXT: &str = "text/plain; charset=utf-8";

/// Answers as long as it lives.
pub(crate) struct MetricsServer(JoinHandle<()>);

impl MetricsServer {
    /// Listens on an address; requests are answered from this call on.
    pub(crate) async fn listen(address: SocketAddr, exporter: Arc<Exporter>) -> io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        Ok(Self(tokio::spawn(serve(listener, exporter))))
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn serve(listener: TcpListener, exporter: Arc<Exporter>) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let exporter = Arc::clone(&exporter);
                tokio::spawn(async move {
                    answer(stream, &exporter).await;
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
            Self::BadRequest => "400 Bad Request",
            Self::NotFound => "404 Not Found",
            Self::MethodNotAllowed => "405 Method Not Allowed",
            Self::Timeout => "408 Request Timeout",
            Self::TooLarge => "431 Request Header Fields Too Large",
            Self::OtherVersion => "505 HTTP Version Not Supported",
        }
    }
}

async fn answer(mut stream: TcpStream, exporter: &Exporter) {
    let status = match tokio::time::timeout(PATIENCE, read_head(&mut stream)).await {
        Ok(Ok(Some(head))) => status_of(&head),
        Ok(Ok(None)) => Status::TooLarge,
        // Nobody is there any more.
        Ok(Err(_)) => return,
        Err(_) => Status::Timeout,
    };
    let (kind, body) = match status {
        Status::Ok => (OPEN_METRICS, exporter.text()),
        other => (TEXT, format!("{}: ask for GET /metrics\n", other.line())),
    };
    let allow = if status == Status::MethodNotAllowed { "Allow: GET\r\n" } else { "" };
    let head = format!(
        "HTTP/1.1 {}\r\n{allow}Content-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
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

/// What to answer to a request. Only its first line says anything.
fn status_of(head: &[u8]) -> Status {
    let is_whole = head.windows(4).any(|end| end == b"\r\n\r\n");
    let line = head.split(|byte| *byte == b'\n').next().and_then(|line| line.strip_suffix(b"\r"));
    let Some(line) = line.filter(|_| is_whole).and_then(|line| std::str::from_utf8(line).ok()) else {
        return Status::BadRequest;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words.as_slice() else { return Status::BadRequest };
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_uppercase());
    if !is_method || !target.starts_with('/') || target.contains(|letter: char| letter.is_control()) {
        return Status::BadRequest;
    }
    match *version {
        "HTTP/1.0" | "HTTP/1.1" => {}
        other if other.starts_with("HTTP/") => return Status::OtherVersion,
        _ => return Status::BadRequest,
    }
    let path = target.split('?').next().unwrap_or_default();
    match (*method, path) {
        ("GET", "/metrics") => Status::Ok,
        (_, "/metrics") => Status::MethodNotAllowed,
        _ => Status::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(head: &str) -> Status {
        status_of(head.as_bytes())
    }

    #[test]
    fn the_metrics_are_answered_whatever_else_the_request_says() {
        assert_eq!(status("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n"), Status::Ok);
        assert_eq!(status("GET /metrics?name[]=lakemark_lag_seconds HTTP/1.0\r\n\r\n"), Status::Ok);
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
        let server = MetricsServer(tokio::spawn(serve(listener, Arc::new(Exporter::new(None)))));
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
        assert_eq!(body, "# EOF\n");
        drop(server);
    }
}
