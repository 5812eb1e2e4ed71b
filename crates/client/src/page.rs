//! Lists, walked page by page.

use std::collections::VecDeque;

use mayfly_wire::{
    account::{Key, KeyList, Tenant, TenantList},
    batch::{Batch, BatchJob, BatchJobList, BatchList},
    executor::{Executor, ExecutorList},
    job::{JobLine, JobList},
    upload::{Upload, UploadList},
};
use serde::de::DeserializeOwned;

use crate::{
    call::{Call, Client},
    error::ClientError,
};

/// A page of a list.
pub trait Page: DeserializeOwned {
    /// What it is a list of.
    type Entry;

    /// Its entries, and where the list goes on.
    fn into_parts(self) -> (Vec<Self::Entry>, Option<String>);
}

macro_rules! pages {
    ($($list:ident, $field:ident, $entry:ident;)*) => {$(
        impl Page for $list {
            type Entry = $entry;

            fn into_parts(self) -> (Vec<$entry>, Option<String>) {
                (self.$field, self.next)
            }
        }
    )*};
}

pages! {
    JobList, jobs, JobLine;
    BatchList, batches, Batch;
    BatchJobList, jobs, BatchJob;
    TenantList, tenants, Tenant;
    KeyList, keys, Key;
    ExecutorList, executors, Executor;
    UploadList, uploads, Upload;
}

/// The entries of a list, one after the other, fetched page by page.
#[derive(Debug)]
pub struct Pages<P: Page> {
    client: Client,
    doing: &'static str,
    path: Vec<String>,
    query: Vec<(&'static str, String)>,
    /// Where the next page begins; none before the first one.
    cursor: Option<String>,
    is_last: bool,
    entries: VecDeque<P::Entry>,
}

impl<P: Page> Pages<P> {
    pub(crate) fn new(client: &Client, doing: &'static str, path: &[&str]) -> Self {
        Self {
            client: client.clone(),
            doing,
            path: path.iter().map(|part| (*part).to_owned()).collect(),
            query: Vec::new(),
            cursor: None,
            is_last: false,
            entries: VecDeque::new(),
        }
    }

    pub(crate) fn query(mut self, name: &'static str, value: Option<impl ToString>) -> Self {
        self.query.extend(value.map(|value| (name, value.to_string())));
        self
    }

    /// The next entry; none at the end of the list.
    ///
    /// # Errors
    /// Trouble with the server; a further call asks again for the page that failed.
    ///
    /// # Cancel safety
    /// No entry is lost.
    pub async fn next(&mut self) -> Result<Option<P::Entry>, ClientError> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                return Ok(Some(entry));
            }
            if self.is_last {
                return Ok(None);
            }
            self.fetch().await?;
        }
    }

    /// At most so many further entries.
    ///
    /// # Errors
    /// As of [`Pages::next`].
    pub async fn take(&mut self, most: usize) -> Result<Vec<P::Entry>, ClientError> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(entry) = self.next().await?
        {
            taken.push(entry);
        }
        Ok(taken)
    }

    async fn fetch(&mut self) -> Result<(), ClientError> {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        let mut call = Call::get(self.doing, &path).query("cursor", self.cursor.as_ref());
        call.query.extend(self.query.iter().cloned());
        let (entries, next) = self.client.json::<P>(call).await?.into_parts();
        if next.is_some() && next == self.cursor {
            return Err(ClientError::Unreadable {
                doing: self.doing,
                source: "a page names itself as the next one".into(),
            });
        }
        self.is_last = next.is_none();
        self.cursor = next;
        self.entries.extend(entries);
        Ok(())
    }
}
