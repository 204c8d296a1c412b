//! Providers behind TLS: whose certificate is trusted, and whose is not.

use std::{sync::Arc, time::Duration};

use palyra_provider::{BaseUrl, Phase, Provider, ProviderError, Settings, Trust};
use tokio::{io::AsyncWriteExt, net::TcpListener};
use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer},
    },
};

use crate::{
    lab::{ask, provider_with, settings, text, world},
    scripted::{Act, Scripted, read_request},
};

/// A server with a certificate of its own: where it is, and the certificate.
async fn start() -> (String, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der()));
    let config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key)
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/v1", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(stream).await else { continue };
            if read_request(&mut stream).await.is_some() {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\nsecret").await.unwrap();
                stream.shutdown().await.unwrap();
            }
        }
    });
    (url, certified.cert.pem())
}

fn provider(url: &str, extra: Option<&str>) -> Provider {
    let trust = match extra {
        Some(pem) => Trust::of_machine(Some(pem)).unwrap(),
        None => Trust::of_nobody().unwrap(),
    };
    let settings = Settings { connect: Duration::from_secs(5), answer: Duration::from_secs(5), ..settings() };
    Provider::new(&BaseUrl::parse(url).unwrap(), settings, &trust, world().0).unwrap()
}

#[tokio::test]
async fn a_server_of_a_further_authority_is_trusted_when_that_is_named() {
    let (url, pem) = start().await;
    assert_eq!(text(&provider(&url, Some(&pem))).await, "secret");
}

#[tokio::test]
async fn a_server_that_nobody_vouches_for_is_sent_nothing() {
    let (url, _) = start().await;
    let error = ask(&provider(&url, None)).await.unwrap_err();
    assert!(matches!(error, ProviderError::Tls { .. }), "{error}");
}

#[tokio::test]
async fn a_server_that_does_not_speak_tls_is_refused() {
    let server = Scripted::start([Act::ok("{}")]).await;
    let url = server.url().replace("http://", "https://");
    // It reads what it takes for a request until the client gives up, so the short times serve.
    let settings = Settings { retries: 0, ..settings() };
    let (provider, _clock) = provider_with(&url, settings);
    let error = ask(&provider).await.unwrap_err();
    assert_eq!(error, ProviderError::TimedOut { what: Phase::Connecting, within: settings.connect });
    assert_eq!(server.asked(), 0);
}
