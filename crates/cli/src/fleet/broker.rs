//! The broker, by the settings.

use std::{num::NonZeroU16, sync::Arc};

use mayfly_failpoints::times_divided_by;
use mayfly_queue::rabbitmq::{RabbitConfig, RabbitQueue};
use mayfly_settings::Secret;

use crate::failure::Failure;

/// A queue that connects when it is first used, and again whenever it must.
pub(crate) fn connect(url: &Secret, role: &str) -> Result<Arc<RabbitQueue>, Failure> {
    let config = RabbitConfig::new(url.expose().to_owned());
    // Shorter with the times of the protocol, where a test asks for that.
    let seconds = u32::from(config.heartbeat_seconds.get()) / times_divided_by();
    let seconds = u16::try_from(seconds).ok().and_then(NonZeroU16::new);
    let queue = RabbitQueue::connect(RabbitConfig {
        name: format!("mayfly {role} {}", env!("CARGO_PKG_VERSION")),
        heartbeat_seconds: seconds.unwrap_or(NonZeroU16::MIN),
        ..config
    });
    queue
        .map(Arc::new)
        .map_err(|error| Failure::usage(format!("setting `broker.url`: {error}")))
}
