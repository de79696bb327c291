//! Webhooks over https: who is trusted is delivered to, and who is not gets nothing.

use crate::handlers_support::{guarded, until};
use ensue::{Ensue, NewEvent, Standing, Verdict};
use ensue_server::executors::Authorities;
use rcgen::{BasicConstraints, Certificate, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

/// An authority of one's own.
struct Authority {
    certificate: Certificate,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self { certificate: params.self_signed(&key).unwrap(), issuer: Issuer::new(params, key) }
    }

    /// A receiver whose certificate is for this name; answers its port, and how many requests it was sent.
    async fn receiver(&self, name: &str) -> (u16, Arc<AtomicUsize>) {
        rustls::crypto::ring::default_provider().install_default().ok();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new([name.to_owned()]).unwrap().signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let config = ServerConfig::builder().with_no_client_auth();
        let config = config.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, got) = (listener.local_addr().unwrap().port(), Arc::new(AtomicUsize::new(0)));
        let counted = got.clone();
        tokio::spawn(async move {
            while let Ok((socket, _)) = listener.accept().await {
                let Ok(mut stream) = acceptor.accept(socket).await else { continue };
                let mut request = [0; 4_096];
                if stream.read(&mut request).await.is_ok_and(|count| count > 0) {
                    counted.fetch_add(1, Ordering::SeqCst);
                    stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n").await.ok();
                    stream.shutdown().await.ok();
                }
            }
        });
        (port, got)
    }
}

/// What becomes of an event that is sent to this URL by who trusts these.
async fn delivered(url: &str, trusted: Authorities) -> Verdict {
    let bus = Ensue::memory().await.unwrap();
    let text = format!("handlers:\n  t:\n  - {{ name: h, webhook: {url:?}, retry: {{ attempts_max: 1 }} }}\n");
    let mut handlers = guarded(&text, 30, &["127.0.0.1", "::1"], false);
    handlers.executors = handlers.executors.with_authorities(trusted);
    handlers.bind(&bus).unwrap();
    let _running = bus.start().await.unwrap();
    let seq = bus.publish(NewEvent::new("t.x").object("o")).await.unwrap().seq.unwrap();
    until(async || {
        let verdict = bus.deliveries(seq).await.unwrap().unwrap().remove(0).verdict;
        [Standing::Done, Standing::Held].contains(&verdict.standing).then_some(verdict)
    })
    .await
}

fn trusting(folder: &Path, authorities: &[&Authority]) -> Authorities {
    let file = folder.join("ca.pem");
    let text: String = authorities.iter().map(|authority| authority.certificate.pem()).collect();
    std::fs::write(&file, format!("Some words before it.\n{text}")).unwrap();
    Authorities::read(&file).unwrap()
}

#[tokio::test]
async fn a_certificate_of_an_authority_in_the_ca_file_is_trusted_and_another_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let (ours, other) = (Authority::new("ours"), Authority::new("other"));
    let (port, got) = ours.receiver("localhost").await;
    let url = format!("https://localhost:{port}/hook");
    for trusted in [Authorities::default(), trusting(folder.path(), &[&other])] {
        let verdict = delivered(&url, trusted).await;
        let error = verdict.error.unwrap();
        assert_eq!(verdict.standing, Standing::Held, "{error}");
        assert!(error.starts_with("localhost could not be reached: its certificate is by an authority"), "{error}");
        assert!(error.contains("`webhooks.ca_file`"), "{error}");
    }
    assert_eq!(got.load(Ordering::SeqCst), 0, "nothing was sent to whom nobody knows");
    // Also where it is not the first in the file.
    let verdict = delivered(&url, trusting(folder.path(), &[&other, &ours])).await;
    assert_eq!((verdict.standing, verdict.error), (Standing::Done, None));
    assert_eq!(got.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_certificate_for_another_name_is_told_with_the_names() {
    let folder = tempfile::tempdir().unwrap();
    let ours = Authority::new("ours");
    let (port, got) = ours.receiver("hooks.example.com").await;
    let verdict = delivered(&format!("https://localhost:{port}/"), trusting(folder.path(), &[&ours])).await;
    let error = verdict.error.unwrap();
    assert!(verdict.standing == Standing::Held && error.contains("for another name"), "{error}");
    assert!(error.contains("hooks.example.com"), "{error}");
    assert_eq!(got.load(Ordering::SeqCst), 0);
}

#[test]
fn a_ca_file_that_cannot_be_used_is_told_with_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ca.pem");
    let refusal = |content: Option<&str>| {
        content.inspect(|content| std::fs::write(&file, content).unwrap());
        Authorities::read(&file).unwrap_err()
    };
    let key = KeyPair::generate().unwrap().serialize_pem();
    let garbled = "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n";
    for (content, told) in [
        (None, "cannot be read"),
        (Some("nothing"), "holds no certificate"),
        (Some(&*key), "holds no certificate"),
        (Some(garbled), "no certificate ("),
        (Some("-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n"), "not as PEM is written"),
    ] {
        let refusal = refusal(content);
        assert!(refusal.contains(told) && refusal.contains("name a PEM file"), "{refusal}");
    }
}
