//! Refuses requests that a web page of another origin makes a browser send.
//!
//! A browser on this machine reaches a server on loopback, whatever page it shows. Three rules keep pages out.
//! Rules 1 and 3 apply to every client:
//!
//! 1. `Host` is one of the server's own names ([`Hosts`]). A page whose DNS name was rebound to this machine sends its
//!    own name. `ensue serve` applies this rule when it has no tokens; a mounted router does not know its names.
//! 2. `Sec-Fetch-Site` and `Origin`, where present, name the server's own origin. Every browser since 2023 sends the first
//!    to loopback and over TLS, and the second with every write.
//! 3. A write carries something that a page cannot send without asking the server first (a CORS preflight, which rule 2
//!    refuses): a JSON content type, or one of [`PROOF_HEADERS`]. A form sends neither.

use super::HttpOptions;
use super::problem::{Kind, Problem};
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::{IntoResponse, Response};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use tower_http::validate_request::ValidateRequest;

/// Content types that a page cannot send without a preflight.
const JSON_TYPES: [&str; 5] = [
    "application/json",
    "application/x-ndjson",
    "application/ndjson",
    "application/cloudevents+json",
    "application/cloudevents-batch+json",
];
/// Headers that neither a form nor a proxy adds. `Authorization` counts with a bearer token only: browsers send basic
/// credentials by themselves.
const PROOF_HEADERS: [&str; 3] = ["x-requested-with", super::tokens::ADMIN_HEADER, super::cloudevents::BINARY_MARK];
const SEC_FETCH_SITE: &str = "sec-fetch-site";

/// The names by which clients may address the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Hosts(Option<Arc<str>>);

impl Hosts {
    /// Any name: for a server with tokens, or behind a proxy.
    pub fn any() -> Self {
        Self(None)
    }

    /// `localhost`, every loopback address, and the host of this listen address. Ports are not compared: a forwarded port
    /// is another one, and a page cannot choose the name of a port.
    pub fn local(listen: &str) -> Self {
        Self(Some(host_of(listen).to_ascii_lowercase().into()))
    }

    fn allows(&self, authority: &str) -> bool {
        let Some(listen) = &self.0 else { return true };
        let host = host_of(authority);
        let is_loopback = match host.strip_prefix('[').and_then(|host| host.strip_suffix(']')) {
            Some(address) => address.parse().is_ok_and(|address: Ipv6Addr| address.is_loopback()),
            None => host.parse().is_ok_and(|address: IpAddr| address.is_loopback()),
        };
        is_loopback || host.eq_ignore_ascii_case("localhost") || host.eq_ignore_ascii_case(listen)
    }
}

/// An authority without its port.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        Some(_) | None => authority,
    }
}

/// Applies the rules to every request.
#[derive(Debug, Clone)]
pub(super) struct SameSite {
    hosts: Hosts,
    /// A token is proof enough, and the guard asks for it.
    has_tokens: bool,
}

impl SameSite {
    pub fn new(options: &HttpOptions) -> Self {
        Self { hosts: options.hosts.clone(), has_tokens: !options.tokens.is_empty() }
    }

    fn check(&self, request: &Request) -> Result<(), Problem> {
        let (uri, headers) = (request.uri(), request.headers());
        check_host(&self.hosts, uri, headers)?;
        check_origin(uri, headers)?;
        if self.has_tokens { Ok(()) } else { check_proof(request.method(), headers) }
    }
}

impl ValidateRequest<Body> for SameSite {
    type ResponseBody = Body;

    fn validate(&mut self, request: &mut Request) -> Result<(), Response> {
        self.check(request).map_err(IntoResponse::into_response)
    }
}

/// The host that the client addresses: in the target, or in the one `Host`.
fn addressed<'r>(uri: &'r Uri, headers: &'r HeaderMap) -> Option<&'r str> {
    if let Some(authority) = uri.authority() {
        return Some(authority.as_str());
    }
    let mut hosts = headers.get_all(header::HOST).into_iter();
    match (hosts.next(), hosts.next()) {
        (Some(host), None) => host.to_str().ok(),
        (Some(_), Some(_)) | (None, _) => None,
    }
}

fn check_host(hosts: &Hosts, uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    if *hosts == Hosts::any() || addressed(uri, headers).is_some_and(|host| hosts.allows(host)) {
        return Ok(());
    }
    let reason = "is not a name of this server; use localhost, 127.0.0.1 or its listen address, or start it with a token \
 (ENSUE_TOKEN or --token-file)";
    Err(Problem::field(Kind::Misdirected, "host", reason))
}

/// The place for an allow list of foreign origins: both refusals are decided here.
fn check_origin(uri: &Uri, headers: &HeaderMap) -> Result<(), Problem> {
    let refusal = |field: &str| {
        let reason = "names another origin; pages of other origins may not use this server";
        Err(Problem::field(Kind::Forbidden, field, reason))
    };
    let site = headers.get(SEC_FETCH_SITE);
    if headers.get_all(SEC_FETCH_SITE).iter().any(|site| site != "same-origin" && site != "none") {
        return refusal(SEC_FETCH_SITE);
    }
    if headers.get_all(header::ORIGIN).iter().count() > 1 {
        return refusal("origin");
    }
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default().split_once("://").map(|(_scheme, authority)| authority);
    let is_own = match (origin, addressed(uri, headers)) {
        (Some(origin), Some(host)) => origin.eq_ignore_ascii_case(host),
        (Some(_), None) | (None, _) => false,
    };
    // Behind a proxy that rewrites `Host` the browser's own verdict counts, for any origin but `null`.
    if is_own || (origin.is_some() && site.is_some()) { Ok(()) } else { refusal("origin") }
}

