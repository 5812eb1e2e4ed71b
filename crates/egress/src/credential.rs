//! Credentials that the executor adds to requests, so that a job uses them and never has them.
//!
//! A host of which a rule is about is reached with its credentials alone, at the port of `http://` and at the rule's own: a
//! job which could also talk to it by itself could send what it knows to an account of somebody else's there.

use std::{fmt, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_reach::{CredentialRule, PlainPath};
use mayfly_redact::{Matcher, Rules, Secrets, SecretsError};

use crate::{
    Reason, Target,
    head::{Fields, is_token},
    tls::{NoTrust, Tls, Trust},
};

/// Fewest bytes of a credential: a shorter one could not be told from what else is in answers.
pub const LEAST_CREDENTIAL_BYTES: usize = 8;

/// Fields that a rule can't set: they are about the connection, the message or the host.
const NOT_FOR_CREDENTIALS: [&str; 6] = [
    "accept-encoding",
    "content-encoding",
    "content-type",
    "expect",
    "range",
    "set-cookie",
];

/// Fields of the job's that do not go on beside a credential, in lower case and with `-` for `_`: credentials of its own, by which it
/// could be somebody else; what makes a server take another method, path or host than those that were judged; and what
/// makes an answer one that can't be looked through.
const NOT_FROM_THE_JOB: [&str; 27] = [
    "accept-encoding",
    "api-key",
    "authorization",
    "cookie",
    "cookie2",
    "forwarded",
    "if-range",
    "job-token",
    "ocp-apim-subscription-key",
    "private-token",
    "range",
    "x-api-key",
    "x-auth-token",
    "x-access-token",
    "x-amz-security-token",
    "x-forwarded-host",
    "x-forwarded-path",
    "x-forwarded-prefix",
    "x-forwarded-proto",
    "x-forwarded-uri",
    "x-goog-api-key",
    "x-host",
    "x-http-method",
    "x-http-method-override",
    "x-method-override",
    "x-original-url",
    "x-rewrite-url",
];

/// A rule, and the credential that requests get by it. `Debug` does not show it.
#[derive(Clone)]
pub struct Credential {
    name: String,
    rule: CredentialRule,
    header: String,
    /// All of the field's value.
    value: String,
    /// What answers must not have in them.
    secrets: Vec<String>,
}

/// Why there is no such credential. Nothing of its value is in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialFault {
    /// The header is none.
    #[error("the header is no name of a field, or one that is written by the proxy itself")]
    Header,
    /// The value can't stand in a header.
    #[error("the value has a character that can't stand in a header, or begins or ends with space")]
    Value,
    /// The value is too short.
    #[error(
        "the value has fewer than {LEAST_CREDENTIAL_BYTES} characters, and could not be found in answers"
    )]
    Short,
}

