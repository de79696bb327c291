//! What does the query ask for?
//!
//! A parameter that is misspelt and ignored answers another question than the one asked, so unknown ones are refused
//! by name, and so is one that stands twice.

use super::problem::{Kind, Problem};
use super::text;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use ensue::{Direct, Filter, GroupName, Json, ObjectKey, Seq, Timestamp, Topic, Wanted, Where};
use uuid::Uuid;

/// The largest place a store can hold: it keeps signed 64-bit numbers.
pub(super) const SEQ_MAX: Seq = i64::MAX as Seq;
/// How many events a page has unless told.
const LIMIT_DEFAULT: usize = 100;
/// The most events a page has.
pub(super) const LIMIT_MAX: usize = 1_000;

/// Of a request that asks for nothing with its query: one that has some is refused.
pub(super) struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Query::parse(parts.uri.query(), &[]).map(|_| Self)
    }
}

/// The parameters of a request, by name.
pub(super) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads the query; every parameter must be among `known`.
    pub fn parse(raw: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for pair in raw.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = text::percent_decode(name.as_bytes(), true) else {
                return Err(Problem::bad_request(
                    "query",
                    "has a parameter whose name is not UTF-8; encode it as UTF-8",
                ));
            };
            if !known.contains(&name.as_str()) {
                return Err(unknown(name, known));
            }
            let Some(value) = text::percent_decode(value.as_bytes(), true) else {
                return Err(Problem::bad_request(name, "is not UTF-8; percent-encode it as UTF-8"));
            };
            if pairs.iter().any(|(earlier, _)| *earlier == name) {
                return Err(Problem::bad_request(name, "stands twice in the query; send it once"));
            }
            pairs.push((name, value));
        }
        Ok(Self(pairs))
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A place in the log.
    pub fn seq(&self, name: &'static str) -> Result<Option<Seq>, Problem> {
        self.text(name).map(|value| seq(name, value)).transpose()
    }

    /// The name of a group, or the key of a handler.
    pub fn group(&self, name: &'static str) -> Result<Option<GroupName>, Problem> {
        self.text(name).map(|value| GroupName::parse(name, value)).transpose().map_err(Problem::of_request)
    }

    pub fn time(&self, name: &'static str) -> Result<Option<Timestamp>, Problem> {
        self.text(name).map(|value| text::time(Kind::BadRequest, name, value)).transpose()
    }

    /// How many events a page may have.
    pub fn page_limit(&self) -> Result<usize, Problem> {
        let Some(value) = self.text("limit") else { return Ok(LIMIT_DEFAULT) };
        match value.parse() {
            Ok(limit @ 1..=LIMIT_MAX) => Ok(limit),
            _ => Err(Problem::bad_request("limit", format!("is `{value}`; write a number from 1 to {LIMIT_MAX}"))),
        }
    }

    /// After how many events a stream ends, if it is to end.
    pub fn stream_limit(&self) -> Result<Option<u64>, Problem> {
        let Some(value) = self.text("limit") else { return Ok(None) };
        match value.parse() {
            Ok(limit @ 1..) => Ok(Some(limit)),
            _ => Err(Problem::bad_request("limit", format!("is `{value}`; write a number from 1, or leave it out"))),
        }
    }

    /// Which events are wanted.
    pub async fn wanted(&self) -> Result<Wanted, Problem> {
        Ok(Wanted { filter: self.filter()?, condition: self.condition().await?, direct: self.direct()? })
    }

    /// Whether direct messages are wanted.
    pub fn direct(&self) -> Result<Direct, Problem> {
        let id = self.text("subscription").map(|id| {
            let reason = "is not the id of a subscription, a UUID; use one that subscribing to a group answered";
            Uuid::parse_str(id).map_err(|_| Problem::bad_request("subscription", reason))
        });
        match (self.text("include"), id.transpose()?) {
            (None, None) => Ok(Direct::Exclude),
            (None, Some(id)) => Ok(Direct::To(id)),
            (Some("direct"), None) => Ok(Direct::Include),
            (Some("direct"), Some(_)) => {
                let reason = "cannot be combined with `include=direct`, which has the messages to all subscriptions; \
                              omit one of them";
                Err(Problem::bad_request("subscription", reason))
            }
            (Some(_), _) => Err(Problem::bad_request("include", "must be `direct`, or be omitted")),
        }
    }

    /// The condition in `where`, with its `params`. What it says cannot be carried out, however well it can be read: 422.
    async fn condition(&self) -> Result<Option<Where>, Problem> {
        let params = self.text("params");
        let Some(condition) = self.text("where") else {
            return match params {
                None => Ok(None),
                Some(_) => {
                    let reason = "is given without `where`; add a condition that reads s.params, or leave it out";
                    Err(Problem::invalid("params", reason))
                }
            };
        };
        let params = params.map(|text| Json::parse("params", text)).transpose()?.unwrap_or_else(Json::empty_object);
        Ok(Some(Where::parse_off_thread(condition, params).await?))
    }

    fn filter(&self) -> Result<Filter, Problem> {
        Ok(Filter {
            topic: self.text("topic").map(Topic::parse_filter).transpose().map_err(Problem::of_request)?,
            object: self.text("object").map(ObjectKey::parse_filter).transpose().map_err(Problem::of_request)?,
        })
    }
}

/// A place in the log, from a query or a header.
pub(super) fn seq(name: &'static str, value: &str) -> Result<Seq, Problem> {
    let all_digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    match value.parse() {
        Ok(seq @ 0..=SEQ_MAX) if all_digits => Ok(seq),
        _ => {
            let shown: String = value.chars().take(40).collect();
            Err(Problem::bad_request(name, format!("is `{shown}`; write the seq of an event, a whole number from 0")))
        }
    }
}

fn unknown(name: String, known: &[&str]) -> Problem {
    match known.is_empty() {
        true => Problem::bad_request(name, "is not known: this request takes no parameters"),
        false => {
            Problem::bad_request(name, format!("is not a parameter of this request; it takes {}", known.join(", ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(raw: &str) -> String {
        match Query::parse(Some(raw), &["after", "limit"]) {
            Err(problem) => problem.detail().to_string(),
            Ok(query) => query.seq("after").err().or(query.page_limit().err()).unwrap().detail().to_string(),
        }
    }

    #[test]
    fn parameters_are_decoded() {
        let query = Query::parse(Some("object=a%2Fb+c&topic=x"), &["object", "topic"]).unwrap();
        assert_eq!(query.text("object"), Some("a/b c"));
        assert_eq!(query.filter().unwrap().topic, Some(Topic::stored("x")));
    }

    #[test]
    fn every_fault_names_its_parameter() {
        for (raw, named) in [
            ("after=-1", "`after`"),
            ("after=%2B1", "`after`"),
            ("after=", "`after`"),
            ("after=9223372036854775808", "`after`"),
            ("limit=0", "`limit`"),
            ("limit=1001", "`limit`"),
            ("after=1&after=2", "`after`"),
            ("afetr=1", "`afetr`"),
            ("where=true", "`where`"),
            ("after=%ff", "`after`"),
        ] {
            assert!(refusal(raw).starts_with(named), "{raw}: {}", refusal(raw));
        }
    }
}
