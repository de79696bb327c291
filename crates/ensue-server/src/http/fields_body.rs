//! What does a body say that is an object of a few fields?
//!
//! Taken apart as those of events are (`body.rs`): unknown and doubled fields are refused by name, and a field that
//! says `null` is not there.

mod nested;

pub(super) use nested::OneOrMany;

use super::HttpOptions;
use super::body::{self, Place};
use super::problem::{Kind, Problem};
use super::publish::read_body;
use super::query::SEQ_MAX;
use crate::config::units::Span;
use axum::body::Bytes;
use axum::extract::Request;
use axum::http::header;
use ensue::positions::Start;
use ensue::{Json, Seq};
use jiff::SignedDuration;
use serde_json::value::RawValue;
use std::time::Duration;

/// A body, whole and well-formed.
pub(super) struct FieldsBody {
    bytes: Bytes,
    known: &'static [&'static str],
}

/// Its fields.
pub(super) struct BodyFields<'b>(Vec<(&'static str, &'b RawValue)>);

impl FieldsBody {
    /// Takes the body of a request; every field must be among `known`. None at all is an object without fields.
    pub async fn take(
        request: Request,
        options: &HttpOptions,
        known: &'static [&'static str],
    ) -> Result<Self, Problem> {
        let kind = request.headers().get(header::CONTENT_TYPE).cloned();
        let bytes = read_body(request.into_body(), options).await?;
        if !bytes.is_empty() {
            let kind = kind.as_ref().map(|kind| String::from_utf8_lossy(kind.as_bytes()).to_ascii_lowercase());
            let media = kind.as_deref().unwrap_or_default().split(';').next().unwrap_or_default().trim().to_string();
            if media != "application/json" {
                let reason = "is not application/json; send JSON, and say so in this header";
                return Err(Problem::field(Kind::UnsupportedMediaType, "content-type", reason));
            }
        }
        Ok(Self { bytes, known })
    }

    /// A body that did not come with a request.
    pub fn of_text(text: &str, known: &'static [&'static str]) -> Self {
        Self { bytes: Bytes::copy_from_slice(text.as_bytes()), known }
    }

    /// Its fields, each once.
    pub fn fields(&self) -> Result<BodyFields<'_>, Problem> {
        let text = self.text()?;
        match text.trim().is_empty() {
            true => Ok(BodyFields(Vec::new())),
            false => BodyFields::of("body", text, self.known),
        }
    }

    fn text(&self) -> Result<&str, Problem> {
        std::str::from_utf8(&self.bytes).map_err(|_| not_json("body", "it is not UTF-8"))
    }
}

fn not_json(name: &str, why: impl std::fmt::Display) -> Problem {
    Problem::field(Kind::NotJson, name, format!("is not JSON: {why}"))
}

