//! From what a tenant wrote to what runs: every rule is applied, and every fault is listed at once.

use std::collections::BTreeMap;

use mayfly_redact::{LEAST_SECRET_BYTES, MOST_SECRETS, Secrets};

use super::{
    FetchedFile, InputFile, JobSpec, NamedSecrets, ResolvedJob, SecretText, SecretValue, Source, secret,
    text::escaped_length, upload,
};
use crate::{
    artifact::check_globs,
    digest::Digest,
    egress::EgressInForce,
    fault::{Fault, Faults, excerpt},
    image::ImagePin,
    limits::Limits,
    outcome::EndState,
    policy::{ContentRules, Network, Policy},
};
use files::check_files;

mod files;

pub(super) use files::wrong_path;

/// What a policy lets a job choose.
struct Choices {
    limits: Limits,
    network: Network,
    runtime: String,
    egress: Option<EgressInForce>,
    /// Of its archives.
    expanded: Vec<InputFile>,
    /// Its uploads.
    fetched: Vec<FetchedFile>,
}

impl JobSpec {
    /// Applies a policy, for an image that has been looked up, on top of a sandbox baseline. Archives are expanded here, in
    /// time and memory that the policy bounds: with any of them this is no work for a thread that others wait for.
    ///
    /// # Errors
    /// Everything that is wrong with the job, in the order of its fields.
    pub fn resolve(self, policy: &Policy, pin: ImagePin, baseline: &Digest) -> Result<ResolvedJob, Faults> {
        let Choices {
            limits,
            network,
            runtime,
            egress,
            expanded,
            fetched,
        } = self.choose(policy)?;
        let (argv, mut files) = program(self.source, self.command, self.args, self.files);
        files.extend(expanded);
        let (secrets, named) = secret::part(self.secrets);
        let (secret_files, named_files) = secret::part(self.secret_files);
        Ok(ResolvedJob {
            image: self.image,
            pin,
            argv,
            files,
            fetched,
            stdin: self.stdin,
            env: self.env,
            secrets,
            secret_files,
            named_secrets: NamedSecrets {
                env: named,
                files: named_files,
            },
            redaction: policy.redaction.clone(),
            asked: self.limits,
            limits,
            network,
            egress,
            runtime,
            on_output_limit: policy.on_output_limit,
            artifact_limits: (!self.artifacts.is_empty()).then(|| policy.artifacts.limits()),
            artifacts: self.artifacts,
            artifacts_after: self.artifacts_after,
            retry: self.retry,
            policy_version: policy.version(baseline),
        })
    }

    /// Whether a policy allows the job, before its image is looked up. Takes as long as [`JobSpec::resolve`].
    ///
    /// # Errors
    /// Everything that is wrong with the job, in the order of its fields.
    pub fn check(&self, policy: &Policy) -> Result<(), Faults> {
        self.choose(policy).map(drop)
    }

    /// Bytes of source, files and stdin together, without what archives hold and without uploads.
    #[must_use]
    pub fn content_bytes(&self) -> u64 {
        self.files
            .iter()
            .map(|file| &file.content)
            .chain(self.stdin.as_ref())
            .chain(self.source.as_ref().map(|source| &source.text))
            .map(|content| content.as_bytes().len() as u64)
            .sum()
    }

    /// What the job gets of that which a policy lets it choose.
    fn choose(&self, policy: &Policy) -> Result<Choices, Faults> {
        let mut faults = Faults::default();
        check_program(self, &mut faults);
        let expanded = check_files(self, &policy.content, &mut faults);
        let fetched = upload::check(self, &policy.content, &mut faults);
        check_strings(self, &mut faults);
        check_secrets(self, &mut faults);
        check_room(self, &policy.content, &mut faults);
        check_labels(self, &policy.content, &mut faults);
        let limits = policy
            .limits
            .resolve(&self.limits)
            .map_err(|more| faults.append(more))
            .ok();
        if let Some(limits) = &limits {
            let expanded: usize = expanded.iter().map(|file| file.content.as_bytes().len()).sum();
            let beside = self.content_bytes().saturating_add(expanded as u64);
            upload::check_disk(&fetched, beside, limits, &mut faults);
        }
        let network = choose(
            "network",
            self.network,
            &policy.networks,
            |network| format!("{network:?}"),
            &mut faults,
        );
        let runtime = choose(
            "runtime",
            self.runtime.clone(),
            &policy.runtimes,
            Clone::clone,
            &mut faults,
        );
        let egress = policy.egress.resolve(&self.egress, &mut faults);
        check_globs(&self.artifacts, &policy.artifacts, &mut faults);
        check_retry(self, policy, &mut faults);
        match (limits, network, runtime) {
            (Some(limits), Some(network), Some(runtime)) if faults.is_empty() => Ok(Choices {
                limits,
                network,
                runtime,
                egress,
                expanded,
                fetched,
            }),
            _ => Err(faults),
        }
    }
}

