//! Who may come in?
//!
//! A token is hashed as soon as it is read and only its digest is kept. All digests are compared in constant time, none
//! skipped, so an answer's time tells nothing. The check reads one header and happens before the body is looked at.

use super::problem::{Kind, Problem};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use subtle::{Choice, ConditionallySelectable, ConstantTimeEq};

/// The tokens that open the API. None at all: it is open to everybody who can reach it.
#[derive(Clone, Default)]
pub struct Tokens {
    digests: Arc<[[u8; 32]]>,
    /// What each is called, in the same order.
    names: Arc<[Arc<str>]>,
}

/// Whose token a request carries.
#[derive(Debug, Clone)]
pub(super) struct Author(pub Arc<str>);

/// The other header for a token, on the paths of tasks.
pub(super) const ADMIN_HEADER: &str = "x-admin-token";

/// Who asks where no token is needed.
pub(super) const LOCAL: &str = "local";

impl Tokens {
    /// The tokens with these secrets, called `token 1` and so on.
    pub fn of<S: AsRef<str>>(secrets: impl IntoIterator<Item = S>) -> Self {
        Self::named(secrets.into_iter().enumerate().map(|(index, secret)| (format!("token {}", index + 1), secret)))
    }

    /// Tokens with what they are called, which is the author of what is done with them, and their secrets.
    pub fn named<N: AsRef<str>, S: AsRef<str>>(tokens: impl IntoIterator<Item = (N, S)>) -> Self {
        let pairs = tokens.into_iter().map(|(name, secret)| {
            let digest: [u8; 32] = Sha256::digest(secret.as_ref()).into();
            (digest, Arc::<str>::from(name.as_ref()))
        });
        let (digests, names): (Vec<_>, Vec<_>) = pairs.unzip();
        Self { digests: digests.into(), names: names.into() }
    }

    /// Is the API open to everybody?
    pub fn is_empty(&self) -> bool {
        self.digests.is_empty()
    }

    /// Whose secret it is, if it is anybody's.
    fn admit(&self, secret: &[u8]) -> Option<Author> {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let (mut known, mut which) = (Choice::from(0), 0u64);
        for (index, one) in self.digests.iter().enumerate() {
            let is_it = one.ct_eq(&digest);
            which.conditional_assign(&(index as u64), is_it);
            known |= is_it;
        }
        let name = self.names.get(which as usize)?;
        bool::from(known).then(|| Author(name.clone()))
    }
}

/// Tells how many there are and nothing of what they are.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.digests.len())
    }
}

/// Lets a request through if it carries a token, or if none is needed.
pub(super) async fn check(State(tokens): State<Tokens>, mut request: Request, next: Next) -> Response {
    match judge(&tokens, request.uri().path(), request.headers()) {
        Ok(author) => {
            if let Some(author) = author {
                request.extensions_mut().insert(author);
            }
            next.run(request).await
        }
        Err((problem, challenge)) => {
            let mut response = problem.into_response();
            response.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static(challenge));
            response
        }
    }
}

/// Whether a request may see what only those with a token see.
pub(super) fn admits(tokens: &Tokens, headers: &HeaderMap) -> bool {
    judge(tokens, "", headers).is_ok()
}

/// Who asks; nobody in particular where no token is needed.
fn judge(tokens: &Tokens, path: &str, headers: &HeaderMap) -> Result<Option<Author>, (Problem, &'static str)> {
    let refusal = |reason: &str| Problem::field(Kind::Unauthorized, "authorization", reason);
    if tokens.is_empty() {
        return Ok(None);
    }
    let is_of_tasks = path == "/tasks" || path.starts_with("/tasks/");
    if let Some(value) =
        headers.get(ADMIN_HEADER).filter(|_| is_of_tasks && !headers.contains_key(header::AUTHORIZATION))
    {
        return tokens.admit(value.as_bytes().trim_ascii()).map(Some).ok_or_else(|| {
            let reason = "is no token of this server; send one that it was started with";
            let problem = Problem::field(Kind::Unauthorized, ADMIN_HEADER, reason);
            (problem, "Bearer realm=\"ensue\", error=\"invalid_token\"")
        });
    }
    let Some(value) = headers.get(header::AUTHORIZATION) else {
        let reason = match is_of_tasks {
            true => {
                "is missing; send the header `Authorization: Bearer TOKEN` or `X-Admin-Token: TOKEN` with a token of this server"
            }
            false => "is missing; send the header `Authorization: Bearer TOKEN` with a token of this server",
        };
        return Err((refusal(reason), "Bearer realm=\"ensue\""));
    };
    let secret = value.as_bytes().split_at_checked(7).filter(|(scheme, _)| scheme.eq_ignore_ascii_case(b"bearer "));
    match secret.and_then(|(_, secret)| tokens.admit(secret.trim_ascii())) {
        Some(author) => Ok(Some(author)),
        None => {
            let reason =
                "has no token of this server; send `Authorization: Bearer TOKEN` with one that it was started with";
            Err((refusal(reason), "Bearer realm=\"ensue\", error=\"invalid_token\""))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admitted(tokens: &Tokens, value: &str) -> bool {
        let headers = HeaderMap::from_iter([(header::AUTHORIZATION, HeaderValue::from_str(value).unwrap())]);
        judge(tokens, "/v1/events", &headers).is_ok()
    }

    #[test]
    fn any_of_the_tokens_opens_and_nothing_else_does() {
        let tokens = Tokens::of(["first", "second"]);
        for good in ["Bearer first", "bearer second", "Bearer  second"] {
            assert!(admitted(&tokens, good), "{good}");
        }
        for bad in
            ["", "Bearer", "Bearer ", "first", "Basic first", "Bearer firs", "Bearer first second", "Bearerfirst"]
        {
            assert!(!admitted(&tokens, bad), "{bad}");
        }
        assert!(judge(&tokens, "/", &HeaderMap::new()).is_err());
        assert!(judge(&Tokens::default(), "/", &HeaderMap::new()).is_ok());
    }

    #[test]
    fn the_other_header_opens_the_paths_of_tasks_alone() {
        let tokens = Tokens::of(["first"]);
        let with = |value: &'static str| {
            HeaderMap::from_iter([(ADMIN_HEADER.parse().unwrap(), HeaderValue::from_static(value))])
        };
        for (path, value, opens) in [
            ("/tasks", "first", true),
            ("/tasks/", "first", true),
            ("/tasks/a_b_c/logs", "first", true),
            ("/tasks", "second", false),
            ("/tasks", "", false),
            ("/tasksx", "first", false),
            ("/v1/jobs", "first", false),
        ] {
            assert_eq!(judge(&tokens, path, &with(value)).is_ok(), opens, "{path} {value}");
        }
        // One that is wrong is not made good by the other.
        let mut both = with("first");
        both.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer wrong"));
        assert!(judge(&tokens, "/tasks", &both).is_err());
    }

    #[test]
    fn whose_token_it_is_is_known() {
        let tokens = Tokens::named([("ann", "first"), ("bob", "second"), ("cid", "third")]);
        for (secret, name) in [("first", "ann"), ("second", "bob"), ("third", "cid")] {
            assert_eq!(tokens.admit(secret.as_bytes()).map(|author| author.0.to_string()).as_deref(), Some(name));
        }
        assert!(tokens.admit(b"fourth").is_none());
    }

    #[test]
    fn a_token_is_not_shown() {
        let tokens = Tokens::of(["canary"]);
        assert_eq!(format!("{tokens:?}"), "Tokens(1)");
    }
}