impl<'b> BodyFields<'b> {
    /// The fields of a JSON object that is called `name`; every one must be among `known`.
    fn of(name: &str, text: &'b str, known: &'static [&'static str]) -> Result<Self, Problem> {
        let raw: &RawValue = serde_json::from_str(text).map_err(|error| not_json(name, error))?;
        if !raw.get().starts_with('{') {
            let reason = match known {
                [] => "has no fields here: leave it out, or send {}".to_owned(),
                known => format!("must be a JSON object; its fields here are {}", known.join(", ")),
            };
            return Err(Problem::invalid(name, reason));
        }
        let fields: body::Fields<'_> = serde_json::from_str(text).map_err(|error| not_json(name, error))?;
        let mut found: Vec<(&'static str, &RawValue)> = Vec::new();
        for (field, value) in fields.0 {
            let Some(known_as) = known.iter().find(|known| ***known == *field) else {
                let shown: String = field.chars().take(80).collect();
                let reason = match known {
                    [] => "is not a field of this request; it has none: leave its body out".to_owned(),
                    known => format!("is not a field of this request; those are {}", known.join(", ")),
                };
                return Err(Problem::invalid(shown, reason));
            };
            if found.iter().any(|(earlier, _)| earlier == known_as) {
                return Err(Problem::invalid(*known_as, "stands twice in the body; send it once"));
            }
            found.push((known_as, value));
        }
        Ok(BodyFields(found))
    }
}

impl<'b> BodyFields<'b> {
    fn given(&self, name: &str) -> Option<&'b RawValue> {
        body::given(self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    }

    /// A text.
    pub fn text(&self, name: &'static str) -> Result<Option<String>, Problem> {
        let text = |value| body::string(Place::Alone, name, value).map(|text| text.into_owned());
        self.given(name).map(text).transpose()
    }

    /// Yes or no; no if it is left out.
    pub fn flag(&self, name: &'static str) -> Result<bool, Problem> {
        match self.given(name).map(RawValue::get) {
            None | Some("false") => Ok(false),
            Some("true") => Ok(true),
            Some(_) => Err(Problem::invalid(name, "must be true or false")),
        }
    }

    /// A whole number.
    pub fn number(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        let Some(value) = self.given(name) else { return Ok(None) };
        let digits = value.get().bytes().all(|byte| byte.is_ascii_digit());
        match value.get().parse() {
            Ok(number @ 0..=SEQ_MAX) if digits => Ok(Some(number)),
            _ => Err(Problem::invalid(name, "must be a whole number from 0, without quotes")),
        }
    }

    /// A length of time in milliseconds.
    pub fn millis(&self, name: &'static str) -> Result<Option<Duration>, Problem> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// A length of time as people write it.
    pub fn span(&self, name: &'static str) -> Result<Option<SignedDuration>, Problem> {
        let Some(text) = self.text(name)? else { return Ok(None) };
        match text.parse::<Span>() {
            Ok(span) => Ok(Some(span.0)),
            Err(_) => {
                let reason = "is no length of time: write a whole number and a unit, such as 30s, 5m, 2h or 7d";
                Err(Problem::invalid(name, reason))
            }
        }
    }

    /// Any JSON.
    pub fn json(&self, name: &'static str) -> Result<Option<Json>, Problem> {
        Ok(self.given(name).map(|value| Json::parse(name, value.get())).transpose()?)
    }

    /// A place of the log: a number, `now` or `beginning`.
    pub fn place(&self, name: &'static str) -> Result<Option<Start>, Problem> {
        let Some(value) = self.given(name) else { return Ok(None) };
        match value.get() {
            "\"now\"" => Ok(Some(Start::Now)),
            "\"beginning\"" => Ok(Some(Start::Beginning)),
            digits if !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                Ok(self.number(name)?.map(|seq: Seq| Start::After(seq)))
            }
            _ => {
                let reason = "must be \"now\", \"beginning\", or a seq: the number of the last event that is done with";
                Err(Problem::invalid(name, reason))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(text: &str) -> FieldsBody {
        let known = &["text", "flag", "number", "span", "json", "place"];
        FieldsBody { bytes: Bytes::copy_from_slice(text.as_bytes()), known }
    }

    #[test]
    fn fields_are_read_by_their_kind_and_null_is_nothing() {
        let body = body(r#" {"text":"a\u0062","flag":true,"number":7,"span":"5m","json":[1, 2],"place":3} "#);
        let fields = body.fields().unwrap();
        assert_eq!(fields.text("text").unwrap().as_deref(), Some("ab"));
        assert!(fields.flag("flag").unwrap());
        assert_eq!(fields.number("number").unwrap(), Some(7));
        assert_eq!(fields.span("span").unwrap(), Some(SignedDuration::from_mins(5)));
        assert_eq!(fields.json("json").unwrap().unwrap().as_str(), "[1,2]");
        assert_eq!(fields.place("place").unwrap(), Some(Start::After(3)));
        let body = self::body(r#"{"text":null,"number":null,"place":"beginning"}"#);
        let fields = body.fields().unwrap();
        assert_eq!((fields.text("text").unwrap(), fields.number("number").unwrap()), (None, None));
        assert_eq!(fields.place("place").unwrap(), Some(Start::Beginning));
        assert!(self::body("").fields().unwrap().0.is_empty());
    }

    #[test]
    fn every_fault_names_its_field() {
        for (text, named) in [
            ("{", "`body` is not JSON"),
            ("[]", "`body` must be a JSON object"),
            (r#"{"number":-1}"#, "`number` must be a whole number"),
            (r#"{"number":1.5}"#, "`number` must be a whole number"),
            (r#"{"number":"7"}"#, "`number` must be a whole number"),
            (r#"{"number":99999999999999999999}"#, "`number` must be a whole number"),
            (r#"{"flag":1}"#, "`flag` must be true or false"),
            (r#"{"text":7}"#, "`text` must be a string"),
            (r#"{"span":5}"#, "`span` must be a string"),
            (r#"{"span":"0s"}"#, "`span` is no length of time"),
            (r#"{"place":"soon"}"#, "`place` must be"),
            (r#"{"place":-1}"#, "`place` must be"),
            (r#"{"palce":1}"#, "`palce` is not a field"),
            (r#"{"flag":true,"flag":true}"#, "`flag` stands twice"),
            (r#"{"json":"\u0000"}"#, "`json`"),
        ] {
            let refused = |body: &FieldsBody| -> Result<(), Problem> {
                let fields = body.fields()?;
                fields.text("text")?;
                fields.flag("flag")?;
                fields.number("number")?;
                fields.span("span")?;
                fields.json("json")?;
                fields.place("place").map(drop)
            };
            let detail = refused(&body(text)).unwrap_err().detail().to_string();
            assert!(detail.starts_with(named), "{text}: {detail}");
        }
    }
}