fn program(
    source: Option<Source>,
    command: Option<Vec<String>>,
    args: Vec<String>,
    mut files: Vec<InputFile>,
) -> (Vec<String>, Vec<InputFile>) {
    let mut argv = command.unwrap_or_default();
    if let Some(source) = source {
        let (program, path) = source.language.interpreter();
        argv.extend([program.to_owned(), format!("/work/{path}")]);
        files.insert(
            0,
            InputFile {
                path: path.to_owned(),
                content: source.text,
                executable: false,
                mode: None,
            },
        );
    }
    argv.extend(args);
    (argv, files)
}

fn check_program(spec: &JobSpec, faults: &mut Faults) {
    match (&spec.source, &spec.command) {
        (None, None) => {
            faults.push(Fault::new(
                "source",
                "missing",
                "a job needs `source`, or `command` with its `files`",
            ));
        }
        (Some(_), Some(_)) => {
            faults.push(Fault::new(
                "command",
                "ambiguous",
                "give `source` or `command`, not both",
            ));
        }
        (None, Some(command)) if command.first().is_none_or(String::is_empty) => {
            faults.push(Fault::new(
                "command",
                "empty",
                "the first item is the program and can't be empty",
            ));
        }
        (Some(_), None) | (None, Some(_)) => {}
    }
}

fn check_strings(spec: &JobSpec, faults: &mut Faults) {
    for (field, list) in [
        ("command", spec.command.as_deref().unwrap_or_default()),
        ("args", &spec.args),
    ] {
        for (index, item) in list.iter().enumerate() {
            if item.contains('\0') {
                let message = "an argument can't contain NUL (execve(2) ends it there)";
                faults.push(Fault::new(format!("{field}[{index}]"), "contains_nul", message));
            }
        }
    }
    for (name, value) in &spec.env {
        check_variable("env", name, value, faults);
    }
}

fn check_variable(field: &str, name: &str, value: &str, faults: &mut Faults) {
    let path = || format!("{field}[{:?}]", excerpt(name));
    if name.is_empty() || name.contains(['=', '\0']) {
        let message = "a variable's name can't be empty or contain `=` or NUL";
        faults.push(Fault::new(path(), "bad_name", message));
    }
    if value.contains('\0') {
        let message = "a variable's value can't contain NUL";
        faults.push(Fault::new(path(), "contains_nul", message));
    }
}

/// The values that a spec gives itself.
fn given(secrets: &BTreeMap<String, SecretValue>) -> impl Iterator<Item = (&str, &SecretText)> {
    secrets.iter().filter_map(|(place, value)| match value {
        SecretValue::Text(text) => Some((place.as_str(), text)),
        SecretValue::Named(_) => None,
    })
}

/// No fault has a value in it.
fn check_secrets(spec: &JobSpec, faults: &mut Faults) {
    for (name, value) in &spec.secrets {
        let text = match value {
            SecretValue::Text(text) => Some(text),
            SecretValue::Named(_) => None,
        };
        check_variable("secrets", name, text.map_or("", SecretText::reveal), faults);
        if spec.env.contains_key(name) {
            let message = "it is in `env`, too: a variable has one value";
            faults.push(Fault::new(in_field("secrets", name), "duplicate", message));
        }
        if let Some(text) = text {
            check_length("secrets", name, text, faults);
        }
    }
    for (path, text) in given(&spec.secret_files) {
        check_length("secret_files", path, text, faults);
    }
    let all = || given(&spec.secrets).chain(given(&spec.secret_files));
    let bytes: usize = all().map(|(_, text)| text.reveal().len()).sum();
    let count = spec.secrets.len() + spec.secret_files.len();
    if let Err(error) = Secrets::new(all().map(|(_, text)| text.reveal())) {
        faults.push(Fault::new("secrets", "too_large", error.to_string()));
    } else if count > MOST_SECRETS {
        let message = format!("{count} secrets are over the {MOST_SECRETS} that a job can have");
        faults.push(Fault::new("secrets", "too_large", message));
    } else if bytes > MOST_GIVEN_BYTES {
        let message = format!(
            "the secrets are {bytes} bytes with the white space around them, over the {MOST_GIVEN_BYTES} that a job can have"
        );
        faults.push(Fault::new("secrets", "too_large", message));
    }
}

/// Most bytes of the values that a job gives itself, white space around them included: they travel to its executor at once.
const MOST_GIVEN_BYTES: usize = 64 * 1024;

fn in_field(field: &str, name: &str) -> String {
    format!("{field}[{:?}]", excerpt(name))
}

