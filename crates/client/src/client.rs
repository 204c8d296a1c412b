//! Asks a daemon.

use std::time::Duration;

use http_body_util::{BodyExt, Empty, Limited};
use hyper::{Request, StatusCode, body::Bytes, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use palyra_api::{ErrorBody, Health};
use serde::de::DeserializeOwned;
use tokio::{net::TcpStream, time};

use crate::endpoint::Endpoint;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much of an answer is read.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// A client of one daemon.
#[derive(Debug, Clone, Copy)]
pub struct Client {
    endpoint: Endpoint,
    patience: Duration,
}

impl Client {
    /// A client of the daemon that listens there.
    #[must_use]
    pub const fn new(endpoint: Endpoint) -> Self {
        Self { endpoint, patience: PATIENCE }
    }

    /// The same client, with another patience.
    #[must_use]
    pub const fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Whether the daemon is there, and which one it is.
    ///
    /// # Errors
    /// When it cannot be reached or answers something else.
    pub async fn health(&self) -> Result<Health, ClientError> {
        self.get("/healthz").await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        let exchange = self.exchange(path);
        let (status, body) = time::timeout(self.patience, exchange)
            .await
            .map_err(|_| ClientError::Slow { endpoint: self.endpoint, patience: self.patience })??;
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|error| ClientError::Protocol(error.to_string()));
        }
        match serde_json::from_slice::<ErrorBody>(&body) {
            Ok(body) => Err(ClientError::Refused(body)),
            Err(_) => Err(ClientError::Protocol(format!("it answered {status}"))),
        }
    }

    async fn exchange(&self, path: &str) -> Result<(StatusCode, Bytes), ClientError> {
        let protocol = |error: hyper::Error| ClientError::Protocol(error.to_string());
        let stream = TcpStream::connect(self.endpoint.address())
            .await
            .map_err(|error| ClientError::Unreachable { endpoint: self.endpoint, message: error.kind().to_string() })?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(protocol)?;
        let request = Request::get(path)
            .header(header::HOST, self.endpoint.address().to_string())
            .header(header::ACCEPT, "application/json")
            .body(Empty::<Bytes>::new())
            .map_err(|error| ClientError::Protocol(error.to_string()))?;
        let answer = async {
            let response = sender.send_request(request).await.map_err(protocol)?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            body.map(|body| (status, body.to_bytes())).map_err(|error| ClientError::Protocol(error.to_string()))
        };
        tokio::pin!(answer, connection);
        tokio::select! {
            answer = &mut answer => answer,
            ended = &mut connection => match ended {
                // The connection may end as soon as the last byte is read; the answer is then complete.
                Ok(()) => answer.await,
                Err(error) => Err(protocol(error)),
            },
        }
    }
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("no daemon answers at {endpoint}: {message}")]
    Unreachable {
        /// Where.
        endpoint: Endpoint,
        /// What the system says.
        message: String,
    },
    /// Somebody listens and does not answer in time.
    #[error("the daemon at {endpoint} did not answer within {patience:?}")]
    Slow {
        /// Where.
        endpoint: Endpoint,
        /// How long it was given.
        patience: Duration,
    },
    /// The daemon refused, and says why.
    #[error("{}", .0.error.message)]
    Refused(ErrorBody),
    /// Whoever answered does not speak this protocol.
    #[error("that is not a Palyra daemon: {0}")]
    Protocol(String),
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
        thread,
    };

    use super::*;

    /// A peer that says exactly these bytes to the first caller.
    fn peer(answer: impl Into<String>) -> Client {
        let answer = answer.into();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = Endpoint::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).unwrap();
            stream.write_all(answer.as_bytes()).unwrap();
            if answer.is_empty() {
                thread::sleep(Duration::from_secs(2));
            }
        });
        Client::new(endpoint).with_patience(Duration::from_millis(500))
    }

    fn response(status: &str, body: &str) -> String {
        format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    }

    fn health(client: Client) -> Result<Health, ClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(client.health())
    }

    #[test]
    fn a_daemon_that_is_there_says_its_version() {
        let answer = response("200 OK", r#"{"status":"ok","version":"0.1.0"}"#);
        assert_eq!(health(peer(answer)), Ok(Health { status: "ok".into(), version: "0.1.0".into() }));
    }

    #[test]
    fn a_refusal_keeps_its_reason() {
        let answer = response("403 Forbidden", r#"{"error":{"code":"denied","message":"no way"}}"#);
        let error = health(peer(answer)).unwrap_err();
        assert!(matches!(&error, ClientError::Refused(body) if body.error.code == "denied"), "{error:?}");
    }

    #[test]
    fn a_stranger_on_the_port_is_told_apart_from_silence() {
        assert!(matches!(health(peer("SSH-2.0-x\r\n")), Err(ClientError::Protocol(_))));
        assert!(matches!(health(peer(response("200 OK", "{}"))), Err(ClientError::Protocol(_))));
        assert!(matches!(health(peer("")), Err(ClientError::Slow { .. })));
        let nobody = Client::new(Endpoint::parse("http://127.0.0.1:1").unwrap());
        assert!(matches!(health(nobody), Err(ClientError::Unreachable { .. })));
    }
}
