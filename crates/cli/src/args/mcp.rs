//! Tools for language models.

use clap::Args;
use mayfly_core::image::ImageName;

/// Speaks MCP on stdin and stdout, until its stdin is closed: an MCP client starts it. Programs run at the server of the
/// settings, or, where they name none or with `--local`, in sandboxes of this host. What else there is to decide are settings:
/// docs/settings.md, `tools`.
#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    /// The image that programs run in, instead of `tools.image`: a name of the catalog, or a reference with a digest.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<ImageName>,

    /// Offer a tool for shell scripts, too.
    #[arg(long)]
    pub(crate) shell: bool,
}