/// Why there are no credentials.
#[derive(Debug, thiserror::Error)]
pub enum NoCredentials {
    /// Nobody could say who a server is.
    #[error("it can't be told which servers to trust with a credential")]
    Trust(#[from] NoTrust),
    /// They can't be looked for.
    #[error("answers can't be looked through for the credentials")]
    Secrets(#[from] SecretsError),
    /// Two of them are for the same requests, or name two ports of one host.
    #[error("credentials {0:?} and {1:?} are for the same requests, or name two ports of one host")]
    Collide(String, String),
}

/// All credentials of an executor, and whom it trusts with them. Cheap to clone.
#[derive(Clone)]
pub struct Credentials(Arc<Held>);

struct Held {
    all: Vec<Credential>,
    matcher: Matcher,
    tls: Tls,
}

/// Those of one run.
#[derive(Clone)]
pub(crate) struct Picked {
    held: Arc<Held>,
    which: Vec<usize>,
}

impl Credential {
    /// Requests that the rule names get the field `header` with `prefix` and the value.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn new(
        name: &str,
        rule: CredentialRule,
        header: &str,
        prefix: &str,
        value: &str,
    ) -> Result<Self, CredentialFault> {
        let lower = header.to_ascii_lowercase();
        let token = !header.is_empty() && header.bytes().all(is_token);
        if !token || Fields::is_of_one_hop(&lower) || NOT_FOR_CREDENTIALS.contains(&lower.as_str()) {
            return Err(CredentialFault::Header);
        }
        let whole = format!("{prefix}{value}");
        let visible = whole.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
        if !visible || whole.trim() != whole || value.trim() != value {
            return Err(CredentialFault::Value);
        }
        if value.len() < LEAST_CREDENTIAL_BYTES {
            return Err(CredentialFault::Short);
        }
        Ok(Self {
            secrets: secrets(&whole, value),
            name: name.to_owned(),
            rule,
            header: header.to_owned(),
            value: whole,
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn target(&self) -> Target {
        self.rule.target()
    }

    /// Whether a field of the job's stays behind. Some servers take `_` for `-`.
    pub(crate) fn replaces(&self, lower_name: &str) -> bool {
        let name = lower_name.replace('_', "-");
        NOT_FROM_THE_JOB.contains(&name.as_str())
            || name == self.header.to_ascii_lowercase().replace('_', "-")
    }

    /// The fields that go on in their place.
    pub(crate) fn write_fields(&self, to: &mut Vec<u8>) {
        to.extend(b"Accept-Encoding: identity\r\n");
        to.extend(format!("{}: {}\r\n", self.header, self.value).bytes());
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .field("rule", &self.rule)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

/// What is looked for: the value, what follows a scheme in it, what `Basic` hides and its password, and each in one case.
fn secrets(whole: &str, value: &str) -> Vec<String> {
    let mut all = vec![value.to_owned()];
    if let Some((scheme, rest)) = whole.split_once(' ') {
        all.push(rest.trim().to_owned());
        let hidden = STANDARD.decode(rest.trim()).ok();
        if let Some(hidden) = hidden.and_then(|hidden| String::from_utf8(hidden).ok())
            && scheme.eq_ignore_ascii_case("Basic")
        {
            all.extend(hidden.split_once(':').map(|(_, password)| password.to_owned()));
            all.push(hidden);
        }
    }
    all.retain(|secret| secret.len() >= LEAST_CREDENTIAL_BYTES);
    let cases = all
        .iter()
        .flat_map(|one| [one.to_lowercase(), one.to_uppercase()]);
    let cases: Vec<_> = cases.collect();
    all.extend(cases);
    all
}

impl Credentials {
    /// These, for servers that are trusted.
    ///
    /// # Errors
    /// Two of them collide, they can't be looked for, or nobody is trusted.
    pub fn new(all: Vec<Credential>, trust: Trust) -> Result<Self, NoCredentials> {
        for (place, one) in all.iter().enumerate() {
            if let Some(other) = all[..place]
                .iter()
                .find(|other| one.rule.collides_with(&other.rule))
            {
                return Err(NoCredentials::Collide(other.name.clone(), one.name.clone()));
            }
        }
        // Of all, also of those that the run can't use: a server may have been told any of them.
        let secrets = Secrets::new(all.iter().flat_map(|one| &one.secrets))?;
        Ok(Self(Arc::new(Held {
            matcher: Matcher::new(&Rules::none(), &secrets),
            tls: Tls::new(trust)?,
            all,
        })))
    }

    /// Those that a run may use, by their names.
    pub(crate) fn pick(&self, may_use: impl Fn(&str) -> bool) -> Picked {
        let which = (0..self.0.all.len()).filter(|place| may_use(&self.0.all[*place].name));
        Picked {
            which: which.collect(),
            held: Arc::clone(&self.0),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Credentials").field(&self.0.all).finish()
    }
}

impl Picked {
    fn all(&self) -> impl Iterator<Item = &Credential> {
        self.which.iter().map(|place| &self.held.all[*place])
    }

    /// Where a request for this target goes by TLS, if its host is reached with a credential.
    pub(crate) fn target(&self, asked: &Target) -> Option<Target> {
        let rule = self.all().find(|one| one.rule.is_about(asked));
        rule.map(Credential::target)
    }

    /// The credential of this request.
    pub(crate) fn judge(&self, asked: &Target, method: &str, path: &str) -> Result<&Credential, Reason> {
        let path = PlainPath::of(path).map_err(|_| Reason::AmbiguousPath)?;
        self.all()
            .filter(|one| one.rule.is_about(asked))
            .filter_map(|one| Some((one.rule.names(method, &path)?, one)))
            .max_by_key(|(closely, _)| *closely)
            .map(|(_, one)| one)
            .ok_or(Reason::NoCredential)
    }

    pub(crate) fn matcher(&self) -> &Matcher {
        &self.held.matcher
    }

    pub(crate) fn tls(&self) -> &Tls {
        &self.held.tls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule() -> CredentialRule {
        CredentialRule::new("a.test", 443, &["GET"], &["/*"]).unwrap()
    }

    #[test]
    fn what_can_be_no_credential_is_refused_without_showing_it() {
        let made = |header, prefix, value| Credential::new("x", rule(), header, prefix, value).unwrap_err();
        for header in [
            "",
            "a b",
            "a:",
            "Host",
            "Content-Length",
            "Connection",
            "Proxy-Authorization",
            "Range",
            "Accept-Encoding",
        ] {
            assert_eq!(
                made(header, "", "0123456789"),
                CredentialFault::Header,
                "{header}"
            );
        }
        for value in [
            "012345678\r\nX: y",
            "012345678\n",
            " 0123456789",
            "0123456789 ",
            "01234\t6789",
            "0123456789\u{e9}",
        ] {
            assert_eq!(
                made("Authorization", "Bearer ", value),
                CredentialFault::Value,
                "{value:?}"
            );
        }
        assert_eq!(
            made("Authorization", "Bearer ", "0123456"),
            CredentialFault::Short
        );
    }

    #[test]
    fn nothing_that_prints_it_shows_it() {
        let one = Credential::new("x", rule(), "Authorization", "Bearer ", "Correct-Horse").unwrap();
        let text = format!("{one:?}").to_lowercase();
        assert!(text.contains("a.test") && !text.contains("horse"), "{text}");
    }

    #[test]
    fn what_is_inside_of_basic_is_looked_for_too() {
        let value = STANDARD.encode("user:pass-of-mine");
        let one = Credential::new("x", rule(), "Authorization", "Basic ", &value).unwrap();
        for secret in [
            value.as_str(),
            "user:pass-of-mine",
            "pass-of-mine",
            "PASS-OF-MINE",
        ] {
            assert!(one.secrets.iter().any(|one| one == secret), "{secret}");
        }
        let whole = Credential::new("x", rule(), "Authorization", "", "Bearer Correct-Horse").unwrap();
        assert!(whole.secrets.iter().any(|one| one == "Correct-Horse"));
    }

    #[test]
    fn what_the_job_says_of_itself_stays_behind_however_it_is_spelled() {
        let one = Credential::new("x", rule(), "X-Our_Key", "", "Correct-Horse").unwrap();
        for name in [
            "authorization",
            "cookie",
            "x-our-key",
            "x_our_key",
            "x_api_key",
            "x-http-method-override",
            "range",
        ] {
            assert!(one.replaces(name), "{name}");
        }
        assert!(!one.replaces("accept"));
    }
}
