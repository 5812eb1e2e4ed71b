//! The proxy as a whole: names, addresses and servers are the tests' own, and nothing is looked up or dialled but them.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail like tests")]

mod bounds;
mod credentials;
mod http;
mod refusals;
mod tls;
mod world;
