//! Between columns and the domain. A value that can't be read names its table and column.

use chrono::{DateTime, Utc};
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

    pub(crate) fn time(self, micros: i64) -> Result<DateTime<Utc>, StoreError> {
        DateTime::from_timestamp_micros(micros).ok_or_else(|| self.corrupt(format!("{micros} is no time")))
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

pub(crate) fn micros(at: DateTime<Utc>) -> i64 {
    at.timestamp_micros()
}

/// JSON of our own types.
/// A number that is too large for a column is larger than all that are in one.
pub(crate) fn bigint(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

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

/// The words of both columns of a job's state.
pub(crate) fn state_words(state: JobState) -> (&'static str, Option<String>) {
    match state {
        JobState::Queued => ("queued", None),
        JobState::Dispatched => ("dispatched", None),
        JobState::Started => ("started", None),
        JobState::CancelRequested => ("cancel_requested", None),
        JobState::Ended(end) => ("ended", Some(word(end))),
    }
}
