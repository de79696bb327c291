//! Which refusals can every request get?

use super::problem::{PROBLEM_JSON, ProblemBody};
use std::collections::BTreeMap;
use utoipa::openapi::response::Response;
use utoipa::openapi::{Content, Ref, RefOr, ResponseBuilder};
use utoipa::{IntoResponses, ToSchema};

/// For the description: what any request that needs a token and a store can be answered.
pub(super) struct StoreProblems;

impl IntoResponses for StoreProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        let entries = [
            ("401", "The token is missing or unknown"),
            ("500", "The server failed; its log says more"),
            (
                "503",
                "The store cannot do it right now. With `Retry-After`: send the request again. With the type `in-doubt`: \
                 whether it was done is not known, so look first; events with a key can be sent again without being \
                 stored twice",
            ),
        ];
        entries.into_iter().map(|(status, description)| (status.to_string(), problem(description).into())).collect()
    }
}

/// For the description: what a request that needs a token and no store can be answered.
pub(super) struct TokenProblem;

impl IntoResponses for TokenProblem {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        BTreeMap::from([("401".to_string(), problem("The token is missing or unknown").into())])
    }
}

fn problem(description: &str) -> Response {
    let schema = Ref::from_schema_name(ProblemBody::name());
    ResponseBuilder::new().description(description).content(PROBLEM_JSON, Content::new(Some(schema))).build()
}
