//! What browsers and collectors see.

use futures::StreamExt;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::served::{Served, lines};

/// The answer to a browser.
pub async fn get(served: &Served, path: &str) -> String {
    let mut stream = TcpStream::connect(served.http.unwrap()).await.unwrap();
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

/// A server that has a page.
pub async fn with_page() -> Served {
    Served::with(|options| options.http = Some("127.0.0.1:0".parse().unwrap())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn the_page_shows_tables_indexes_updates_and_what_runs() {
    let served = with_page().await;
    let mut client = served.client().await;
    lines(&mut client, "CREATE INDEX c ON flights USING bitmap (carrier)").await;
    let page = get(&served, "/").await;
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.contains("text/html"), "{page}");
    for says in ["<strong>flights</strong>", "100%", "takes none", "Nothing runs.", &served.url] {
        assert!(page.contains(says), "{says}: {page}");
    }
    let statement = "SELECT value, '<i>&' || repeat('x', 1000) FROM generate_series(1, 1000000)";
    let info = client.execute(statement.to_owned(), None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    let page = get(&served, "/").await;
    assert!(page.contains("&lt;i&gt;&amp;") && !page.contains("<i>") && page.contains("1 running"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn counters_of_tables_and_server_are_open_metrics() {
    let served = with_page().await;
    let mut client = served.client().await;
    lines(&mut client, "SELECT count(number) FROM flights").await;
    let answer = get(&served, "/metrics").await;
    assert!(answer.contains("application/openmetrics-text"), "{answer}");
    assert!(answer.contains("\nlakemark_statements_total 1\n") && answer.contains("lakemark_statements_running 0\n"));
    for counter in ["hosted", "shared", "detached"] {
        assert!(answer.contains(&format!("\nlakemark_plans_{counter}_total ")), "{counter}: {answer}");
    }
    assert!(answer.contains(&format!("{{table=\"{}", served.flights().display())), "{answer}");
    assert!(answer.ends_with("# EOF\n") && answer.matches("# EOF").count() == 1, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_health_is_that_of_a_server_that_serves() {
    let served = with_page().await;
    let answer = get(&served, "/health").await;
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("serving\n"), "{answer}");
    assert!(get(&served, "/nosuch").await.contains("ask for GET /, /metrics, /health"));
}
