//! A server for tests: it gives the answers that it was told, one after the other, and the last one from then on.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

/// The server. It goes with its process.
pub(crate) struct Stub {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Stub {
    pub(crate) fn new(answers: &[(u16, &str)]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let answers: Vec<(u16, String)> = answers.iter().map(|(status, body)| (*status, (*body).to_owned())).collect();
        let kept = Arc::clone(&requests);
        thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let (status, body) = &answers[number.min(answers.len() - 1)];
                answer(stream.unwrap(), *status, body, &kept);
            }
        });
        Self { url, requests }
    }

    /// What was asked, with heads and bodies.
    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

fn answer(mut stream: TcpStream, status: u16, body: &str, requests: &Mutex<Vec<String>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let (mut request, mut length) = (String::new(), 0);
    loop {
        let start = request.len();
        reader.read_line(&mut request).unwrap();
        let line = request[start..].trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    let mut question = vec![0; length];
    reader.read_exact(&mut question).unwrap();
    request.push_str(&String::from_utf8(question).unwrap());
    requests.lock().unwrap().push(request);
    let head = format!("HTTP/1.1 {status} S\r\ncontent-type: application/json\r\ncontent-length: {}\r\n", body.len());
    stream.write_all(format!("{head}connection: close\r\n\r\n{body}").as_bytes()).unwrap();
}
