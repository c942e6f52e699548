//! Spans of a command that was built with the feature `otel` (`make test-otel`): they arrive at a collector, and none holds the command up.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::table::{Flights, Ran, command, flights_of};

/// What takes spans over HTTP, and keeps the bodies of the requests.
struct Collector {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
}

struct Request {
    head: String,
    body: Vec<u8>,
}

impl Collector {
    fn begin() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let collector = Self { address: listener.local_addr().unwrap(), requests: Arc::default() };
        let requests = Arc::clone(&collector.requests);
        thread::spawn(move || {
            for connection in listener.incoming() {
                let requests = Arc::clone(&requests);
                thread::spawn(move || answer(connection.unwrap(), &requests));
            }
        });
        collector
    }

    /// Whether some request has these bytes.
    fn has(&self, text: &str) -> bool {
        let requests = self.requests.lock().unwrap();
        requests.iter().any(|request| request.body.windows(text.len()).any(|window| window == text.as_bytes()))
    }
}

/// Takes the requests of a connection until its client leaves.
fn answer(connection: TcpStream, requests: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let mut writer = connection;
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
        let mut body = vec![0; length.unwrap_or(0)];
        reader.read_exact(&mut body).unwrap();
        requests.lock().unwrap().push(Request { head, body });
        let _ =
            writer.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n");
    }
}

/// Counts flights while spans go to an address, of a service with these attributes.
fn count(flights: &Flights, endpoint: &str, attributes: &str) -> Ran {
    let mut command = command();
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).env("NO_PROXY", "127.0.0.1").env("no_proxy", "127.0.0.1");
    command.env_remove("OTEL_SERVICE_NAME").env("OTEL_RESOURCE_ATTRIBUTES", attributes);
    command.arg("count").arg(flights.path()).arg("carrier = 'B6'").output().unwrap().into()
}

#[test]
fn spans_of_a_command_arrive_before_it_ends() {
    let (flights, collector) = (Flights::new(1, 1000), Collector::begin());
    let ran = count(&flights, &format!("http://{}", collector.address), "");
    let expected = format!("{}\n", flights_of("B6", 1000));
    assert_eq!((ran.code, ran.stdout, ran.stderr), (Some(0), expected, String::new()));
    assert!(collector.requests.lock().unwrap()[0].head.starts_with("POST /v1/traces "));
    for name in ["lakemark", "pin", "listing", "probe"] {
        assert!(collector.has(name), "{name}");
    }
}

#[test]
fn the_service_is_called_as_its_attributes_say() {
    let (flights, collector) = (Flights::new(1, 1000), Collector::begin());
    let attributes = "deployment.environment=airport, service.name = departures";
    assert_eq!(count(&flights, &format!("http://{}", collector.address), attributes).code, Some(0));
    assert!(collector.has("airport") && collector.has("departures"));
}

#[test]
fn a_collector_that_is_not_there_changes_no_answer() {
    let flights = Flights::new(1, 1000);
    // The port was free a moment ago, and nobody listens there.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let ran = count(&flights, &format!("http://{free}"), "");
    assert_eq!((ran.code, ran.stdout), (Some(0), format!("{}\n", flights_of("B6", 1000))));
}
