//! How is a refusal described?
//!
//! Each kind of refusal is described once, as a component of `/openapi.json`; the operations refer to those that they
//! can be answered with. Who writes a client finds one type for each.

use super::openapi::BEFORE_ROUTES;
use super::problem::{PROBLEM_JSON, ProblemBody};
use std::collections::BTreeMap;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Components, Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

type Responses = BTreeMap<String, RefOr<Response>>;

/// Makes a type for each refusal, to be named among the `responses` of an operation, and [`describe`], which adds them all
/// to the description.
macro_rules! refusals {
    ($($name:ident: $status:literal, $description:expr;)+) => {
        $(
            #[doc = $description]
            pub(super) struct $name;

            impl IntoResponses for $name {
                fn responses() -> Responses {
                    let reference = Ref::from_response_name(stringify!($name));
                    BTreeMap::from([($status.to_string(), reference.into())])
                }
            }
        )+

        /// Adds every refusal to the description.
        pub(super) fn describe(components: &mut Components) {
            $(components.responses.insert(stringify!($name).to_string(), problem($description).into());)+
            for (_, name, description) in BEFORE_ROUTES {
                components.responses.insert(name.to_string(), problem(description).into());
            }
        }
    };
}

refusals! {
    BadRequest: 400, "The request cannot be read: it is not JSON, or has a bad path, parameter or header";
    Unauthorized: 401, "The token is missing or unknown";
    NotFound: 404, "There is no such thing, or not any more";
    TooSlow: 408, "The body did not come in time; nothing was stored";
    KeyConflict: 409, "A key was used for another event; nothing was stored. `field` names its place";
    Conflict: 409, "It does not go with what is there: the lease is lost, somebody else has it, or the group is a \
        handler's. Nothing was changed";
    AlreadyLogged: 409, "The event is in the log already, and stays there";
    TooLarge: 413, "The body is too large; nothing was stored";
    UnsupportedMediaType: 415, "The content type is not understood";
    Invalid: 422, "A field or parameter can be read and says something that cannot be; nothing was stored";
    ServerFailed: 500, "The server failed; its log says more";
    Unavailable: 503, "The store cannot do it right now. With `Retry-After`: send the request again. With the type \
        `overloaded`: too many large bodies are under way. With the type \
        `in-doubt`: whether it was done is not known, so look first; events with a key can be sent again without being \
        stored twice";
    NotReady: 503, "The store does not answer within 2 s, or work on it has failed for seconds";
    DiskFull: 507, "The disk is full; nothing was stored";
}

/// What any request that needs a token and a store can be answered.
pub(super) struct StoreProblems;

impl IntoResponses for StoreProblems {
    fn responses() -> Responses {
        [Unauthorized::responses(), ServerFailed::responses(), Unavailable::responses()].into_iter().flatten().collect()
    }
}

/// What any request that has a body and changes something can be answered.
pub(super) struct BodyProblems;

impl IntoResponses for BodyProblems {
    fn responses() -> Responses {
        let of_the_body = [BadRequest::responses(), TooSlow::responses(), TooLarge::responses()];
        let of_what_it_says = [UnsupportedMediaType::responses(), Invalid::responses(), DiskFull::responses()];
        let all = of_the_body.into_iter().chain(of_what_it_says).chain([StoreProblems::responses()]);
        all.flatten().collect()
    }
}

fn problem(description: &str) -> Response {
    let schema = Ref::from_schema_name(ProblemBody::name());
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, Content::new(Some(schema))).build()
}
