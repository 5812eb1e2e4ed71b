//! Identifiers. Each is a UUIDv7 (RFC 9562, section 5.7) in a type of its own, so that one kind of id can't be
//! passed where another is meant. They sort by creation time; they are not secrets and grant nothing.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Text that is not an id of the kind that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is no {kind} id: expected a UUID such as 0192f0c1-2f7e-7cc3-98c4-dc0c0c07398f")]
pub struct ParseIdError {
    kind: &'static str,
    text: String,
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident, $kind:literal;)*) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
        #[serde(transparent)]
        pub struct $name(Uuid);

        impl $name {
            /// A new id of this moment.
            #[expect(clippy::new_without_default, reason = "each id is another one; there is no default id")]
            #[must_use]
            pub fn new() -> Self {
                Self(Uuid::now_v7())
            }

            /// Takes a UUID that is known to name one of these, from a row or a message.
            #[must_use]
            pub const fn from_uuid(id: Uuid) -> Self {
                Self(id)
            }

            /// The UUID itself, for a column.
            #[must_use]
            pub const fn as_uuid(&self) -> Uuid {
                self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_hyphenated().fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = ParseIdError;

            fn from_str(text: &str) -> Result<Self, ParseIdError> {
                Uuid::parse_str(text)
                    .map(Self)
                    .map_err(|_| ParseIdError { kind: $kind, text: text.chars().take(80).collect() })
            }
        }
    )*};
}

ids! {
    /// What a tenant asked for, once.
    JobId, "job";
    /// One scheduled try at a job; it starts at most once.
    AttemptId, "attempt";
    /// A process that runs attempts, across its restarts.
    ExecutorId, "executor";
    /// One life of one executor process.
    SessionId, "session";
    /// One container made for one run.
    SandboxId, "sandbox";
    /// Who a job belongs to.
    TenantId, "tenant";
    /// Jobs that were made from one thing.
    BatchId, "batch";
    /// An append-only fact of the audit log.
    AuditEventId, "audit event";
    /// What a client of the API shows who it is by.
    KeyId, "key";
    /// One value that was set under the name of a secret.
    SecretId, "secret";
    /// A file that a tenant has uploaded.
    UploadId, "upload";
}

impl TenantId {
    /// The one tenant of the embedded roles, whose database belongs to one person. In a fleet, whose log has what is
    /// no tenant's own: images, sessions, keys of the operators.
    pub const LOCAL: Self = Self(Uuid::nil());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_back_from_its_text() {
        let id = JobId::new();
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        assert_eq!(id.as_uuid().get_version_num(), 7);
    }

    #[test]
    fn a_wrong_id_names_its_kind_and_the_text() {
        let error = "job-1".parse::<AttemptId>().unwrap_err().to_string();
        assert!(
            error.contains("`job-1`") && error.contains("attempt id"),
            "{error}"
        );
    }

    #[test]
    fn ids_sort_by_creation() {
        let ids: Vec<_> = (0..100).map(|_| AttemptId::new()).collect();
        assert!(ids.is_sorted());
    }
}
