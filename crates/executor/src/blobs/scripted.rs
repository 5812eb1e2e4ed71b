//! A real server of HTTP for the tests, which answers byte by byte what it is told to.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};
use tokio_util::task::TaskTracker;

/// Head and body of each.
type Requests = Arc<Mutex<Vec<(String, Vec<u8>)>>>;

/// Answers each request with the next of its answers, the last one again and again, and closes the connection.
pub(crate) struct Scripted {
    pub(crate) base: String,
    asked: Arc<AtomicUsize>,
    requests: Requests,
    _tasks: TaskTracker,
}

impl Scripted {
    pub(crate) async fn start(answers: Vec<Vec<u8>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let (asked, requests) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
        let tasks = TaskTracker::new();
        let (count, all) = (Arc::clone(&asked), Arc::clone(&requests));
        tasks.spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                all.lock().unwrap().push(request);
                let number = count.fetch_add(1, Ordering::SeqCst);
                let answer = &answers[number.min(answers.len() - 1)];
                // One that has heard enough hangs up.
                stream.write_all(answer).await.unwrap_or_default();
            }
        });
        Self {
            base,
            asked,
            requests,
            _tasks: tasks,
        }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// The heads of all requests.
    pub(crate) fn heard(&self) -> String {
        let requests = self.requests.lock().unwrap();
        requests.iter().map(|(head, _)| head.as_str()).collect()
    }

    /// The body of the newest request.
    pub(crate) fn body(&self) -> Vec<u8> {
        self.requests.lock().unwrap().last().unwrap().1.clone()
    }
}

async fn read(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head
        .lines()
        .filter_map(|line| line.split_once(": "))
        .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
        .map_or(0, |(_, value)| value.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    (head, body)
}

pub(crate) fn answer(status: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
    [head.as_bytes(), body].concat()
}
