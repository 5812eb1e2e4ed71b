//! Who uses the API: the roles that a key may have.

use serde::{Deserialize, Serialize};

/// What the holder of a key may do. What exactly each may do is the API's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Makes tenants and keys and pins images, for the whole fleet. With a tenant, does everything in it as well.
    Admin,
    /// Looks after the fleet: executors and dead letters. Sees no content of any job, and is of no tenant.
    Operator,
    /// Submits, reads and cancels the jobs of a tenant.
    Submitter,
    /// Reads the jobs of a tenant.
    Viewer,
    /// Reads the audit log of a tenant, and how its jobs stand; not what they brought or wrote.
    Auditor,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [
        Self::Admin,
        Self::Operator,
        Self::Submitter,
        Self::Viewer,
        Self::Auditor,
    ];

    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Admin => "admin",
            Self::Operator => "operator",
            Self::Submitter => "submitter",
            Self::Viewer => "viewer",
            Self::Auditor => "auditor",
        }
    }

    /// Whether a key of this role belongs to a tenant.
    #[must_use]
    pub const fn belonging(self) -> Belonging {
        match self {
            Self::Admin => Belonging::Either,
            Self::Operator => Belonging::Fleet,
            Self::Submitter | Self::Viewer | Self::Auditor => Belonging::Tenant,
        }
    }
}

impl std::fmt::Display for Role {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Text that names no role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no such role: they are admin, operator, submitter, viewer and auditor")]
pub struct ParseRoleError;

impl std::str::FromStr for Role {
    type Err = ParseRoleError;

    fn from_str(text: &str) -> Result<Self, ParseRoleError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or(ParseRoleError)
    }
}

/// Whom keys of a role belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Belonging {
    /// A tenant.
    Tenant,
    /// No tenant.
    Fleet,
    /// A tenant or none.
    Either,
}

impl Belonging {
    /// Whether a key may be of a tenant, or of none.
    #[must_use]
    pub const fn allows(self, of_a_tenant: bool) -> bool {
        match self {
            Self::Tenant => of_a_tenant,
            Self::Fleet => !of_a_tenant,
            Self::Either => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_reads_back_from_its_word_and_its_json() {
        for role in Role::ALL {
            assert_eq!(role.to_string().parse(), Ok(role));
            assert_eq!(serde_json::to_value(role).unwrap(), role.as_str());
        }
        assert!("root".parse::<Role>().is_err());
    }
}