fn check_length(field: &str, place: &str, value: &SecretText, faults: &mut Faults) {
    if value.reveal().trim_ascii().len() < LEAST_SECRET_BYTES {
        let message = format!(
            "a secret has at least {LEAST_SECRET_BYTES} bytes beside white space around it: a shorter one stands in many a \
             text, and can't be taken out of it"
        );
        faults.push(Fault::new(in_field(field, place), "too_short", message));
    }
}

/// Whether arguments and environment fit into what the guest takes of them.
fn check_room(spec: &JobSpec, rules: &ContentRules, faults: &mut Faults) {
    let arguments = || spec.command.iter().flatten().chain(&spec.args);
    // A source brings its interpreter and its file.
    let of_source = if spec.source.is_some() { 2 } else { 0 };
    for (field, count, most) in [
        ("args", arguments().count() + of_source, rules.args),
        ("env", spec.env.len() + spec.secrets.len(), rules.variables),
    ] {
        if count > most as usize {
            let message = format!(
                "{count} are over the policy's ceiling, {most}; put a long list into a file or stdin"
            );
            faults.push(Fault::new(field, "too_many", message));
        }
    }
    let arguments: usize = arguments().map(|item| escaped_length(item) + 1).sum();
    // How long a named secret is, nobody knows here: one that does not fit is refused by the guest. Its variable counts.
    let secrets = spec.secrets.iter().map(|(name, value)| {
        let value = match value {
            SecretValue::Text(text) => text.reveal(),
            SecretValue::Named(_) => "",
        };
        (name.as_str(), value)
    });
    let variables = spec
        .env
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_str()));
    let environment: usize = variables
        .chain(secrets)
        .map(|(name, value)| escaped_length(name) + escaped_length(value) + 2)
        .sum();
    let total = arguments + environment;
    if total as u64 > rules.args_and_env.as_bytes() {
        let message = format!(
            "arguments and environment are {total} bytes together, over the policy's ceiling, {}; put long text into \
             a file or stdin",
            rules.args_and_env
        );
        faults.push(Fault::new("args", "too_large", message));
    }
}

fn check_labels(spec: &JobSpec, rules: &ContentRules, faults: &mut Faults) {
    if spec.labels.len() > rules.labels as usize {
        let message = format!(
            "{} labels are over the policy's ceiling, {}",
            spec.labels.len(),
            rules.labels
        );
        faults.push(Fault::new("labels", "too_many", message));
    }
    for (name, value) in &spec.labels {
        if name.is_empty()
            || name.len() > 63
            || value.len() > 255
            || name.contains('\0')
            || value.contains('\0')
        {
            let message = "a label has a name of 1 to 63 bytes and a value of at most 255, without NUL";
            faults.push(Fault::new(
                format!("labels[{:?}]", excerpt(name)),
                "bad_label",
                message,
            ));
        }
    }
}

fn check_retry(spec: &JobSpec, policy: &Policy, faults: &mut Faults) {
    if spec.retry.max_attempts == 0 || spec.retry.max_attempts > policy.max_attempts {
        let message = format!(
            "{} is not between 1 and {}",
            spec.retry.max_attempts, policy.max_attempts
        );
        faults.push(Fault::new("retry.max_attempts", "out_of_range", message));
    }
    for (index, end) in spec.retry.on.iter().enumerate() {
        let of_the_job = matches!(
            end,
            EndState::Failed | EndState::TimedOut | EndState::OutOfMemory | EndState::LimitExceeded
        );
        if !of_the_job {
            let message = "only `failed`, `timed_out`, `out_of_memory` and `limit_exceeded` can be named here; trouble \
                           of ours is tried again anyway";
            faults.push(Fault::new(format!("retry.on[{index}]"), "not_a_job_end", message));
        }
    }
    if let Some(wait) = spec.expires_after
        && (wait > policy.max_wait || wait.as_millis() == 0)
    {
        let message = format!(
            "{wait} is not between 1ms and the policy's ceiling, {}",
            policy.max_wait
        );
        faults.push(Fault::new("expires_after", "out_of_range", message));
    }
}

/// What was asked for if the policy allows it, else its default.
fn choose<T: Clone + PartialEq>(
    field: &'static str,
    asked: Option<T>,
    allowed: &[T],
    show: impl Fn(&T) -> String,
    faults: &mut Faults,
) -> Option<T> {
    let chosen = match &asked {
        Some(asked) => allowed.iter().find(|one| *one == asked),
        None => allowed.first(),
    };
    if chosen.is_none() {
        let list: Vec<_> = allowed.iter().map(&show).collect();
        let asked = asked.as_ref().map_or_else(|| "none".to_owned(), show);
        let message = format!(
            "{:?} is not allowed; the policy allows: {}",
            excerpt(&asked),
            list.join(", ")
        );
        faults.push(Fault::new(field, "not_allowed", message));
    }
    chosen.cloned()
}

#[cfg(test)]
mod tests;
