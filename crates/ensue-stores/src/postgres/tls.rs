//! Is the server who it says it is?
//!
//! libpq's modes: `prefer` and `require` encrypt and verify nothing, `verify-ca` wants a certificate of an authority
//! that we trust, `verify-full` one that also names the host. Trusted are those in `sslrootcert`, else the system's.

use super::url::{Encryption, Target};
use ensue_core::StoreError;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::{CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};
use std::path::Path;
use std::sync::Arc;
use tokio_postgres_rustls::MakeRustlsConnect;

/// What connections to this target are encrypted with.
pub(super) fn connector(target: &Target) -> Result<MakeRustlsConnect, StoreError> {
    let provider = Arc::new(ring::default_provider());
    let verifier: Arc<dyn ServerCertVerifier> = match target.encryption {
        Encryption::Disable | Encryption::Prefer | Encryption::Require => {
            Arc::new(AnyName { authority: None, provider: provider.clone() })
        }
        Encryption::VerifyCa => {
            Arc::new(AnyName { authority: Some(webpki(target, &provider)?), provider: provider.clone() })
        }
        Encryption::VerifyFull => webpki(target, &provider)?,
    };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| {
            StoreError::Engine(format!(
                "no TLS version can be used ({error}): build Ensue with a TLS provider that has one"
            ))
        })?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

fn webpki(target: &Target, provider: &Arc<CryptoProvider>) -> Result<Arc<WebPkiServerVerifier>, StoreError> {
    let roots = match &target.roots {
        Some(path) => roots_of_file(path)?,
        None => roots_of_system()?,
    };
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone()).build().map_err(|error| {
        StoreError::Engine(format!(
            "the trusted certificates cannot be used ({error}): choose another file with sslrootcert"
        ))
    })
}

fn roots_of_file(path: &Path) -> Result<RootCertStore, StoreError> {
    let unusable = |what: String| {
        let advice = "name a PEM file with the certificate of the authority in sslrootcert";
        StoreError::Engine(format!("{} {what}; {advice}", path.display()))
    };
    let certificates: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|error| unusable(format!("cannot be read as certificates ({error})")))?;
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(certificates);
    match added {
        0 => Err(unusable("holds no certificate".into())),
        _ => Ok(roots),
    }
}

fn roots_of_system() -> Result<RootCertStore, StoreError> {
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    match added {
        0 => Err(StoreError::Engine(
            "this system has no trusted certificates; install ca-certificates, or name a file in sslrootcert".into(),
        )),
        _ => Ok(roots),
    }
}

/// Wants the server to own its certificate, whatever name that has, and whoever vouches for it unless an authority is
/// asked.
#[derive(Debug)]
struct AnyName {
    authority: Option<Arc<WebPkiServerVerifier>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(authority) = &self.authority else { return Ok(ServerCertVerified::assertion()) };
        // The name is checked last, after the chain: this error means that all else is well.
        match authority.verify_server_cert(certificate, intermediates, name, ocsp, now) {
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => Ok(ServerCertVerified::assertion()),
            verdict => verdict,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
