//! Every program below a folder.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use mayfly_core::job::{Blob, JobSpec, Source};

use super::{Item, MAX_ITEMS, Wrong, language_of, read};

/// How deep folders may lie in one another.
const MAX_DEPTH: usize = 64;

/// A folder with the paths of its programs, which are sorted.
pub(super) struct Folder {
    root: PathBuf,
    found: Vec<Result<String, Wrong>>,
    left_out: Vec<String>,
}

impl Folder {
    /// Looks what there is. Hidden files and folders are not looked at; links are left out, since they may lead
    /// anywhere, and named.
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let mut folder = Self {
            root: root.to_owned(),
            found: Vec::new(),
            left_out: Vec::new(),
        };
        folder.look(root, "", 0)?;
        folder.found.sort_by(|a, b| key(a).cmp(key(b)));
        folder.left_out.sort();
        Ok(folder)
    }

    pub(super) fn left_out(&self) -> &[String] {
        &self.left_out
    }

    /// One folder, whose path below the root is `prefix`.
    fn look(&mut self, path: &Path, prefix: &str, depth: usize) -> io::Result<()> {
        for entry in fs::read_dir(path)? {
            // One more than allowed is a fault, which the check finds; there is no use in more than that.
            if self.found.len() + self.left_out.len() > MAX_ITEMS {
                return Ok(());
            }
            let entry = entry?;
            let name = entry.file_name();
            if name.as_encoded_bytes().starts_with(b".") {
                continue;
            }
            let kind = entry.file_type()?;
            let place = format!("{prefix}{}", name.to_string_lossy());
            if kind.is_symlink() && (language_of(Path::new(&place)).is_some() || entry.path().is_dir()) {
                self.left_out.push(place);
                continue;
            }
            if !kind.is_dir() && language_of(Path::new(&place)).is_none() {
                continue;
            }
            if name.to_str().is_none() {
                self.wrong(place, "its name is not UTF-8, and an item is called by it");
            } else if !kind.is_dir() {
                self.found.push(Ok(place));
            } else if depth >= MAX_DEPTH {
                self.wrong(place, "folders lie too deep in one another");
            } else if let Err(error) = self.look(&entry.path(), &format!("{place}/"), depth + 1) {
                self.wrong(place, &format!("can't be read: {error}"));
            }
        }
        Ok(())
    }

    fn wrong(&mut self, place: String, message: &str) {
        self.found.push(Err(Wrong {
            place,
            message: message.to_owned(),
        }));
    }

    /// Each program, with `base` for all that its text does not say.
    pub(super) fn items<'a>(
        &'a self,
        base: &'a JobSpec,
        most: u64,
    ) -> impl Iterator<Item = Result<Item, Wrong>> + 'a {
        self.found.iter().map(move |found| match found {
            Ok(name) => self.item(name, base, most),
            Err(wrong) => Err(wrong.clone()),
        })
    }

    fn item(&self, name: &str, base: &JobSpec, most: u64) -> Result<Item, Wrong> {
        let text = read(&self.root.join(name), most).map_err(|message| Wrong {
            place: name.to_owned(),
            message,
        })?;
        let language = language_of(Path::new(name)).unwrap_or_default();
        Ok(Item {
            name: name.to_owned(),
            spec: JobSpec {
                source: Some(Source {
                    language,
                    text: Blob::from(text),
                }),
                ..base.clone()
            },
        })
    }
}

fn key(found: &Result<String, Wrong>) -> &str {
    match found {
        Ok(name) => name,
        Err(wrong) => &wrong.place,
    }
}