fn check_proof(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    if !matches!(*method, Method::POST | Method::PUT | Method::PATCH | Method::DELETE) {
        return Ok(());
    }
    let full = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let media = full.split(';').next().unwrap_or_default().trim();
    let bearer = |value: &header::HeaderValue| {
        value.as_bytes().split_at_checked(7).is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "))
    };
    if JSON_TYPES.iter().any(|json| media.eq_ignore_ascii_case(json))
        || PROOF_HEADERS.iter().any(|name| headers.contains_key(*name))
        || headers.get(header::AUTHORIZATION).is_some_and(bearer)
    {
        return Ok(());
    }
    let given = match media {
        "" => "is missing".to_owned(),
        media => format!("is `{}`", media.chars().take(80).collect::<String>()),
    };
    let reason = format!(
        "{given}; send `Content-Type: application/json` with every write, also with one that has no body \
         (curl: -H 'Content-Type: application/json'), or the header `X-Requested-With`. Events may also come as \
         application/x-ndjson, application/cloudevents+json or application/cloudevents-batch+json"
    );
    Err(Problem::field(Kind::UnsupportedMediaType, "content-type", reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn own_names_are_loopback_and_the_listen_address() {
        let hosts = Hosts::local("ensue.internal:4747");
        let own = ["localhost", "LOCALHOST:4747", "127.0.0.1", "127.8.9.10:80", "[::1]", "[::1]:4747"];
        for host in own.into_iter().chain(["ensue.internal", "Ensue.Internal:1"]) {
            assert!(hosts.allows(host), "{host}");
        }
        let foreign = ["", "evil.test", "evil.test:4747", "localhost.evil.test", "127.0.0.1.evil.test", "128.0.0.1"];
        for host in foreign.into_iter().chain(["[::2]", "0.0.0.0", "localhost:x", "[::ffff:8.8.8.8]", "::1"]) {
            assert!(!hosts.allows(host), "{host}");
            assert!(Hosts::any().allows(host), "{host}");
        }
    }

    #[test]
    fn host_is_required_once() {
        let uri = Uri::from_static("/");
        let hosts = Hosts::local("127.0.0.1:4747");
        assert!(check_host(&hosts, &uri, &headers(&[("host", "localhost:1")])).is_ok());
        assert!(check_host(&hosts, &uri, &headers(&[])).is_err());
        assert!(check_host(&hosts, &uri, &headers(&[("host", "localhost"), ("host", "evil.test")])).is_err());
        let absolute = Uri::from_static("http://evil.test/v1/events");
        assert!(check_host(&hosts, &absolute, &headers(&[("host", "localhost")])).is_err());
    }

    #[test]
    fn only_the_own_origin_passes() {
        let checked = |pairs: &[(&'static str, &str)]| {
            let headers = headers(&[&[("host", "app.test:80")], pairs].concat());
            check_origin(&Uri::from_static("/"), &headers).is_ok()
        };
        for own in [
            &[][..],
            &[("sec-fetch-site", "none")],
            &[("sec-fetch-site", "same-origin")],
            &[("origin", "http://app.test:80")],
            &[("origin", "https://APP.test:80"), ("sec-fetch-site", "same-origin")],
            // Behind a proxy.
            &[("origin", "https://public.test"), ("sec-fetch-site", "same-origin")],
        ] {
            assert!(checked(own), "{own:?}");
        }
        for foreign in [
            &[("sec-fetch-site", "cross-site")][..],
            &[("sec-fetch-site", "same-site")],
            &[("sec-fetch-site", "")],
            &[("sec-fetch-site", "cross-site"), ("origin", "http://app.test:80")],
            &[("origin", "http://evil.test")],
            &[("origin", "http://app.test:81")],
            &[("origin", "null")],
            &[("origin", "null"), ("sec-fetch-site", "same-origin")],
            &[("origin", "")],
        ] {
            assert!(!checked(foreign), "{foreign:?}");
        }
    }

    #[test]
    fn write_needs_what_a_form_cannot_send() {
        let checked = |method: Method, pairs: &[(&'static str, &str)]| check_proof(&method, &headers(pairs)).is_ok();
        for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
            for proof in [
                ("content-type", "application/json"),
                ("content-type", "Application/JSON; charset=utf-8"),
                ("content-type", "application/cloudevents-batch+json"),
                ("authorization", "bearer x"),
                ("x-admin-token", "x"),
                ("x-requested-with", "curl"),
                ("ce-specversion", "1.0"),
            ] {
                assert!(checked(method.clone(), &[proof]), "{method} {proof:?}");
            }
            for none in [
                ("accept", "*/*"),
                ("content-type", ""),
                ("content-type", "text/plain"),
                ("content-type", "text/plain; application/json"),
                ("content-type", "application/x-www-form-urlencoded"),
                ("content-type", "multipart/form-data; boundary=x"),
                ("authorization", "Basic dTpw"),
                ("x-forwarded-for", "10.0.0.1"),
            ] {
                assert!(!checked(method.clone(), &[none]), "{method} {none:?}");
            }
        }
        assert!(checked(Method::GET, &[]) && checked(Method::HEAD, &[]) && checked(Method::OPTIONS, &[]));
    }
}
