//! A job's own secrets, and how else they may be written.

use std::{collections::BTreeSet, fmt};

mod forms;

/// Least bytes of a value that is looked for. A shorter one stands in every text.
pub const LEAST_SECRET_BYTES: usize = 4;

/// Least bytes of a value that is also looked for in other forms than its own.
pub const LEAST_ENCODED_BYTES: usize = 6;

/// Most values of one job.
pub const MOST_SECRETS: usize = 256;

/// Most bytes of all values of one job together.
pub const MOST_SECRET_BYTES: usize = 16 * 1024;

/// Most bytes of all forms of all values of one job together; a matcher takes some 40 bytes of memory for each. Values of
/// letters and digits have about 15 bytes of forms for one of their own, others several times that.
pub const MOST_FORM_BYTES: usize = 256 * 1024;

/// A line of a value is looked for by itself from this length on, in bytes.
const LEAST_LINE_BYTES: usize = 16;

/// The values that a job was given as secrets, in every form that is looked for. `Debug` shows none of them.
#[derive(Clone, Default)]
pub struct Secrets {
    forms: BTreeSet<Vec<u8>>,
    too_short: usize,
}

/// More than can be looked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SecretsError {
    /// Too many values.
    #[error("a job can have at most {MOST_SECRETS} secrets")]
    TooMany,
    /// Too many bytes in all.
    #[error("the secrets of a job can have at most {MOST_SECRET_BYTES} bytes together")]
    TooLong,
    /// Too many bytes with all forms.
    #[error(
        "the secrets of a job, with all forms in which they are looked for, can have at most {MOST_FORM_BYTES} bytes"
    )]
    TooManyForms,
}

impl Secrets {
    /// Of these values. White space around a value is no part of it; a value of several lines is also looked for line by
    /// line.
    ///
    /// # Errors
    /// More than [`MOST_SECRETS`] values, or more than [`MOST_SECRET_BYTES`] or [`MOST_FORM_BYTES`] in all.
    pub fn new<T: AsRef<[u8]>>(values: impl IntoIterator<Item = T>) -> Result<Self, SecretsError> {
        let mut made = Self::default();
        let (mut count, mut bytes) = (0, 0);
        for value in values {
            let value = value.as_ref().trim_ascii();
            count += 1;
            bytes += value.len();
            if count > MOST_SECRETS {
                return Err(SecretsError::TooMany);
            }
            if bytes > MOST_SECRET_BYTES {
                return Err(SecretsError::TooLong);
            }
            made.add(value);
        }
        if made.forms.iter().map(Vec::len).sum::<usize>() > MOST_FORM_BYTES {
            return Err(SecretsError::TooManyForms);
        }
        Ok(made)
    }

    fn add(&mut self, value: &[u8]) {
        if value.len() < LEAST_SECRET_BYTES {
            self.too_short += 1;
            return;
        }
        self.forms.insert(value.to_vec());
        let lines = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        self.forms.extend(
            lines
                .filter(|line| line.len() >= LEAST_LINE_BYTES)
                .map(<[u8]>::to_vec),
        );
        if value.len() >= LEAST_ENCODED_BYTES {
            let encoded = forms::of(value).into_iter();
            self.forms
                .extend(encoded.filter(|form| form.len() >= LEAST_ENCODED_BYTES));
        }
    }

    /// How many values are shorter than [`LEAST_SECRET_BYTES`] and are therefore not looked for.
    pub fn too_short(&self) -> usize {
        self.too_short
    }

    pub(crate) fn forms(&self) -> impl Iterator<Item = &Vec<u8>> {
        self.forms.iter()
    }
}

impl fmt::Debug for Secrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Secrets")
            .field("forms", &self.forms.len())
            .field("too_short", &self.too_short)
            .finish()
    }
}
