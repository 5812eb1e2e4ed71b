//! What is weakened, to what, and what has to see it.

use std::sync::Arc;

use serde_json::Value;

use crate::proxy::Change;

mod config;
mod confinement;
mod files;
mod limits;

/// One weak field.
pub(crate) struct Mutant {
    /// Its name in the request; behind a space, which entry of it.
    pub(crate) field: &'static str,
    pub(crate) to: String,
    pub(crate) change: Change,
    /// Beginnings of fields of the guest's report, of which its read-back has to name one; none, where the kernel does not tell.
    /// `None`: the guest is not started in it, since what runs there could harm the host, or since no kernel tells.
    pub(crate) inside: Option<Vec<String>>,
    /// Programs that have to see it, with both read-backs blinded.
    pub(crate) programs: &'static [&'static str],
    /// Whether each `make test` makes it.
    pub(crate) always: bool,
}

impl Mutant {
    /// One that the engine's word alone has to tell.
    fn new(
        field: &'static str,
        to: impl Into<String>,
        change: impl Fn(&mut Value) + Send + Sync + 'static,
    ) -> Self {
        Self {
            field,
            to: to.into(),
            change: Arc::new(change),
            inside: None,
            programs: &[],
            always: false,
        }
    }

    /// The guest's read-back has to name a field that begins with one of these.
    fn seen_inside(mut self, fields: &[&str]) -> Self {
        self.inside = Some(fields.iter().map(|&field| field.to_owned()).collect());
        self
    }

    /// The guest may start in it, and can't tell.
    fn unseen_inside(self) -> Self {
        self.seen_inside(&[])
    }

    fn seen_by(mut self, programs: &'static [&'static str]) -> Self {
        self.programs = programs;
        self.always = true;
        self
    }

    /// Whether inspect names the weakened field with this one.
    pub(crate) fn is_named_by_inspect(&self, field: &str) -> bool {
        let mut words = self.field.split(' ');
        let name = words.next().expect("a field has a name");
        let entry = words.next().filter(|entry| entry.starts_with('/'));
        ["HostConfig.", "Config.", ""].iter().any(|part| {
            let rest = field
                .strip_prefix(part)
                .and_then(|field| field.strip_prefix(name));
            match (rest, entry) {
                (Some(rest), Some(entry)) => rest.strip_prefix('.') == Some(entry),
                (Some(rest), None) => rest.is_empty() || rest.starts_with('.'),
                (None, _) => false,
            }
        })
    }

    /// Whether the guest's read-back names it with this one.
    pub(crate) fn is_named_inside(&self, field: &str) -> bool {
        let mut names = self.inside.iter().flatten();
        names.any(|name| field.starts_with(name.as_str()))
    }
}

/// Every weak field. `present`: the paths that there are to hide, as an honest guest tells. `image`: another one than is asked for.
pub(crate) fn all(present: &[String], image: &str) -> Vec<Mutant> {
    let mut all = confinement::all();
    all.extend(files::all(present));
    all.extend(limits::all());
    all.extend(config::all(image));
    all
}

/// What is weak and not counted, and why.
pub(crate) const NOT_COUNTED: &[(&str, &str, &str)] = &[
    ("AppArmor, SELinux", "none", "this machine has neither"),
    (
        "BlkioWeight, device limits",
        "none",
        "control groups v1 here: we set none, and the engine applies none",
    ),
    (
        "KernelMemoryTCP",
        "none",
        "the engine takes it and does not apply it; jobs have no TCP",
    ),
    (
        "Runtime",
        "runc under the name of runsc",
        "tested in `tests/hostile/runtimes.rs`",
    ),
];

/// Puts a value into a request, at `Name` or `HostConfig.Name`.
fn set(place: &'static str, value: impl Into<Value>) -> impl Fn(&mut Value) + Send + Sync + 'static {
    let value = value.into();
    move |create| match place.split_once('.') {
        Some((part, name)) => create[part][name] = value.clone(),
        None => create[place] = value.clone(),
    }
}

/// Four times a number of the host's configuration.
fn four_times(create: &mut Value, name: &str) {
    let number = create["HostConfig"][name].as_i64().unwrap();
    create["HostConfig"][name] = (4 * number).into();
}

/// Takes one item out of a list of the host's configuration, or adds one.
fn list<'a>(create: &'a mut Value, name: &str) -> &'a mut Vec<Value> {
    create["HostConfig"][name].as_array_mut().unwrap()
}
