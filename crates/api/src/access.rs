//! Who may do what: one table, which the guard of every route asks, and of which `docs/api.md` and the OpenAPI document
//! are made.

use mayfly_core::{
    account::Role,
    id::{KeyId, TenantId},
};

use Role::{Admin, Auditor, Operator, Submitter, Viewer};

/// Something that a request does. Each route does one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Asks who it is by.
    ReadSelf,
    /// Submits jobs, also of a batch.
    SubmitJobs,
    /// Asks for a job's end.
    CancelJobs,
    /// Reads how jobs stand; with [`Action::ReadOutput`], what they wrote as well.
    ReadJobs,
    /// Reads what jobs wrote.
    ReadOutput,
    /// Reads the audit events of a job.
    ReadJobAudit,
    /// Reads the audit log of a tenant.
    ReadAuditLog,
    /// Reads the audit log of the fleet: what became of executors, sessions, images and dead letters.
    ReadFleetAudit,
    /// Reads the image catalog.
    ReadImages,
    /// Makes a name of the catalog mean an image.
    PinImages,
    /// Reads which executors there are.
    ReadExecutors,
    /// Cordons and drains executors.
    ControlExecutors,
    /// Lists, replays and discards dead letters.
    HandleDeadLetters,
    /// Makes and lists tenants.
    ManageTenants,
    /// Makes, lists and revokes keys.
    ManageKeys,
    /// Sets, lists and removes the named secrets of a tenant. Nothing reads one.
    ManageSecrets,
    /// Uploads, lists and removes files for jobs.
    ManageUploads,
}

/// Whose things an action is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// Those of the key's tenant: a key without one may not do it, whatever its role.
    Tenant,
    /// The fleet's.
    Fleet,
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// What is done.
    pub action: Action,
    /// The word for it, in the OpenAPI document.
    pub word: &'static str,
    /// To whose things.
    pub scope: Scope,
    /// Who may.
    pub roles: &'static [Role],
    /// What it is, for people.
    pub meaning: &'static str,
}

const fn rule(
    action: Action,
    word: &'static str,
    scope: Scope,
    roles: &'static [Role],
    meaning: &'static str,
) -> Rule {
    Rule {
        action,
        word,
        scope,
        roles,
        meaning,
    }
}

/// The table.
#[rustfmt::skip]
pub const RULES: &[Rule] = &[
    rule(Action::ReadSelf, "read_self", Scope::Fleet, &[Admin, Operator, Submitter, Viewer, Auditor], "ask who the key is"),
    rule(Action::SubmitJobs, "submit_jobs", Scope::Tenant, &[Admin, Submitter], "submit jobs and batches"),
    rule(Action::CancelJobs, "cancel_jobs", Scope::Tenant, &[Admin, Submitter], "cancel jobs"),
    rule(Action::ReadJobs, "read_jobs", Scope::Tenant, &[Admin, Submitter, Viewer, Auditor], "see how jobs stand"),
    rule(Action::ReadOutput, "read_output", Scope::Tenant, &[Admin, Submitter, Viewer], "read what jobs wrote, also live"),
    rule(Action::ReadJobAudit, "read_job_audit", Scope::Tenant, &[Admin, Submitter, Viewer, Auditor], "read a job's audit events"),
    rule(Action::ReadAuditLog, "read_audit_log", Scope::Tenant, &[Admin, Auditor], "read the tenant's audit log"),
    rule(Action::ReadFleetAudit, "read_fleet_audit", Scope::Fleet, &[Admin, Operator], "read the fleet's audit log"),
    rule(Action::ReadImages, "read_images", Scope::Fleet, &[Admin, Operator, Submitter, Viewer, Auditor], "list the image catalog"),
    rule(Action::PinImages, "pin_images", Scope::Fleet, &[Admin], "pin images"),
    rule(Action::ReadExecutors, "read_executors", Scope::Fleet, &[Admin, Operator], "list executors"),
    rule(Action::ControlExecutors, "control_executors", Scope::Fleet, &[Admin, Operator], "cordon and drain executors"),
    rule(Action::HandleDeadLetters, "handle_dead_letters", Scope::Fleet, &[Admin, Operator], "list, replay and discard dead letters"),
    rule(Action::ManageTenants, "manage_tenants", Scope::Fleet, &[Admin], "make and list tenants"),
    rule(Action::ManageKeys, "manage_keys", Scope::Fleet, &[Admin], "make, list and revoke keys"),
    rule(Action::ManageSecrets, "manage_secrets", Scope::Tenant, &[Admin], "set, list and remove named secrets"),
    rule(Action::ManageUploads, "manage_uploads", Scope::Tenant, &[Admin, Submitter], "upload, list and remove files for jobs"),
];

impl Action {
    /// Its row.
    ///
    /// # Panics
    /// Never: a test holds that every action has one.
    #[must_use]
    pub fn rule(self) -> &'static Rule {
        RULES
            .iter()
            .find(|rule| rule.action == self)
            .expect("every action has a row")
    }
}

/// Who a request is by, once that is proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) key: KeyId,
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) tenant: Option<TenantId>,
}

/// Why a caller may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Its role doesn't.
    Role,
    /// It is a matter of a tenant, and the key has none.
    NoTenant,
}

impl Caller {
    /// Whether it may.
    pub(crate) fn may(&self, action: Action) -> Result<(), Denied> {
        let rule = action.rule();
        if !rule.roles.contains(&self.role) {
            return Err(Denied::Role);
        }
        match (rule.scope, self.tenant) {
            (Scope::Tenant, None) => Err(Denied::NoTenant),
            (Scope::Tenant, Some(_)) | (Scope::Fleet, _) => Ok(()),
        }
    }
}

/// The table for people, in Markdown.
#[must_use]
pub fn table() -> String {
    let mut text = String::from("| to | needs a tenant |");
    for role in Role::ALL {
        text += &format!(" {role} |");
    }
    text += "\n| --- | --- |";
    text += &" --- |".repeat(Role::ALL.len());
    text += "\n";
    for rule in RULES {
        let tenant = if rule.scope == Scope::Tenant { "yes" } else { "" };
        text += &format!("| {} (`{}`) | {tenant} |", rule.meaning, rule.word);
        for role in Role::ALL {
            text += if rule.roles.contains(&role) {
                " yes |"
            } else {
                " |"
            };
        }
        text += "\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_action_has_one_row_and_a_word_of_its_own() {
        let mut words: Vec<_> = RULES.iter().map(|rule| rule.word).collect();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), RULES.len());
        for rule in RULES {
            let rows = RULES.iter().filter(|other| other.action == rule.action);
            assert_eq!(rows.count(), 1, "{:?}", rule.action);
            assert_eq!(rule.action.rule().word, rule.word);
        }
    }

    #[test]
    fn an_operator_sees_nothing_of_any_tenant() {
        for rule in RULES.iter().filter(|rule| rule.scope == Scope::Tenant) {
            assert!(!rule.roles.contains(&Operator), "{}", rule.word);
        }
    }
}
