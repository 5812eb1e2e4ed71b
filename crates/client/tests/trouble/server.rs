//! A server that answers as it is told, one connection after the other.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, Sender, channel},
    thread::JoinHandle,
    time::Duration,
};

/// Longest that a case waits for anything.
pub(crate) const LIMIT: Duration = Duration::from_secs(20);

/// A request as it arrived.
#[derive(Debug, Clone)]
pub(crate) struct Heard {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Heard {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(given, _)| given == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// What becomes of one connection, once its request has arrived.
pub(crate) enum Answer {
    /// These bytes, then the end of the connection.
    Bytes(Vec<u8>),
    /// These bytes, then nothing for as long as the client stays.
    Silence(Vec<u8>),
}

pub(crate) struct Scripted {
    address: SocketAddr,
    heard: Receiver<Heard>,
    thread: Option<JoinHandle<()>>,
}

impl Scripted {
    /// Gives these answers, in this order, and accepts nothing after them.
    pub(crate) fn start(answers: Vec<Answer>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (to, heard) = channel();
        let thread = std::thread::spawn(move || {
            for answer in answers {
                let (stream, _) = listener.accept().unwrap();
                serve(stream, answer, &to);
            }
        });
        Self {
            address,
            heard,
            thread: Some(thread),
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The next request.
    pub(crate) fn heard(&self) -> Heard {
        self.heard.recv_timeout(LIMIT).expect("a request arrives")
    }

    /// All further requests, once every answer has been given.
    pub(crate) fn rest(mut self) -> Vec<Heard> {
        self.thread.take().unwrap().join().unwrap();
        self.heard.try_iter().collect()
    }
}

fn serve(mut stream: TcpStream, answer: Answer, to: &Sender<Heard>) {
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    to.send(read(&mut stream)).unwrap_or_default();
    match answer {
        Answer::Bytes(bytes) => stream.write_all(&bytes).unwrap_or_default(),
        Answer::Silence(bytes) => {
            stream.write_all(&bytes).unwrap_or_default();
            // Until the client has had enough.
            let gone = stream.read(&mut [0; 1]).unwrap_or_default();
            assert_eq!(gone, 0, "the client says no more");
        }
    }
}

fn read(stream: &mut TcpStream) -> Heard {
    let mut reader = BufReader::new(stream);
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end() {
            "" => break,
            line => lines.push(line.to_owned()),
        }
    }
    let headers: Vec<(String, String)> = lines[1..]
        .iter()
        .map(|line| {
            let (name, value) = line.split_once(':').unwrap();
            (name.to_lowercase(), value.trim().to_owned())
        })
        .collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length = length.map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body).unwrap();
    Heard {
        line: lines[0].clone(),
        headers,
        body: String::from_utf8(body).unwrap(),
    }
}

/// An answer with a body of JSON.
pub(crate) fn json(status: u16, headers: &str, body: &str) -> Answer {
    Answer::Bytes(with_type(status, "application/json", headers, body))
}

/// An answer that is a problem.
pub(crate) fn problem(code: &str, status: u16, headers: &str) -> Answer {
    let body = format!(
        r#"{{"type":"urn:mayfly:problem:{code}","title":"T","status":{status},"code":"{code}","request_id":"r-1"}}"#
    );
    Answer::Bytes(with_type(status, "application/problem+json", headers, &body))
}

pub(crate) fn with_type(status: u16, kind: &str, headers: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}\r\n{body}"
    )
    .into_bytes()
}
