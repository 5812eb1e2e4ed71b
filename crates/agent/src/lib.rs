//! The loop in which a language model writes code, the code runs as a job, and the model reads what came of it.
//!
//! Start with [`run`]: [`Agent::run`](run::Agent::run) puts one task through and comes to a [`Run`](record::Run), which is
//! its transcript. [`model`] is the seam to models and their providers, [`tool`] the seam to what they may call; a tool of
//! one's own is one `impl`, and [`toolbox`] has those that run programs. Nothing here runs code: tools are clients of the
//! API, and a model's key never leaves the client of its provider.
//!
//! Absent on purpose: streaming of a model's words (steps are what is shown), memory beyond a run, and any framework.

pub mod bounds;
pub mod model;
pub mod record;
pub mod run;
pub mod tool;
pub mod toolbox;

mod prompt;
