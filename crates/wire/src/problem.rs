//! What every error of the API is: a problem document (RFC 9457) with a stable code.

use mayfly_core::fault::Fault;
use serde::{Deserialize, Serialize};
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{
        RefOr, Schema,
        schema::{ObjectBuilder, Type},
    },
};

/// Media type of a problem.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// A problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// `urn:mayfly:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The code in words; the same for every problem of a code.
    pub title: String,
    /// The status of the answer.
    #[schema(minimum = 400, maximum = 599)]
    pub status: u16,
    /// What programs decide by. It never changes its meaning; new ones may come.
    pub code: Code,
    /// What is wrong this time, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Everything that is wrong with the body, each with the path of its field.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<FaultShown>,
    /// By which our log lines about the request are found.
    pub request_id: String,
}

/// One thing that is wrong with a body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FaultShown {
    /// The field, as `limits.memory` or `files[2].path`; empty where it is the whole body.
    pub path: String,
    /// A stable word for programs.
    pub code: String,
    /// What is wrong and what would be right, for people.
    pub message: String,
}

impl From<&Fault> for FaultShown {
    fn from(fault: &Fault) -> Self {
        Self {
            path: fault.path.clone(),
            code: fault.code.to_owned(),
            message: fault.message.clone(),
        }
    }
}

macro_rules! codes {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal, $status:literal, $title:literal;)*) => {
        /// What kind of problem. Each has one status and one title.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code {
            $($(#[doc = $doc])+ #[serde(rename = $word)] $name,)*
            /// One that this program does not know: decide by the status.
            #[serde(other, rename = "unknown")]
            Unknown,
        }

        impl Code {
            /// Every code that an answer of this version has.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The word of it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)* Self::Unknown => "unknown" }
            }

            /// The status that goes with it.
            #[must_use]
            pub const fn status(self) -> u16 {
                match self { $(Self::$name => $status,)* Self::Unknown => 500 }
            }

            /// It in words.
            #[must_use]
            pub const fn title(self) -> &'static str {
                match self { $(Self::$name => $title,)* Self::Unknown => "Something is wrong" }
            }
        }
    };
}

codes! {
    /// The body is no JSON, or ends too early.
    MalformedJson = "malformed_json", 400, "The body is no JSON";
    /// A part of the path, of the query or a header has a value that it can't have.
    InvalidParameter = "invalid_parameter", 400, "A parameter of the request is wrong";
    /// No key was shown, or none that opens anything.
    Unauthenticated = "unauthenticated", 401, "A valid API key is needed";
    /// The key's role may not do this.
    Forbidden = "forbidden", 403, "The key may not do this";
    /// There is no such thing, or it is another tenant's.
    NotFound = "not_found", 404, "There is no such thing";
    /// No route has this path.
    NoSuchRoute = "no_such_route", 404, "There is no such route";
    /// The route exists, with other methods.
    MethodNotAllowed = "method_not_allowed", 405, "The route does not have this method";
    /// The client takes longer for its request than it may.
    RequestTimeout = "request_timeout", 408, "The request took too long to arrive";
    /// The idempotency key was used with another body.
    IdempotencyConflict = "idempotency_conflict", 409, "The idempotency key was used with another body";
    /// Something of this name, or in this state, stands in the way.
    Conflict = "conflict", 409, "That is in conflict with what is there";
    /// It was there, and is not any more.
    Gone = "gone", 410, "It is not there any more";
    /// The body is larger than bodies may be.
    BodyTooLarge = "body_too_large", 413, "The body is too large";
    /// The body is of another media type than the route takes.
    UnsupportedMediaType = "unsupported_media_type", 415, "The body must be JSON";
    /// No byte of the range is kept.
    RangeNotSatisfiable = "range_not_satisfiable", 416, "There is nothing in that range";
    /// The body is JSON, and not what the route takes; `faults` says where.
    InvalidBody = "invalid_body", 422, "The body is not what this route takes";
    /// The job breaks rules of the policy; `faults` has all of them.
    InvalidJob = "invalid_job", 422, "The job breaks rules of its policy";
    /// The image that a job names is not in the catalog.
    ImageNotPinned = "image_not_pinned", 422, "The image is not in the catalog";
    /// The key sends more than it may; `Retry-After` says when to go on.
    RateLimited = "rate_limited", 429, "The key sends requests too quickly";
    /// The tenant has more at once than it may; `Retry-After` says when to go on.
    OverQuota = "over_quota", 429, "The tenant is over its quota";
    /// Trouble of ours that will not pass by itself.
    Internal = "internal", 500, "Something of ours is wrong";
    /// This server can't do that.
    NotSupported = "not_supported", 501, "This server does not do that";
    /// Trouble of ours that passes; `Retry-After` says when to go on.
    Unavailable = "unavailable", 503, "The service is in trouble for the moment";
    /// More requests at once than the server takes; `Retry-After` says when to go on.
    Overloaded = "overloaded", 503, "The server has too many requests at once";
}

impl ToSchema for Code {}

impl PartialSchema for Code {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .description(Some("What kind of problem. Each has one status and one title."))
            .enum_values(Some(Self::ALL.iter().map(|code| code.as_str())))
            .into()
    }
}

impl Problem {
    /// A problem of a code.
    #[must_use]
    pub fn new(code: Code, request_id: impl Into<String>) -> Self {
        Self {
            kind: format!("urn:mayfly:problem:{}", code.as_str()),
            title: code.title().to_owned(),
            status: code.status(),
            code,
            detail: None,
            faults: Vec::new(),
            request_id: request_id.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_its_word_and_one_of_tomorrow_is_read_too() {
        for code in Code::ALL {
            assert_eq!(serde_json::to_value(code).unwrap(), code.as_str());
            assert!((400..600).contains(&code.status()));
        }
        let mut json = serde_json::to_value(Problem::new(Code::NotFound, "r")).unwrap();
        json["code"] = "of_tomorrow".into();
        let problem: Problem = serde_json::from_value(json).unwrap();
        assert_eq!((problem.code, problem.status), (Code::Unknown, 404));
    }
}
