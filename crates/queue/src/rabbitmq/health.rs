//! What is known of the connections, for whoever asks.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use crate::seam::Health;

/// Every connection that there is or should be.
#[derive(Default)]
pub(super) struct Registry(Mutex<State>);

#[derive(Default)]
struct State {
    last: u64,
    connections: BTreeMap<u64, Entry>,
}

struct Entry {
    /// Counts the connections; only the newest one's news count.
    life: u64,
    connected: bool,
    blocked: Option<String>,
    since: Instant,
}

/// One connection's place. Dropping it says that there should be none.
pub(super) struct Slot {
    registry: Arc<Registry>,
    id: u64,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it stands with all of them.
    pub(super) fn health(&self) -> Health {
        let state = self.state();
        let entries = || state.connections.values();
        Health {
            connected: !state.connections.is_empty() && entries().all(|entry| entry.connected),
            blocked: entries().find_map(|entry| entry.blocked.clone()),
            since: entries()
                .map(|entry| entry.since.elapsed())
                .min()
                .unwrap_or_default(),
        }
    }

    /// A place for a connection that is not there yet.
    pub(super) fn slot(self: &Arc<Self>) -> Arc<Slot> {
        let mut state = self.state();
        state.last += 1;
        let id = state.last;
        let entry = Entry {
            life: 0,
            connected: false,
            blocked: None,
            since: Instant::now(),
        };
        state.connections.insert(id, entry);
        Arc::new(Slot {
            registry: Arc::clone(self),
            id,
        })
    }
}

impl Slot {
    /// A new connection stands; its number is for what happens to it.
    pub(super) fn connected(&self) -> u64 {
        let mut state = self.registry.state();
        let Some(entry) = state.connections.get_mut(&self.id) else {
            return 0;
        };
        entry.life += 1;
        entry.connected = true;
        entry.blocked = None;
        entry.since = Instant::now();
        entry.life
    }

    fn change(&self, life: u64, change: impl FnOnce(&mut Entry)) {
        let mut state = self.registry.state();
        let entry = state.connections.get_mut(&self.id);
        if let Some(entry) = entry.filter(|entry| entry.life == life) {
            change(entry);
            entry.since = Instant::now();
        }
    }

    pub(super) fn lost(&self, life: u64) {
        self.change(life, |entry| {
            entry.blocked = None;
            entry.connected = false;
        });
    }

    pub(super) fn blocked(&self, life: u64, why: Option<String>) {
        self.change(life, |entry| entry.blocked = why);
    }

    pub(super) fn is_blocked(&self) -> bool {
        let state = self.registry.state();
        let entry = state.connections.get(&self.id);
        entry.is_some_and(|entry| entry.blocked.is_some())
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.registry.state().connections.remove(&self.id);
    }
}
