//! What sessions say.

use mayfly_core::{
    id::AttemptId,
    outcome::{Cause, EndState},
};
use mayfly_dispatch::message::{AbandonReason, Held, Phase, SessionEvent};

use super::{
    World,
    op::{Op, Pick, pick},
};
use crate::contract::bench::{Client, report};

impl World {
    /// A session says something: it is put into the recorder's queue.
    pub(super) fn say(&mut self, op: &Op) {
        if let Op::Open(executor, slots) = op {
            let mut client = Client::of(self.executors[usize::from(*executor) % 3]);
            let batch = client.opened(*slots);
            self.clients.push(client);
            self.publish(batch);
            return;
        }
        let (Op::Ask(client, ..)
        | Op::Beat(client, ..)
        | Op::Finish(client, ..)
        | Op::Abandon(client, ..)
        | Op::Close(client)) = op
        else {
            return;
        };
        let Some(back) = usize::from(*client).checked_rem(self.clients.len()) else {
            return;
        };
        let index = self.clients.len() - 1 - back;
        let session = self.clients[index].session;
        let held: Vec<AttemptId> = self.ledger.held_by(session).map(|held| held.attempt).collect();
        let about = |which: Pick| {
            let of_its_own = pick(&held, which).copied();
            of_its_own.or_else(|| pick(&self.messages, which).map(|message| message.attempt))
        };
        let event = match op {
            Op::Ask(_, message, forged) => pick(&self.messages, *message).map(|message| {
                let mut token = message.token;
                if *forged {
                    token = self.bench.key.token(AttemptId::new());
                }
                SessionEvent::Starting {
                    attempt: message.attempt,
                    publication: message.publication,
                    token,
                }
            }),
            Op::Finish(_, which, end) => about(*which).map(|attempt| {
                let cause = if *end == EndState::Error {
                    Cause::EngineFailure
                } else {
                    Cause::Exited
                };
                SessionEvent::Finished {
                    attempt,
                    report: Box::new(report(*end, cause, attempt.to_string().as_bytes())),
                }
            }),
            Op::Abandon(_, which, ran) => about(*which).map(|attempt| SessionEvent::Abandoned {
                attempt,
                why: AbandonReason::LeaseEnding,
                ran: *ran,
            }),
            Op::Close(_) => Some(SessionEvent::Closed),
            _ => None,
        };
        let client = &mut self.clients[index];
        let mut batch = client.batch(event.into_iter().collect());
        if let Op::Beat(_, mask, all) = op {
            batch = client.beat(&[]);
            let named = held.iter().enumerate();
            let named = named.filter(|(bit, _)| *all || mask & (1 << (bit % 8)) != 0);
            let strange = pick(&self.messages, *mask).map(|message| message.attempt);
            let named = named.map(|(_, attempt)| *attempt).chain(strange);
            let phase = if mask & 1 == 0 {
                Phase::Running
            } else {
                Phase::Granted
            };
            if let Some(heartbeat) = &mut batch.heartbeat {
                heartbeat.held = named.map(|attempt| Held { attempt, phase }).collect();
            }
        } else if batch.events.is_empty() {
            return;
        }
        self.publish(batch);
    }
}
