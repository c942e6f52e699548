//! A server over a table of flights, and what its clients say and hear.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch, StringArray};
use arrow::datatypes::{Int64Type, UInt64Type};
use arrow::util::display::array_value_to_string;
use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult, Any, ProstMessageExt,
};
use arrow_flight::{Action, FlightInfo};
use futures::TryStreamExt;
use lakemark_serve::{ServeOptions, Server, TableSource};
use parquet::arrow::ArrowWriter;
use parquet::file::properties::WriterProperties;
use prost::Message;
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

pub type Client = FlightSqlServiceClient<Channel>;

pub const ROWS: i64 = 1000;
const CARRIERS: [&str; 5] = ["AA", "B6", "DL", "UA", "WN"];

/// Writes a file of a table: `number` from `first` on, and a `carrier` that is NULL for every 11th.
pub fn write_flights(folder: &Path, first: i64, rows: i64) {
    fs::create_dir_all(folder).unwrap();
    let numbers = first..first + rows;
    let carriers: StringArray = numbers
        .clone()
        .map(|n| (n % 11 != 0).then(|| CARRIERS[usize::try_from(n).unwrap() % CARRIERS.len()]))
        .collect();
    let columns: [(&str, ArrayRef); 2] =
        [("number", Arc::new(Int64Array::from_iter_values(numbers))), ("carrier", Arc::new(carriers))];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    write(&folder.join(format!("part-{first}.parquet")), &batch);
}

/// Writes a data file.
pub fn write(path: &Path, batch: &RecordBatch) {
    let properties = WriterProperties::builder().set_max_row_group_row_count(Some(200)).build();
    let mut writer = ArrowWriter::try_new(File::create(path).unwrap(), batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
}

/// How many of the first rows have a carrier.
pub fn flights_of(carrier: &str, rows: i64) -> i64 {
    (0..rows).filter(|n| n % 11 != 0 && CARRIERS[usize::try_from(*n).unwrap() % CARRIERS.len()] == carrier).count()
        as i64
}

/// A server that runs; it ends when it goes out of scope.
pub struct Served {
    pub folder: TempDir,
    pub url: String,
    pub http: Option<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    running: JoinHandle<lakemark_table::Result<()>>,
}

impl Served {
    /// Serves the table `flights`.
    pub async fn begin() -> Self {
        Self::with(|_| {}).await
    }

    /// Serves it with other options.
    pub async fn with(change: impl FnOnce(&mut ServeOptions)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_flights(&folder.path().join("flights"), 0, ROWS);
        let mut options = options(folder.path());
        change(&mut options);
        let server = Server::bind(options).await.unwrap();
        let (url, http) = (server.url().to_owned(), server.http_address());
        let (stop, told) = oneshot::channel();
        let running = tokio::spawn(server.run(async {
            told.await.ok();
        }));
        Self { folder, url, http, stop: Some(stop), running }
    }

    /// A client of its own connection.
    pub async fn client(&self) -> Client {
        let channel = Channel::from_shared(self.url.replace("grpc://", "http://")).unwrap();
        FlightSqlServiceClient::new(channel.connect().await.unwrap())
    }

    /// The folder of the table.
    pub fn flights(&self) -> PathBuf {
        self.folder.path().join("flights")
    }

    /// Tells the server to end, which is not waited for.
    pub fn stop(&mut self) {
        if let Some(stop) = self.stop.take() {
            stop.send(()).unwrap();
        }
    }

    /// Waits for its end.
    pub async fn ended(&mut self) {
        let ended = tokio::time::timeout(Duration::from_secs(60), &mut self.running).await;
        ended.expect("the server ends").unwrap().unwrap();
    }
}

/// The options of a server over the flights of a folder, on a port that the system chooses.
pub fn options(folder: &Path) -> ServeOptions {
    let path = folder.join("flights").display().to_string();
    let mut options = ServeOptions::on(SocketAddr::from(([127, 0, 0, 1], 0)));
    options.tables = vec![TableSource { name: "flights".to_owned(), path, ..TableSource::default() }];
    options
}

/// The rows of a description.
pub async fn read(client: &mut Client, info: FlightInfo) -> Result<Vec<RecordBatch>, FlightError> {
    let mut batches = Vec::new();
    for endpoint in info.endpoint {
        let ticket = endpoint.ticket.unwrap();
        batches.extend(client.do_get(ticket).await?.try_collect::<Vec<_>>().await?);
    }
    Ok(batches)
}

/// The rows of a statement.
pub async fn query(client: &mut Client, statement: &str) -> Result<Vec<RecordBatch>, FlightError> {
    let info = client.execute(statement.to_owned(), None).await?;
    read(client, info).await
}

/// The rows of a statement as text: columns with `|` between them.
pub async fn lines(client: &mut Client, statement: &str) -> Vec<String> {
    text(&query(client, statement).await.unwrap())
}

/// Rows as text.
pub fn text(batches: &[RecordBatch]) -> Vec<String> {
    let mut lines = Vec::new();
    for batch in batches {
        for row in 0..batch.num_rows() {
            let values = batch.columns().iter().map(|column| array_value_to_string(column, row).unwrap());
            lines.push(values.collect::<Vec<_>>().join("|"));
        }
    }
    lines
}

/// A query that computes for longer than any test, and has its turn meanwhile.
pub async fn busy(client: &mut Client) -> FlightRecordBatchStream {
    let info = client.execute("SELECT sum(value % 7) FROM generate_series(1, 1000000000000)".to_owned(), None).await;
    client.do_get(info.unwrap().endpoint[0].ticket.clone().unwrap()).await.unwrap()
}

/// The one number that a statement gives.
pub async fn number(client: &mut Client, statement: &str) -> i64 {
    let batches = query(client, statement).await.unwrap();
    let column = batches.iter().find(|batch| batch.num_rows() > 0).unwrap().column(0);
    match column.as_primitive_opt::<Int64Type>() {
        Some(numbers) => numbers.value(0),
        None => i64::try_from(column.as_primitive::<UInt64Type>().value(0)).unwrap(),
    }
}

/// The handle of a statement that stays prepared.
pub async fn prepare(client: &Client, statement: &str) -> Vec<u8> {
    let request = ActionCreatePreparedStatementRequest { query: statement.to_owned(), transaction_id: None };
    let action = Action::new("CreatePreparedStatement", request.as_any().encode_to_vec());
    let mut answers = client.inner().clone().do_action(action).await.unwrap().into_inner();
    let answer = answers.message().await.unwrap().unwrap();
    let answer: ActionCreatePreparedStatementResult = Any::decode(answer.body).unwrap().unpack().unwrap().unwrap();
    answer.prepared_statement_handle.to_vec()
}

/// The status of a failure.
pub fn status<T>(outcome: Result<T, FlightError>) -> Status {
    match outcome.err().expect("it fails") {
        FlightError::Tonic(status) => *status,
        other => panic!("{other}"),
    }
}

/// Sees to it that a statement is refused with a code and a message.
pub async fn refused(client: &mut Client, statement: &str, code: Code, says: &str) {
    let found = status(query(client, statement).await);
    assert!(found.code() == code && found.message().contains(says), "{statement}: {found:?}");
}
