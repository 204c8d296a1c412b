//! A host whose connections an interceptor looks into, and a client of it, both by hand: what they say and hear is told byte by byte.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{client::TlsStream, server::TlsStream as HostStream};

use crate::egress_lab::{header, hosts::Host, status_of};

/// The host that tests look into.
pub const NAME: &str = "api.example";

/// What a host heard of all its clients, in order, and how often one went away.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<Vec<u8>>>, Arc<Mutex<usize>>);

impl Heard {
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.0.lock().unwrap()).into_owned()
    }

    pub async fn until(&self, wanted: &str) -> String {
        let began = Instant::now();
        while !self.text().contains(wanted) {
            assert!(began.elapsed() < Duration::from_secs(10), "`{wanted}` does not come: {}", self.text());
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.text()
    }

    pub async fn until_gone(&self) {
        let began = Instant::now();
        while *self.1.lock().unwrap() == 0 {
            assert!(began.elapsed() < Duration::from_secs(10), "nobody goes away");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// A host that writes down what it hears and answers each request that is whole with the next of these, whose pieces it sends one by one.
pub async fn host(answers: &[&[&str]]) -> (Host, Heard) {
    let heard = Heard::default();
    let kept = heard.clone();
    let owned = |answer: &&[&str]| answer.iter().map(|&piece| piece.to_owned()).collect();
    let next = Arc::new(Mutex::new(answers.iter().map(owned).collect()));
    let host = Host::tls_serving(NAME, move |stream| serve(stream, kept.clone(), Arc::clone(&next))).await;
    (host, heard)
}

type Answers = Arc<Mutex<VecDeque<Vec<String>>>>;

async fn serve(mut stream: HostStream<TcpStream>, heard: Heard, next: Answers) {
    loop {
        let mut request = Vec::new();
        while !is_whole(&request) {
            let mut buffer = vec![0; 1 << 14];
            let Ok(read @ 1..) = stream.read(&mut buffer).await else {
                *heard.1.lock().unwrap() += 1;
                return;
            };
            request.extend_from_slice(&buffer[..read]);
            heard.0.lock().unwrap().extend_from_slice(&buffer[..read]);
        }
        let answer = next.lock().unwrap().pop_front();
        let Some(answer) = answer else { return std::future::pending().await };
        for piece in &answer {
            if stream.write_all(piece.as_bytes()).await.is_err() || stream.flush().await.is_err() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
        if answer.is_empty() {
            return;
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    if header(head, "transfer-encoding").is_some() {
        return body.ends_with("0\r\n\r\n");
    }
    body.len() >= header(head, "content-length").map_or(0, |length| length.parse().unwrap())
}

/// The head and the body of the next response.
pub async fn response<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> (String, String) {
    response_to(stream, "GET").await
}

pub async fn response_to<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S, method: &str) -> (String, String) {
    let read = async {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => head.push(byte),
                Err(_) => return (String::from_utf8(head).unwrap(), String::new()),
            }
        }
        let head = String::from_utf8(head).unwrap();
        let has_body = method != "HEAD" && ![204, 304].contains(&status_of(&head));
        let mut body = Vec::new();
        if header(&head, "transfer-encoding").is_some() && has_body {
            while let Some(chunk) = chunk(stream).await {
                body.extend(chunk);
            }
        } else if let Some(length) = header(&head, "content-length").filter(|_| has_body) {
            body.resize(length.parse().unwrap(), 0);
            let _ = stream.read_exact(&mut body).await;
        }
        (head, String::from_utf8_lossy(&body).into_owned())
    };
    timeout(Duration::from_secs(10), read).await.expect("a response")
}

pub async fn chunk<S: AsyncRead + Unpin>(stream: &mut S) -> Option<Vec<u8>> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        line.push(stream.read_u8().await.ok()?);
    }
    let length = usize::from_str_radix(std::str::from_utf8(&line).unwrap().trim(), 16).unwrap();
    let mut chunk = vec![0; length + 2];
    stream.read_exact(&mut chunk).await.ok()?;
    chunk.truncate(length);
    (length > 0).then_some(chunk)
}

pub async fn ask(client: &mut TlsStream<TcpStream>, request: &str) -> (String, String) {
    client.write_all(request.as_bytes()).await.unwrap();
    let method = request.split(' ').next().unwrap().to_owned();
    response_to(client, &method).await
}

/// A request for the host with these lines besides.
pub fn get(host: &Host, lines: &str) -> String {
    format!("GET / HTTP/1.1\r\nHost: {NAME}:{}\r\n{lines}\r\n", host.port())
}
