//! A method for each route, by what it is about.

mod accounts;
mod artifacts;
mod batches;
mod fleet;
mod health;
mod jobs;
mod output;
mod secrets;
mod uploads;

pub use self::artifacts::Download;
pub use self::jobs::{JobFilter, SubmitAnswer};
