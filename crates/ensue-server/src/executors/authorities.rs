//! Whose certificates does a webhook trust?
//!
//! Those of the system's authorities, and of those that the config file names: an authority of one's own is known to nobody else.

use reqwest::Certificate;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{CertificateError, RootCertStore};
use std::error::Error;
use std::path::Path;

/// Authorities that are trusted beside those of the system.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Authorities(Vec<CertificateDer<'static>>);

impl Authorities {
    /// Those of a PEM file, or what is wrong with it and what to do.
    pub fn read(path: &Path) -> Result<Self, String> {
        let advice = "name a PEM file with the certificates of your authorities";
        let wrong = |what: String| format!("is {}, which {what}: {advice}", path.display());
        let text = std::fs::read(path).map_err(|error| wrong(format!("cannot be read ({error})")))?;
        let found = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
        let found = found.map_err(|error| wrong(format!("is not as PEM is written ({error})")))?;
        if found.is_empty() {
            return Err(wrong("holds no certificate".into()));
        }
        let trusted = found.into_iter().map(|one| {
            // Tried here: what is no certificate would be found when the first event is to be sent.
            RootCertStore::empty().add(one.clone()).map_err(|error| error.to_string())?;
            Certificate::from_der(&one).map_err(|error| error.to_string())?;
            Ok(one)
        });
        let trusted = trusted.collect::<Result<Vec<_>, String>>();
        Ok(Self(trusted.map_err(|error| wrong(format!("holds something that is no certificate ({error})")))?))
    }

    /// All of them were tried when they were read.
    pub(super) fn certificates(&self) -> impl IntoIterator<Item = Certificate> {
        self.0.iter().filter_map(|one| Certificate::from_der(one).ok()).collect::<Vec<_>>()
    }
}

/// Why a receiver's certificate was not accepted, and what to do; none if it is not for that.
pub(super) fn refusal(error: &reqwest::Error) -> Option<String> {
    let rustls::Error::InvalidCertificate(why) = of_tls(error)? else { return None };
    Some(explained(why))
}

/// What TLS has to say about it, however deep. What an error of a socket wraps is not among its causes.
fn of_tls<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let wrapped = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    let within = wrapped.and_then(|wrapped| of_tls(wrapped));
    error.downcast_ref().or(within).or_else(|| of_tls(error.source()?))
}

fn explained(why: &CertificateError) -> String {
    match why {
        CertificateError::UnknownIssuer => "its certificate is by an authority that nobody here trusts: put the \
             authority's certificate into a PEM file, and name that in `webhooks.ca_file` in the config file"
            .into(),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!("its certificate is for another name ({why}): write the name in the URL that the certificate has")
        }
        other => format!("its certificate is not accepted ({other})"),
    }
}
