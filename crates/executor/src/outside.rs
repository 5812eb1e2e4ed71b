//! What jobs may reach outside of their sandboxes, as this host reaches it.

use std::{collections::BTreeMap, sync::Arc};

use mayfly_core::{
    egress::{IpNet, NoRule},
    id::TenantId,
    job::ResolvedJob,
};
use mayfly_egress::{Credentials, Dialler, Proxy, Resolver, SystemResolver, TcpDialler};

/// Who looks names up, who dials, and what nobody reaches.
#[derive(Clone)]
pub struct Outside {
    /// Looks names up.
    pub resolver: Arc<dyn Resolver>,
    /// Makes connections to addresses that were checked.
    pub dialler: Arc<dyn Dialler>,
    /// Addresses of the deployment's own services, which no rule opens.
    pub own: Vec<IpNet>,
    /// What jobs use and never have; none, as a rule.
    pub credentials: Option<TenantCredentials>,
}

/// Credentials that are added to requests of jobs, and whose jobs those are.
#[derive(Debug, Clone)]
pub struct TenantCredentials {
    /// All of this executor.
    pub credentials: Credentials,
    /// By the name of each: whose jobs use it. One without an entry is nobody's.
    pub tenants: BTreeMap<String, Tenants>,
}

/// Whose jobs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Tenants {
    /// Everybody's.
    All,
    /// Of these tenants.
    These(Vec<TenantId>),
}

impl Tenants {
    fn are(&self, tenant: TenantId) -> bool {
        match self {
            Self::All => true,
            Self::These(these) => these.contains(&tenant),
        }
    }
}

impl Outside {
    /// By the host's own name service and network.
    #[must_use]
    pub fn of_host(own: Vec<IpNet>) -> Self {
        Self {
            resolver: Arc::new(SystemResolver),
            dialler: Arc::new(TcpDialler),
            own,
            credentials: None,
        }
    }

    /// And with these credentials.
    #[must_use]
    pub fn with_credentials(mut self, credentials: Option<TenantCredentials>) -> Self {
        self.credentials = credentials;
        self
    }

    /// The one way out that a job of this tenant has; nothing, where it has none.
    pub(crate) fn proxy(&self, tenant: TenantId, job: &ResolvedJob) -> Result<Option<Arc<Proxy>>, NoRule> {
        let Some(egress) = &job.egress else {
            return Ok(None);
        };
        let policy = egress.policy(self.own.clone())?;
        let (resolver, dialler) = (Arc::clone(&self.resolver), Arc::clone(&self.dialler));
        let mut proxy = Proxy::new(policy, egress.caps(), resolver, dialler);
        if let Some(held) = &self.credentials {
            let is_theirs = |name: &str| held.tenants.get(name).is_some_and(|whose| whose.are(tenant));
            proxy = proxy.with_credentials(&held.credentials, is_theirs);
        }
        Ok(Some(Arc::new(proxy)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_for_the_jobs_of_its_tenants_alone() {
        let (ours, others) = (TenantId::new(), TenantId::new());
        let these = Tenants::These(vec![ours]);
        assert!(these.are(ours) && !these.are(others));
        assert!(Tenants::All.are(others) && !Tenants::These(Vec::new()).are(ours));
    }
}
