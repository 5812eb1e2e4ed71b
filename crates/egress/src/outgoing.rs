//! From a request that is let through to a connection.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use tokio::time::timeout;

use crate::{
    AddressClass, Admitted, Caps, CheckedAddress, Host, HostName, Policy, Reason, Target,
    credential::Picked,
    meter::{Budget, Metered},
    record::{Entry, Ledger},
    seams::{Dialler, Resolver},
};

/// Most addresses of one name that are tried.
const MOST_TRIED: usize = 4;

/// All that the connections of one run share.
pub(crate) struct Shared {
    pub(crate) policy: Policy,
    pub(crate) caps: Caps,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) budget: Arc<Budget>,
    /// Credentials that requests get.
    pub(crate) credentials: Option<Picked>,
    resolver: Arc<dyn Resolver>,
    dialler: Arc<dyn Dialler>,
    requests: AtomicU64,
    by_wildcard: Mutex<HashSet<HostName>>,
}

impl Shared {
    pub(crate) fn new(
        policy: Policy,
        caps: Caps,
        resolver: Arc<dyn Resolver>,
        dialler: Arc<dyn Dialler>,
    ) -> Self {
        Self {
            ledger: Ledger::new(caps.listed),
            budget: Arc::new(Budget::new(caps.bytes)),
            policy,
            caps,
            credentials: None,
            resolver,
            dialler,
            requests: AtomicU64::new(0),
            by_wildcard: Mutex::default(),
        }
    }

    /// Counts one more request.
    pub(crate) fn count_request(&self) -> Result<(), Reason> {
        if self.requests.fetch_add(1, Ordering::Relaxed) >= self.caps.requests {
            return Err(Reason::TooManyRequests);
        }
        if self.budget.is_used_up() {
            return Err(Reason::BytesUsedUp);
        }
        Ok(())
    }

    /// Decides about a target, looks it up once, and dials what was checked.
    pub(crate) async fn reach(
        &self,
        target: &Target,
        entry: &mut Entry,
    ) -> Result<(Admitted, Metered), Reason> {
        let admitted = self.policy.admit(target)?;
        let addresses = match &target.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                self.count_name(name, admitted)?;
                let found = timeout(self.caps.dial_time, self.resolver.resolve(name)).await;
                match found {
                    Ok(Ok(found)) if !found.is_empty() => found,
                    _ => return Err(Reason::NotResolved),
                }
            }
        };
        // All of them: a name that has a good and a bad address is tried again until the bad one comes first.
        let mut checked = Vec::new();
        for address in addresses {
            let fine = self.policy.check(address, target.port);
            checked.push(fine.map_err(|(reason, class)| {
                entry.at(address, Some(class));
                reason
            })?);
        }
        for address in checked.into_iter().take(MOST_TRIED) {
            if let Some(connection) = self.dial(address, entry).await {
                return Ok((admitted, connection));
            }
        }
        Err(Reason::NotReached)
    }

    async fn dial(&self, address: CheckedAddress, entry: &mut Entry) -> Option<Metered> {
        let ip = address.get().ip();
        let named = (AddressClass::of(ip) != AddressClass::Public).then(|| AddressClass::of(ip));
        entry.at(ip, named);
        let dialled = timeout(self.caps.dial_time, self.dialler.dial(address)).await;
        let connection = dialled.ok()?.ok()?;
        let budget = Arc::clone(&self.budget);
        Some(Metered::new(connection, budget, Arc::clone(&entry.counts)))
    }

    fn count_name(&self, name: &HostName, admitted: Admitted) -> Result<(), Reason> {
        if !admitted.by_wildcard {
            return Ok(());
        }
        let mut names = self.by_wildcard.lock().unwrap_or_else(PoisonError::into_inner);
        if names.len() >= self.caps.wildcard_names && !names.contains(name) {
            return Err(Reason::TooManyNames);
        }
        names.insert(name.clone());
        Ok(())
    }
}
