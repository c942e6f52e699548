//! The end of a server: what runs comes to its end, nothing new begins, and nobody is waited for without limit.

use std::time::Duration;

use arrow_flight::sql::client::FlightSqlServiceClient;
use futures::{StreamExt, TryStreamExt};
use tonic::transport::Channel;

use crate::served::{ROWS, Served, number};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_nobody_uses_ends_at_once() {
    let mut served = Served::begin().await;
    let mut client = served.client().await;
    assert_eq!(number(&mut client, "SELECT count(*) FROM flights").await, ROWS);
    served.stop();
    served.ended().await;
    let url = served.url.replace("grpc://", "http://");
    assert!(Channel::from_shared(url).unwrap().connect().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_that_runs_comes_to_its_end() {
    let mut served = Served::begin().await;
    let mut client = served.client().await;
    let statement = "SELECT value, repeat('x', 100) FROM generate_series(1, 300000)".to_owned();
    let info = client.execute(statement, None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    let first = stream.next().await.unwrap().unwrap().num_rows();
    served.stop();
    let rest: Vec<_> = stream.try_collect().await.unwrap();
    assert_eq!(first + rest.iter().map(|batch| batch.num_rows()).sum::<usize>(), 300_000);
    served.ended().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_takes_no_rows_is_not_waited_for_without_limit() {
    let mut served = Served::with(|options| options.limits.grace = Duration::from_millis(1)).await;
    let mut client: FlightSqlServiceClient<Channel> = served.client().await;
    let statement = "SELECT value, repeat('x', 1000) FROM generate_series(1, 1000000)".to_owned();
    let info = client.execute(statement, None).await.unwrap();
    let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
    stream.next().await.unwrap().unwrap();
    served.stop();
    served.ended().await;
}
