//! What an engine says of itself once more, and when that has to be asked: it was away, or has read its configuration.

use std::{collections::HashMap, pin::Pin};

use bollard::{errors::Error, query_parameters as query};
use futures_util::{Stream, StreamExt as _};

use super::{CONNECT_LIMIT, Engine, EngineFacts, call};
use crate::error::EngineError;

/// What an engine tells of its own life.
#[derive(Debug)]
pub(crate) enum EngineWord {
    /// It has read its configuration.
    Reloaded,
    /// It tells nothing of the kind.
    Refused,
    /// It was there, and is gone, or the way to it is.
    Gone,
}

impl Engine {
    /// What the engine says of itself and its host now. [`Engine::facts`] is what it said at the first contact.
    pub(crate) async fn facts_now(&self) -> Result<EngineFacts, EngineError> {
        let asked = async {
            let version = self.client.version().await?;
            Ok((version, self.client.info().await?))
        };
        let (version, info) = call("say what it is", CONNECT_LIMIT, asked).await?;
        Ok(EngineFacts::of(version, info, self.facts.api.clone()))
    }

    /// What the engine tells of its own life from now on, over a connection of its own. It ends with the first word that
    /// is not [`EngineWord::Reloaded`].
    pub(crate) fn words(&self) -> Pin<Box<dyn Stream<Item = EngineWord> + Send>> {
        let options = query::EventsOptions {
            filters: Some(HashMap::from([("type".to_owned(), vec!["daemon".to_owned()])])),
            ..Default::default()
        };
        let told = self.client.events(Some(options)).map(|event| match event {
            Ok(_) => EngineWord::Reloaded,
            Err(Error::DockerResponseServerError { .. }) => EngineWord::Refused,
            Err(_) => EngineWord::Gone,
        });
        let ended = futures_util::stream::iter([EngineWord::Gone]);
        let mut over = false;
        Box::pin(told.chain(ended).take_while(move |word| {
            let goes_on = !over;
            over = !matches!(word, EngineWord::Reloaded);
            std::future::ready(goes_on)
        }))
    }
}
