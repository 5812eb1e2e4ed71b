//! A client of the HTTP API `/v1`, on the shapes of `mayfly_wire`.
//!
//! Start with [`Client`]: it has a method for each route, in `routes`. What every request goes through is in `call`:
//! its bounds, and when it is repeated. `events` follows a job's stream across lost connections, `page` walks a list.
//! `in_process` reaches an API without a connection, by the same requests.
//! Nothing here is unbounded: each request has a time, each answer a size, each repetition an end.

mod address;
mod body;
mod call;
mod error;
mod events;
mod in_process;
mod key;
mod page;
mod patience;
mod routes;
mod sse;

pub use crate::{
    address::{AddressError, ServerUrl},
    call::{Client, ClientConfig},
    error::{ClientError, Refusal, Source},
    events::{JobEvent, JobEvents},
    key::{ApiKey, KeyError},
    page::{Page, Pages},
    routes::*,
};
