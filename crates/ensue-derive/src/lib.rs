//! Which topic does a type of somebody's own belong to? The derive that `ensue` hands on as `ensue::Fact`.
//!
//! A derive must be a crate of its own. It depends on none of the others; what it writes, `impl ::ensue::Fact for …`, is
//! compiled where it is used.

mod job;
mod topic;

use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, DeriveInput, Error, LitStr, Result};

const WRITE: &str = "write `#[fact(type = \"record\", action = \"published\")]` for the topic `record.published`";

/// Implements `ensue::Fact`: a payload that knows its topic.
///
/// ```
/// use ensue::{Fact, NewEvent};
///
/// #[derive(serde::Serialize, serde::Deserialize, Fact)]
/// #[fact(type = "record", action = "published")]
/// struct RecordPublished {
///     recid: String,
/// }
///
/// let event = NewEvent::fact(&RecordPublished { recid: "1".into() });
/// assert_eq!(event.check().unwrap().topic.as_str(), "record.published");
/// ```
///
/// The topic is said, never guessed from the name of the type: what is in the log outlives names in a program.
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, ensue::Fact)] // error: no `#[fact(…)]`
/// struct RecordPublished {
///     recid: String,
/// }
/// ```
///
/// Both parts are needed:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, ensue::Fact)]
/// #[fact(type = "record")] // error: no `action`
/// struct RecordPublished {
///     recid: String,
/// }
/// ```
///
/// and what could not be published is refused when it is compiled:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, ensue::Fact)]
/// #[fact(type = "record", action = "is published")] // error: a blank in a topic
/// struct RecordPublished {
///     recid: String,
/// }
/// ```
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, ensue::Fact)]
/// #[fact(type = "ensue", action = "published")] // error: the system's own topics
/// struct RecordPublished {
///     recid: String,
/// }
/// ```
#[proc_macro_derive(Fact, attributes(fact))]
pub fn derive_fact(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    expand(input.into()).unwrap_or_else(Error::into_compile_error).into()
}

/// Implements `ensue::JobArgs`: a payload that knows the handler of its jobs.
///
/// ```
/// use ensue::{Emit, JobArgs};
///
/// #[derive(serde::Serialize, serde::Deserialize, JobArgs)]
/// #[job(handler = "mail.receipt")]
/// struct SendReceipt {
///     order: u64,
/// }
///
/// assert_eq!(SendReceipt::HANDLER, "mail.receipt");
/// assert!(Emit::job(&SendReceipt { order: 7 }).checked().is_ok());
/// ```
///
/// A key that no handler can have is a compile error:
///
/// ```compile_fail
/// #[derive(serde::Serialize, serde::Deserialize, ensue::JobArgs)]
/// #[job(handler = "mail receipt")] // error: a blank in a key
/// struct SendReceipt {
///     order: u64,
/// }
/// ```
#[proc_macro_derive(JobArgs, attributes(job))]
pub fn derive_job_args(input: proc_macro::TokenStream) -> proc_macro::TokenStream {
    job::expand(input.into()).unwrap_or_else(Error::into_compile_error).into()
}

fn expand(input: TokenStream) -> Result<TokenStream> {
    let input: DeriveInput = syn::parse2(input)?;
    if !input.generics.params.is_empty() {
        let reason = "a fact has one topic and one shape, so its type takes no parameters: name them, or write `impl Fact` yourself";
        return Err(Error::new_spanned(&input.generics, reason));
    }
    let Parts { kind, action } = Parts::read(&input)?;
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl ::ensue::Fact for #name {
            const TYPE: &'static str = #kind;
            const ACTION: &'static str = #action;
        }
    })
}

/// What `#[fact(…)]` says.
struct Parts {
    kind: LitStr,
    action: LitStr,
}

