//! What a batch is made of: a folder of programs, or lines of JSON. It is gone through twice, once to find every fault
//! before anything is accepted and once to accept; neither holds more than one item at a time.

mod folder;
mod lines;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fs::File,
    io::{self, Read},
    path::Path,
};

use mayfly_core::{
    digest::Digest,
    image::ImageName,
    job::{JobSpec, Language},
    policy::Policy,
};
use mayfly_store::records::MAX_ITEM_BYTES;

use self::{folder::Folder, lines::Lines};
use crate::{
    exit,
    failure::Failure,
    run::without_named_secrets,
    terminal::{say, shown},
};

/// Most items of a batch.
const MAX_ITEMS: usize = 100_000;
/// Faults that are said one by one; the others are counted.
const FAULTS_SAID: usize = 20;

/// One job of a batch on its way in.
#[derive(Debug)]
pub(crate) struct Item {
    /// Its name, the only one in the batch.
    pub(crate) name: String,
    pub(crate) spec: JobSpec,
}

/// What is wrong with one place of the input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wrong {
    /// A line's number, or a file's path.
    place: String,
    message: String,
}

/// What items are made from.
pub(crate) struct Input {
    /// What it is called, for people and for `mayfly batch list`.
    pub(crate) name: String,
    source: Source,
    /// The uploads that its items may name, and their lengths.
    uploads: BTreeMap<Digest, u64>,
}

enum Source {
    Folder(Folder),
    Lines(Lines),
}

/// What the first pass found.
pub(crate) struct Checked {
    pub(crate) items: u64,
    /// The images that items name.
    pub(crate) images: HashSet<ImageName>,
    /// The place of each name, from 1. By a digest, so that long names take no more room than short ones.
    places: HashMap<Digest, usize>,
}

impl Checked {
    /// Whether there is an item of this name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.places.contains_key(&Digest::of(name.as_bytes()))
    }
}

impl Input {
    /// Opens it.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let unreadable = |error: io::Error| {
            let error = anyhow::Error::new(error).context(format!("{} can't be read", path.display()));
            Failure::new(exit::NO_INPUT, error)
        };
        let name = path.display().to_string();
        let source = if path == Path::new("-") {
            let source = Lines::spooled(&mut io::stdin().lock());
            return Ok(Self {
                name: "-".to_owned(),
                source: Source::Lines(source.map_err(unreadable)?),
                uploads: BTreeMap::new(),
            });
        } else if std::fs::metadata(path).map_err(unreadable)?.is_dir() {
            Source::Folder(Folder::open(path).map_err(unreadable)?)
        } else if language_of(path).is_some() {
            return Err(Failure::usage(format!(
                "{name} is one program: `mayfly run {name}` runs it; a batch is a folder of programs, or a file of one \
                 JSON object a line"
            )));
        } else {
            Source::Lines(Lines::open(path).map_err(unreadable)?)
        };
        Ok(Self {
            name,
            source,
            uploads: BTreeMap::new(),
        })
    }

    /// The same, on a database that has these uploads, by their digests and with their lengths.
    pub(crate) fn with_uploads(self, uploads: BTreeMap<Digest, u64>) -> Self {
        Self { uploads, ..self }
    }

    /// What was left out on purpose, for a person to know.
    pub(crate) fn left_out(&self) -> &[String] {
        match &self.source {
            Source::Folder(folder) => folder.left_out(),
            Source::Lines(_) => &[],
        }
    }

    /// Every item in its order, `base` being what it is where it says nothing itself.
    pub(crate) fn items<'a>(
        &'a self,
        base: &'a JobSpec,
        policy: &'a Policy,
    ) -> Result<Box<dyn Iterator<Item = Result<Item, Wrong>> + 'a>, Failure> {
        let most = policy.content.total.as_bytes();
        let items: Box<dyn Iterator<Item = Result<Item, Wrong>> + 'a> = match &self.source {
            Source::Folder(folder) => Box::new(folder.items(base, most)),
            Source::Lines(lines) => {
                let items = lines.items(base, most);
                Box::new(items.map_err(|error| Failure::new(exit::NO_INPUT, error))?)
            }
        };
        Ok(Box::new(items.map(|item| {
            item.map(|mut item| {
                item.spec.know_uploads(&self.uploads);
                item
            })
        })))
    }

    /// Goes through all of it and says every fault.
    pub(crate) fn check(&self, base: &JobSpec, policy: &Policy) -> Result<Checked, Failure> {
        let mut faults = Faults::default();
        let mut places: HashMap<Digest, usize> = HashMap::new();
        let mut images = HashSet::new();
        let mut items = 0;
        for (index, item) in self.items(base, policy)?.enumerate() {
            if index >= MAX_ITEMS {
                faults.add(&Wrong {
                    place: format!("item {}", index + 1),
                    message: format!("a batch has at most {MAX_ITEMS} items; make several batches of it"),
                });
                break;
            }
            let item = match item {
                Ok(item) => item,
                Err(wrong) => {
                    faults.add(&wrong);
                    continue;
                }
            };
            items += 1;
            let place = || format!("item {} ({})", index + 1, item.name);
            let mut wrong = |message: String| {
                faults.add(&Wrong {
                    place: place(),
                    message,
                });
            };
            if let Some(why) = wrong_name(&item.name) {
                wrong(why.to_owned());
            }
            if let Some(earlier) = places.insert(Digest::of(item.name.as_bytes()), index + 1) {
                wrong(format!("item {earlier} has this name already"));
            }
            if let Err(several) = item.spec.check(policy) {
                several.iter().for_each(|fault| wrong(fault.to_string()));
            }
            if let Err(why) = without_named_secrets(&item.spec) {
                wrong(why.to_owned());
            }
            images.insert(item.spec.image);
        }
        faults.into_result(&self.name)?;
        if items == 0 {
            let nothing = match &self.source {
                Source::Folder(_) => "there is no .py or .sh file below",
                Source::Lines(_) => "there is no item in",
            };
            return Err(Failure::usage(format!("{nothing} {}", self.name)));
        }
        Ok(Checked {
            items,
            images,
            places,
        })
    }
}

