//! Pages of a list: how many, and where from. A cursor is the id, or the place, of the last entry of the page before.

use std::str::FromStr;

use mayfly_wire::{MAX_PAGE, USUAL_PAGE, problem::Code};
use serde::Deserialize;
use utoipa::IntoParams;

use crate::error::{ApiError, ApiResult};

/// Longest text of a cursor: an id, a place, a name.
const MAX_CURSOR_BYTES: usize = 64;

/// Which page of a list.
#[derive(Debug, Clone, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Page {
    /// Most entries of the answer.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub(crate) limit: Option<u32>,
    /// `next` of the page before.
    #[param(max_length = 64)]
    pub(crate) cursor: Option<String>,
}

/// How many entries a list is asked for.
pub(crate) fn limit(asked: Option<u32>) -> ApiResult<u32> {
    match asked {
        None => Ok(USUAL_PAGE),
        Some(limit @ 1..=MAX_PAGE) => Ok(limit),
        Some(_) => {
            Err(ApiError::new(Code::InvalidParameter).detail(format!("`limit` is between 1 and {MAX_PAGE}")))
        }
    }
}

impl Page {
    pub(crate) fn limit(&self) -> ApiResult<u32> {
        limit(self.limit)
    }

    /// Behind which entry the page begins.
    pub(crate) fn after<T: FromStr>(&self) -> ApiResult<Option<T>> {
        if self
            .cursor
            .as_ref()
            .is_some_and(|cursor| cursor.len() > MAX_CURSOR_BYTES)
        {
            return Err(no_such_page());
        }
        let cursor = self.cursor.as_deref().map(str::parse).transpose();
        cursor.map_err(|_| no_such_page())
    }
}

/// A cursor that nobody was given for this list.
pub(crate) fn no_such_page() -> ApiError {
    ApiError::new(Code::InvalidParameter).detail("`cursor` is not the `next` of a page of this list")
}

/// Where the list goes on: behind the last entry, where the page is full.
pub(crate) fn next<T>(entries: &[T], limit: u32, cursor: impl FnOnce(&T) -> String) -> Option<String> {
    let full = entries.len() >= usize::try_from(limit).unwrap_or(usize::MAX);
    entries.last().filter(|_| full).map(cursor)
}
