//! Where a command does its work.

use mayfly_settings::Settings;

#[cfg(feature = "fleet")]
use crate::remote::Remote;
use crate::{
    args::Common,
    context::{self, surroundings},
    failure::Failure,
};

/// Where a command does its work.
pub(crate) enum Place {
    /// At a server.
    #[cfg(feature = "fleet")]
    Server(Box<Remote>),
    /// On this host.
    Here(Box<Settings>),
}

impl Place {
    /// At the server that the settings name, or on this host where they name none or a flag says so.
    pub(crate) fn of(common: &Common) -> Result<Self, Failure> {
        let settings = context::settings(surroundings(common))?;
        if common.local || settings.client.server.is_empty() {
            return Ok(Self::Here(Box::new(settings)));
        }
        #[cfg(feature = "fleet")]
        return Remote::new(settings).map(|remote| Self::Server(Box::new(remote)));
        #[cfg(not(feature = "fleet"))]
        Err(Failure::usage(
            "the setting `client.server` names a server, and this build of mayfly can ask none (feature `fleet`): use --local",
        ))
    }

    /// The server, for a command that does nothing on this host.
    #[cfg(feature = "fleet")]
    pub(crate) fn server(common: &Common) -> Result<Remote, Failure> {
        match Self::of(common)? {
            Self::Server(remote) => Ok(*remote),
            Self::Here(_) if common.local => {
                Err(Failure::usage("this is asked of a server: leave --local out"))
            }
            Self::Here(_) => Err(Failure::usage(
                "this is asked of a server, and no setting says where it is: set `client.server` and `client.key_file`, \
                 or MAYFLY_CLIENT__SERVER and MAYFLY_CLIENT__KEY_FILE",
            )),
        }
    }
}