/// What is wrong with an item's name, if anything.
fn wrong_name(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("a name can't be empty")
    } else if name.len() > MAX_ITEM_BYTES {
        Some("a name has at most 255 bytes")
    } else if name.chars().any(char::is_control) {
        Some("a name can't contain control characters")
    } else {
        None
    }
}

/// The interpreter of a program, by its file's name.
fn language_of(path: &Path) -> Option<Language> {
    match path.extension()?.to_str()? {
        "py" => Some(Language::Python),
        "sh" => Some(Language::Shell),
        _ => None,
    }
}

/// A program's bytes, if there are at most so many.
fn read(path: &Path, most: u64) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| format!("can't be read: {error}");
    let is_file = std::fs::metadata(path).map_err(unreadable)?.is_file();
    if !is_file {
        return Err("is no regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(most + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > most {
        return Err(format!(
            "is larger than the policy's ceiling for a job's content, {most} bytes"
        ));
    }
    Ok(bytes)
}

impl Wrong {
    /// It as an error, where everything had been right before.
    pub(crate) fn into_failure(self, input: &str) -> Failure {
        Failure::usage(format!("{input} has changed: {}: {}", self.place, self.message))
    }
}

/// All that is wrong: the first few said as they are found, all of them counted.
#[derive(Default)]
struct Faults {
    count: usize,
}

impl Faults {
    fn add(&mut self, wrong: &Wrong) {
        self.count += 1;
        if self.count <= FAULTS_SAID {
            say(&format!(
                "mayfly: {}: {}",
                shown(&wrong.place),
                shown(&wrong.message)
            ));
        }
    }

    fn into_result(self, input: &str) -> Result<(), Failure> {
        if self.count == 0 {
            return Ok(());
        }
        let more = self.count.saturating_sub(FAULTS_SAID);
        let and = if more > 0 {
            format!(", {more} of them not shown")
        } else {
            String::new()
        };
        let plural = if self.count == 1 { "" } else { "s" };
        Err(Failure::usage(format!(
            "{input} has {} fault{plural}{and}; nothing was accepted",
            self.count
        )))
    }
}

#[cfg(test)]
mod tests;
