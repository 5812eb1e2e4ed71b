//! The protocol over streamable HTTP, as a route of the server's own API.

use std::sync::Arc;

use axum::Router;
use mayfly_tools::Toolbox;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::never::NeverSessionManager,
};
use tokio_util::task::TaskTracker;

use crate::handler::{By, Handler};

/// What the route is made of.
pub struct HttpParts {
    /// The tools. Each call is made by the key of its own request.
    pub toolbox: Toolbox,
    /// Names by which clients reach the server, as they stand in `Host`, with a port or for any: requests that name another
    /// are refused, since a browser may have been led here by a name that somebody else's DNS has given this address.
    pub allowed_hosts: Vec<String>,
    /// Pages whose scripts may ask, as they stand in `Origin`; every other page's are refused.
    pub allowed_origins: Vec<String>,
}

/// The route `/mcp`. Whoever serves it lets only those requests through that show a valid API key.
pub fn http(parts: HttpParts) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_allowed_hosts(parts.allowed_hosts)
        .with_allowed_origins(parts.allowed_origins)
        .enforce_origin_validation()
        .with_legacy_session_mode(false);
    let handler = Handler {
        toolbox: parts.toolbox,
        by: By::Caller,
        calls: TaskTracker::new(),
        open: None,
    };
    let service = StreamableHttpService::new(
        move || Ok(handler.clone()),
        Arc::new(NeverSessionManager::default()),
        config,
    );
    Router::new().route_service("/mcp", service)
}
