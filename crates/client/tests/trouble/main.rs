//! What a client does when the way to the server, or the server itself, is in trouble. The server here is a listener on
//! this host that says exactly what each case needs, byte for byte, over real connections.

#![expect(clippy::unwrap_used, reason = "a test that can't go on has failed")]

mod requests;
mod server;
mod streams;

use std::time::Duration;

use mayfly_client::{ApiKey, Client, ClientConfig, ServerUrl};

use crate::server::Scripted;

/// The key that no output may show.
const KEY: &str = "mayfly_test_hunter2";

fn client(server: &Scripted) -> Client {
    let config = ClientConfig {
        server: ServerUrl::parse(&server.url(), false).unwrap(),
        key: Some(ApiKey::new(KEY).unwrap()),
        ca: None,
        timeout: Duration::from_secs(10),
        patience: Duration::from_secs(20),
        max_answer: 1 << 20,
    };
    Client::new(config).unwrap()
}
