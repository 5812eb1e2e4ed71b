//! Between columns and the domain. A value that can't be read names its table and column.

use mayfly_core::{digest::Digest, outcome::EndState, state::JobState};
use mayfly_store::error::StoreError;
use serde::{Serialize, de::DeserializeOwned};
use std::str::FromStr;

/// A column, for the error where its value can't be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) &'static str);

impl Column {
    pub(crate) fn corrupt(self, source: impl Into<mayfly_store::error::Source>) -> StoreError {
        StoreError::Corrupt {
            table: self.0,
            column: self.1,
            source: source.into(),
        }
    }

    pub(crate) fn json<T: DeserializeOwned>(self, text: &str) -> Result<T, StoreError> {
        serde_json::from_str(text).map_err(|error| self.corrupt(error))
    }

    pub(crate) fn parse<T: FromStr<Err: std::error::Error + Send + Sync + 'static>>(
        self,
        text: &str,
    ) -> Result<T, StoreError> {
        text.parse().map_err(|error: T::Err| self.corrupt(error))
    }

    pub(crate) fn count(self, number: i64) -> Result<u32, StoreError> {
        u32::try_from(number).map_err(|error| self.corrupt(error))
    }

    pub(crate) fn number(self, number: i64) -> Result<u64, StoreError> {
        u64::try_from(number).map_err(|error| self.corrupt(error))
    }

    pub(crate) fn digest(self, bytes: Vec<u8>) -> Result<Digest, StoreError> {
        let bytes: [u8; 32] = bytes
            .try_into()
            .map_err(|_| self.corrupt("it has not 32 bytes"))?;
        Ok(Digest::from_bytes(bytes))
    }

    /// A value of an enum that is stored by its serde name.
    pub(crate) fn word<T: DeserializeOwned>(self, text: &str) -> Result<T, StoreError> {
        serde_json::from_value(text.into()).map_err(|error| self.corrupt(error))
    }
}

/// JSON of our own types.
pub(crate) fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our own types have text keys")
}

/// The serde name of a value of an enum without fields.
pub(crate) fn word(value: impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("an enum without fields is a word: {other:?}"),
    }
}

pub(crate) fn job_state(state: &str, end: Option<&str>) -> Result<JobState, StoreError> {
    let column = Column("jobs", "state");
    match (state, end) {
        ("queued", None) => Ok(JobState::Queued),
        ("dispatched", None) => Ok(JobState::Dispatched),
        ("started", None) => Ok(JobState::Started),
        ("cancel_requested", None) => Ok(JobState::CancelRequested),
        ("ended", Some(end)) => Ok(JobState::Ended(
            Column("jobs", "end_state").word::<EndState>(end)?,
        )),
        _ => Err(column.corrupt(format!("`{state}` with the end {end:?}"))),
    }
}

/// A number of the domain as a column's. Counts of events and ticks stay far below 2^63.
pub(crate) fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}
