//! `mayfly mcp`: the tools for models, for a client that has started this process and speaks MCP on its stdin and stdout.
//! Nothing else may be written to stdout; log lines go to stderr as ever.

use std::{process::ExitCode, time::Duration};

use mayfly_client::Client;
use mayfly_core::image::ImageName;
use mayfly_mcp::{AtEnd, HttpParts, StdioError};
use mayfly_settings::Settings;
use mayfly_tools::{Options, Toolbox};
use tokio_util::sync::CancellationToken;

use crate::{
    args::{Common, mcp::McpArgs},
    backend::Backend,
    embedded::Requests,
    exit,
    failure::Failure,
};

/// Longest silence of a call that goes on, and the part of its longest time that it is at most.
const LONGEST_SILENCE: Duration = Duration::from_secs(5);
const NOTICES: u32 = 10;

pub(crate) async fn mcp(common: &Common, args: McpArgs) -> Result<ExitCode, Failure> {
    let mut requests = Requests::new();
    let backend = tokio::select! {
        backend = Backend::of(common) => backend?,
        () = requests.next() => return Ok(ExitCode::from(exit::STOPPED)),
    };
    let served = serve(&backend, args, &mut requests).await;
    backend.stop().await;
    served.map(|()| ExitCode::SUCCESS)
}

async fn serve(backend: &Backend, args: McpArgs, requests: &mut Requests) -> Result<(), Failure> {
    let mut options = options(&backend.settings)?;
    if let Some(image) = args.image {
        options.image = image;
    }
    options.shell |= args.shell;
    let toolbox = Toolbox::new(backend.client.clone(), options);
    let at_end = if backend.is_here() {
        AtEnd::Cancel
    } else {
        AtEnd::Leave
    };
    let stop = CancellationToken::new();
    let serving = mayfly_mcp::stdio(toolbox, at_end, stop.clone());
    let mut serving = std::pin::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = requests.next() => {
            stop.cancel();
            serving.await
        }
    };
    served.map_err(|error| {
        let code = match error {
            StdioError::Begin(_) => exit::PROTOCOL,
            StdioError::Part(_) => exit::INTERNAL,
        };
        Failure::new(code, error)
    })
}

/// What these settings say of tools.
pub(crate) fn options(settings: &Settings) -> Result<Options, Failure> {
    let tools = &settings.tools;
    let image = if tools.image.is_empty() {
        &settings.image.default
    } else {
        &tools.image
    };
    let answer_within = tools.answer_within.as_duration();
    Ok(Options {
        image: image.parse::<ImageName>().map_err(Failure::usage)?,
        shell: tools.shell,
        answer_within,
        progress_every: LONGEST_SILENCE.min(answer_within / NOTICES),
        characters: tools.characters,
        egress: tools.egress.clone(),
        labels: Default::default(),
    })
}

/// The route `/mcp` of a server, where its settings want one. Each call is made at the server's own API, by the key of its
/// request.
pub(crate) fn route(settings: &Settings, api: Client) -> Result<Option<axum::Router>, Failure> {
    if !settings.mcp.serve {
        return Ok(None);
    }
    Ok(Some(mayfly_mcp::http(HttpParts {
        toolbox: Toolbox::new(api, options(settings)?),
        allowed_hosts: settings.mcp.hosts(&settings.server.public_url),
        allowed_origins: settings.mcp.allowed_origins.clone(),
    })))
}
