//! Archives expanded: on a thread of their own, a few at a time, with a bound on what they take up in memory.
//!
//! A body has a bound, and what its archives hold may be two hundred times as much. So before a job's archives are touched
//! there has to be room for the most that they may become, beside the room of the body; what it was too much is given back
//! afterwards, and the rest once the request is answered.

use mayfly_core::{
    digest::Digest,
    fault::Faults,
    image::ImagePin,
    job::{JobSpec, ResolvedJob},
    policy::Policy,
};
use mayfly_wire::problem::Code;
use tokio::sync::OwnedSemaphorePermit;

use crate::{
    app::App,
    error::{ApiError, ApiResult},
    extract::permits,
};

/// What the archives of one request have of the room that there is for all.
#[derive(Debug, Default)]
pub(crate) struct Expansion {
    held: Option<OwnedSemaphorePermit>,
    /// KiB that were expanded, or might have been where an archive was refused.
    used: u32,
}

/// What becomes of a job.
pub(crate) enum Applied {
    Accepted(Box<ResolvedJob>),
    Refused(Faults),
    /// Nothing is wrong with it but its image, which is not known.
    WithoutImage,
    /// Its archives were not looked at: those before them have used up what one request may.
    TooMany,
}

impl Expansion {
    /// Applies the policy to a job. Without a pin only faults are found.
    ///
    /// # Errors
    /// No room within some seconds.
    pub(crate) async fn apply(
        &mut self,
        app: &App,
        spec: JobSpec,
        pin: Option<ImagePin>,
    ) -> ApiResult<Applied> {
        let parts = &app.parts;
        if spec.archives.is_empty() {
            return Ok(apply(spec, pin, &parts.policy, &parts.baseline));
        }
        let most = kib(spec.most_expanded_bytes(&parts.policy.content));
        // The first job of a request always has its turn, whatever its policy lets it have.
        if self.used > 0 && self.used.saturating_add(most) > kib(parts.limits.expanded.as_bytes()) {
            return Ok(Applied::TooMany);
        }
        let all = kib(parts.limits.bodies.as_bytes());
        let mut room = permits(&app.expanded, most.min(all)).await?;
        let turn = permits(&app.expanding, 1).await?;
        let (policy, baseline) = (parts.policy.clone(), parts.baseline);
        let work = move || {
            let _turn = turn;
            apply(spec, pin, &policy, &baseline)
        };
        let applied = tokio::task::spawn_blocking(work)
            .await
            .map_err(|error| ApiError::new(Code::Internal).because(error))?;
        let used = match &applied {
            Applied::Accepted(job) => kib(job.content_bytes()).min(most),
            Applied::Refused(_) | Applied::WithoutImage | Applied::TooMany => most,
        };
        self.used = self.used.saturating_add(used);
        let excess = room.num_permits().saturating_sub(used as usize);
        drop(room.split(excess));
        match &mut self.held {
            Some(held) => held.merge(room),
            None => self.held = Some(room),
        }
        Ok(applied)
    }
}

fn apply(spec: JobSpec, pin: Option<ImagePin>, policy: &Policy, baseline: &Digest) -> Applied {
    let Some(pin) = pin else {
        return spec
            .check(policy)
            .map_or_else(Applied::Refused, |()| Applied::WithoutImage);
    };
    spec.resolve(policy, pin, baseline)
        .map_or_else(Applied::Refused, |job| Applied::Accepted(Box::new(job)))
}

fn kib(bytes: u64) -> u32 {
    u32::try_from(bytes.div_ceil(1024)).unwrap_or(u32::MAX)
}
