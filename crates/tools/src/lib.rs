//! What a language model is given as tools: programs run as jobs, through the API's client.
//!
//! Start with [`Toolbox`]: it says which tools there are ([`Toolbox::definitions`]) and calls one by its name
//! ([`Toolbox::call`]). A call always comes to an [`Answer`], whose text a model reads: where something is wrong with the
//! call, it says what, and what would be right. `arguments` reads what a model has sent, `run` puts a job through, and
//! `observation` says what came of it, within a bound and with a program's own words marked as such.
//!
//! Decided: one way to run things, the HTTP API, whoever serves it; schemas are written by hand, flat and without `$ref`,
//! because those are the ones that models and their providers get right. Absent on purpose: any model, any protocol.

mod answer;
mod arguments;
mod definition;
mod excerpt;
mod hint;
mod kept;
mod observation;
mod refusal;
mod run;
mod toolbox;

pub use crate::{
    answer::Answer,
    definition::Definition,
    kept::{Content, Image, KeptFile},
    toolbox::{Call, Options, Progress, Toolbox},
};

/// Characters of each stream that an answer holds, where nobody has said otherwise.
pub const USUAL_CHARACTERS: usize = 4000;
