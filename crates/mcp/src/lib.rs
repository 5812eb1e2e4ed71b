//! The tools for models, over the Model Context Protocol: on stdin and stdout ([`stdio()`]), and over streamable HTTP
//! ([`http()`]).
//!
//! `handler` says what each request comes to; all that a call does is `mayfly_tools`. rmcp, which speaks the protocol, stays
//! in here.
//!
//! Decided: over HTTP there are no sessions, so that any replica answers any request and nothing is kept between two; a
//! client that hangs up cancels its call. Absent on purpose: prompts, sampling, subscriptions, and authorization by OAuth: a
//! caller over HTTP shows the API key that everything else of the API is asked with, and gets what that key may do.

mod handler;
mod http;
mod resource;
mod stdio;

pub use crate::{
    http::{HttpParts, http},
    stdio::{AtEnd, StdioError, stdio},
};
