//! Who is who at the broker: an executor's user, and what it may do.

use std::fmt;

use mayfly_core::id::ExecutorId;

use super::topology;

/// The beginning of the name of every executor's user. Whoever has another name is the server, or its operator.
const EXECUTOR: &str = "mayfly-executor-";

/// The name of an executor's user that names none, for a message of which the broker has verified nobody.
pub(super) const NOBODY: &str = EXECUTOR;

/// The length of a UUID's text.
const ID_BYTES: usize = 36;

/// Who published a message, by the name that the broker has verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sender {
    /// The server.
    Server,
    /// An executor of a pool.
    Executor { id: ExecutorId, pool: String },
    /// Someone with the name of an executor that names none.
    Nobody,
}

/// The name of an executor's user. It holds the pool, so that what an executor says can't reach another pool's record.
#[must_use]
pub fn user_name(executor: ExecutorId, pool: &str) -> String {
    format!("{EXECUTOR}{executor}.{pool}")
}

impl Sender {
    /// Reads the name of a user.
    pub(super) fn of(user: &str) -> Self {
        let Some(rest) = user.strip_prefix(EXECUTOR) else {
            return Self::Server;
        };
        let parts = rest
            .split_at_checked(ID_BYTES)
            .and_then(|(id, pool)| Some((id.parse().ok()?, pool.strip_prefix('.')?)));
        match parts {
            Some((id, pool)) => Self::Executor {
                id,
                pool: pool.to_owned(),
            },
            None => Self::Nobody,
        }
    }
}

/// What a user may do, as the broker takes it: three regular expressions on names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    /// What it may declare and delete.
    pub configure: String,
    /// What it may publish to, or bind.
    pub write: String,
    /// What it may consume from, or bind to.
    pub read: String,
}

/// What an executor of a pool may do, and no more: read its pool's jobs, write events and live output, and have exclusive
/// queues of its own, for what is said to it.
///
/// Each expression is anchored at both ends. The broker looks for them anywhere in a name, and an open end was seen to let
/// an executor bind itself another pool's jobs.
#[must_use]
pub fn executor_permissions(pool: &str) -> Permissions {
    let jobs = escaped(&topology::jobs_queue(pool));
    let [events, output, control] = [
        topology::events_exchange(),
        topology::output_exchange(),
        topology::control_exchange(),
    ]
    .map(|name| escaped(name.as_str()));
    Permissions {
        configure: r"^amq\.gen-".into(),
        write: format!(r"^({events}$|{output}$|amq\.gen-)"),
        read: format!(r"^({jobs}$|{control}$|amq\.gen-)"),
    }
}

/// An executor's user, about to be made.
#[derive(Clone)]
pub struct Enrollment {
    /// Its name.
    pub user: String,
    /// Its password, 244 random bits. It is nowhere else.
    pub password: String,
    /// What it may do.
    pub permissions: Permissions,
}

impl fmt::Debug for Enrollment {
    /// Without the password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Enrollment")
            .field("user", &self.user)
            .finish_non_exhaustive()
    }
}

impl Enrollment {
    /// A user for an executor of a pool, with a new password.
    #[must_use]
    pub fn new(executor: ExecutorId, pool: &str) -> Self {
        let random = || uuid::Uuid::new_v4().simple().to_string();
        Self {
            user: user_name(executor, pool),
            password: random() + &random(),
            permissions: executor_permissions(pool),
        }
    }

    /// The commands that make it, for a shell on the broker's host. The first one reads the password from its standard
    /// input, so that it stands in no list of processes.
    #[must_use]
    pub fn commands(&self, vhost: &str) -> [String; 2] {
        let Permissions {
            configure,
            write,
            read,
        } = &self.permissions;
        let [vhost, user, configure, write, read] = [vhost, &self.user, configure, write, read].map(quoted);
        [
            format!("rabbitmqctl add_user {user}"),
            format!("rabbitmqctl set_permissions -p {vhost} {user} {configure} {write} {read}"),
        ]
    }
}

/// A text as one word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// A text as an expression that matches it alone.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        if !(character.is_alphanumeric() || matches!(character, '-' | '_')) {
            escaped.push('\\');
        }
        escaped.push(character);
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_which_executor_of_which_pool_it_is() {
        let id = ExecutorId::new();
        for pool in ["default", "gpu.large", ""] {
            let expected = Sender::Executor {
                id,
                pool: pool.into(),
            };
            assert_eq!(Sender::of(&user_name(id, pool)), expected);
        }
        assert_eq!(Sender::of("mayfly"), Sender::Server);
        for bad in [
            "mayfly-executor-",
            "mayfly-executor-x.default",
            &format!("{EXECUTOR}{id}"),
        ] {
            assert_eq!(Sender::of(bad), Sender::Nobody, "{bad}");
        }
    }

    #[test]
    fn the_commands_hold_no_password_and_are_words_of_a_shell() {
        let made = Enrollment::new(ExecutorId::new(), "it's");
        let [add, permit] = made.commands("/");
        assert_eq!(
            add,
            format!(
                "rabbitmqctl add_user 'mayfly-executor-{}.it'\\''s'",
                &made.user[16..52]
            )
        );
        assert!(
            permit.starts_with("rabbitmqctl set_permissions -p '/' 'mayfly-executor-"),
            "{permit}"
        );
        assert!(permit.contains(r"'^amq\.gen-'"), "{permit}");
        for text in [add, permit, format!("{made:?}")] {
            assert!(!text.contains(&made.password));
        }
        assert_ne!(made.password, Enrollment::new(ExecutorId::new(), "it's").password);
    }

    #[test]
    fn an_executor_may_what_it_needs_and_no_more() {
        let permissions = executor_permissions("gpu.large");
        assert_eq!(permissions.configure, r"^amq\.gen-");
        assert_eq!(permissions.write, r"^(mayfly\.events$|mayfly\.output$|amq\.gen-)");
        assert_eq!(
            permissions.read,
            r"^(mayfly\.jobs\.gpu\.large$|mayfly\.control$|amq\.gen-)"
        );
    }
}