impl Parts {
    fn read(input: &DeriveInput) -> Result<Self> {
        let (mut kind, mut action) = (None, None);
        let mut said: Option<&Attribute> = None;
        for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("fact")) {
            if said.replace(attribute).is_some() {
                return Err(Error::new_spanned(attribute, format!("a fact has one topic: {WRITE}, once")));
            }
            if !matches!(attribute.meta, syn::Meta::List(_)) {
                return Err(Error::new_spanned(attribute, format!("this says no topic: {WRITE}")));
            }
            attribute.parse_nested_meta(|meta| {
                let place = if meta.path.is_ident("type") {
                    &mut kind
                } else if meta.path.is_ident("action") {
                    &mut action
                } else {
                    let unknown = meta.path.to_token_stream();
                    return Err(meta.error(format!("`{unknown}` is not known here: {WRITE}")));
                };
                let part: LitStr = meta
                    .value()
                    .and_then(|value| value.parse())
                    .map_err(|error| Error::new(error.span(), format!("a text in quotes belongs here: {WRITE}")))?;
                match place.replace(part) {
                    None => Ok(()),
                    Some(_) => Err(meta.error(format!("this was said before: {WRITE}"))),
                }
            })?;
        }
        match (said, kind, action) {
            (Some(_), Some(kind), Some(action)) => Self::check(kind, action),
            (None, ..) => Err(Error::new_spanned(&input.ident, format!("a fact says its topic: {WRITE}"))),
            (Some(said), None, _) => Err(Error::new_spanned(said, format!("`type` is missing: {WRITE}"))),
            (Some(said), Some(_), None) => Err(Error::new_spanned(said, format!("`action` is missing: {WRITE}"))),
        }
    }

    fn check(kind: LitStr, action: LitStr) -> Result<Self> {
        for (field, part) in [("type", &kind), ("action", &action)] {
            topic::check_part(&part.value())
                .map_err(|reason| Error::new_spanned(part, format!("`{field}` {reason}")))?;
        }
        let topic = format!("{}.{}", kind.value(), action.value());
        topic::check_whole(&topic)
            .map_err(|reason| Error::new_spanned(&kind, format!("the topic `{topic}` {reason}")))?;
        Ok(Self { kind, action })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(attributes: &str) -> String {
        let input: TokenStream = format!("{attributes} struct RecordPublished {{ recid: String }}").parse().unwrap();
        expand(input).map(|code| code.to_string()).unwrap_err().to_string()
    }

    #[test]
    fn the_topic_is_what_the_attribute_says() {
        let input: TokenStream =
            "#[fact(action = \"published\", type = \"acme.record\")] pub enum Published { Once }".parse().unwrap();
        let code = expand(input).unwrap().to_string();
        assert!(code.contains("impl :: ensue :: Fact for Published"), "{code}");
        assert!(code.contains("TYPE : & 'static str = \"acme.record\""), "{code}");
        assert!(code.contains("ACTION : & 'static str = \"published\""), "{code}");
    }

    #[test]
    fn what_is_missing_or_wrong_is_told_with_what_to_write() {
        for (attributes, said) in [
            ("", "a fact says its topic"),
            ("#[serde(default)]", "a fact says its topic"),
            ("#[fact]", "this says no topic"),
            ("#[fact = \"record\"]", "this says no topic"),
            ("#[fact()]", "`type` is missing"),
            ("#[fact(action = \"published\")]", "`type` is missing"),
            ("#[fact(type = \"record\")]", "`action` is missing"),
            ("#[fact(kind = \"record\", action = \"published\")]", "`kind` is not known"),
            ("#[fact(type = 1, action = \"published\")]", "a text in quotes"),
            ("#[fact(type, action = \"published\")]", "a text in quotes"),
            ("#[fact(type = \"a\", type = \"b\", action = \"c\")]", "said before"),
            ("#[fact(type = \"a\", action = \"b\")] #[fact(type = \"a\", action = \"b\")]", "one topic"),
        ] {
            let error = refusal(attributes);
            assert!(error.contains(said), "{attributes}: {error}");
            assert!(
                error.contains("write `#[fact(type = \"record\", action = \"published\")]`"),
                "{attributes}: {error}"
            );
        }
    }

    #[test]
    fn a_topic_that_nobody_could_publish_under_is_not_compiled() {
        for (kind, action, said) in [
            ("", "published", "`type` is empty"),
            ("record", "", "`action` is empty"),
            ("record.", "published", "empty segment"),
            ("record", "is published", "may not contain ' '"),
            ("record", "published!", "may not contain '!'"),
            ("ensue", "published", "system's own"),
            (&"r".repeat(250), "published", "has 260 bytes"),
        ] {
            let error = refusal(&format!("#[fact(type = {kind:?}, action = {action:?})]"));
            assert!(error.contains(said), "{kind}.{action}: {error}");
        }
    }

    #[test]
    fn a_type_with_parameters_is_refused() {
        let input = "#[fact(type = \"a\", action = \"b\")] struct Of<T> { inner: T }".parse().unwrap();
        assert!(expand(input).unwrap_err().to_string().contains("takes no parameters"));
    }
}
