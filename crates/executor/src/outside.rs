//! What jobs may reach outside of their sandboxes, as this host reaches it.

use std::sync::Arc;

use mayfly_core::{
    egress::{IpNet, NoRule},
    job::ResolvedJob,
};
use mayfly_egress::{Dialler, Proxy, Resolver, SystemResolver, TcpDialler};

/// Who looks names up, who dials, and what nobody reaches.
#[derive(Clone)]
pub struct Outside {
    /// Looks names up.
    pub resolver: Arc<dyn Resolver>,
    /// Makes connections to addresses that were checked.
    pub dialler: Arc<dyn Dialler>,
    /// Addresses of the deployment's own services, which no rule opens.
    pub own: Vec<IpNet>,
}

impl Outside {
    /// By the host's own name service and network.
    #[must_use]
    pub fn of_host(own: Vec<IpNet>) -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            dialler: Arc::new(TcpDialler),
            own,
        }
    }

    /// The one way out that a job has; nothing, where it has none.
    pub(crate) fn proxy(&self, job: &ResolvedJob) -> Result<Option<Arc<Proxy>>, NoRule> {
        let Some(egress) = &job.egress else {
            return Ok(None);
        };
        let policy = egress.policy(self.own.clone())?;
        let (resolver, dialler) = (Arc::clone(&self.resolver), Arc::clone(&self.dialler));
        Ok(Some(Arc::new(Proxy::new(
            policy,
            egress.caps(),
            resolver,
            dialler,
        ))))
    }
}
