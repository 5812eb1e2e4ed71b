//! One JSON object a line: a job spec, with the item's name as `id`, and with shorter ways to say its program.

use std::{
    collections::BTreeMap,
    fmt,
    fs::File,
    io::{self, BufRead as _, BufReader, Read, Seek as _},
    path::{Component, Path, PathBuf},
};

use mayfly_core::job::{Blob, JobSpec, Language, Source};
use serde::{
    Deserialize, Deserializer,
    de::{self, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use super::{Item, Wrong, language_of, read};

/// Longest line. A job's content is bounded by its policy; in JSON each byte of it may take more than one.
const MAX_LINE: u64 = 64 << 20;
/// Most bytes that are taken of an input that can't be read twice.
const MAX_SPOOLED: u64 = 16 << 30;

/// Lines that can be read again and again.
pub(super) struct Lines {
    file: File,
    /// Where paths of programs start from.
    folder: PathBuf,
}

/// What a look for a line found.
enum Next {
    Line,
    TooLong,
    End,
}

impl Lines {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        if file.metadata()?.is_file() {
            let folder = path.parent().map_or_else(PathBuf::new, Path::to_owned);
            return Ok(Self { file, folder });
        }
        // A pipe, such as a shell makes for `<(…)`.
        Self::spooled(&mut file)
    }

    /// Keeps what can be read only once in a file that has no name.
    pub(super) fn spooled(from: &mut impl Read) -> io::Result<Self> {
        let mut file = tempfile::tempfile()?;
        let count = io::copy(&mut from.take(MAX_SPOOLED + 1), &mut file)?;
        if count > MAX_SPOOLED {
            return Err(io::Error::other(format!("it is larger than {MAX_SPOOLED} bytes")));
        }
        Ok(Self {
            file,
            folder: PathBuf::new(),
        })
    }

    /// Each line that is not empty, with `base` for what it does not say.
    pub(super) fn items<'a>(
        &'a self,
        base: &'a JobSpec,
        most: u64,
    ) -> io::Result<impl Iterator<Item = Result<Item, Wrong>> + 'a> {
        (&self.file).rewind()?;
        let mut reader = BufReader::with_capacity(64 << 10, &self.file);
        let (mut number, mut line, mut over) = (0u64, Vec::new(), false);
        Ok(std::iter::from_fn(move || {
            while !over {
                number += 1;
                let wrong = |message| {
                    Some(Err(Wrong {
                        place: format!("line {number}"),
                        message,
                    }))
                };
                match next_line(&mut reader, &mut line) {
                    Ok(Next::End) => over = true,
                    Ok(Next::Line) if line.trim_ascii().is_empty() => {}
                    Ok(Next::Line) => return Some(self.item(&line, number, base, most)),
                    Ok(Next::TooLong) => return wrong(format!("is longer than {MAX_LINE} bytes")),
                    Err(error) => {
                        over = true;
                        return wrong(format!("can't be read: {error}"));
                    }
                }
            }
            None
        }))
    }

    fn item(&self, line: &[u8], number: u64, base: &JobSpec, most: u64) -> Result<Item, Wrong> {
        let mut name = None;
        let item = self.parse(line, base, most, &mut name);
        item.map_err(|message| Wrong {
            place: match name {
                Some(name) => format!("line {number} ({name})"),
                None => format!("line {number}"),
            },
            message,
        })
    }

    fn parse(
        &self,
        line: &[u8],
        base: &JobSpec,
        most: u64,
        named: &mut Option<String>,
    ) -> Result<Item, String> {
        let Fields(mut fields) = serde_json::from_slice(line).map_err(|error| without_line(&error))?;
        let name = match fields.remove("id") {
            Some(Value::String(name)) => name,
            Some(_) => return Err("id: expected a string".to_owned()),
            None => return Err("id: missing; each item needs a name of its own".to_owned()),
        };
        *named = Some(name.clone());
        let source = self.source(&mut fields, most)?;
        let asks_to_retry = fields.contains_key("retry");
        fields
            .entry("image")
            .or_insert_with(|| Value::String(base.image.to_string()));
        let own = serde_path_to_error::deserialize::<_, JobSpec>(Value::Object(fields));
        let own = own.map_err(|error| match error.path().to_string() {
            path if path == "." => error.inner().to_string(),
            path => format!("{path}: {}", error.inner()),
        })?;
        let spec = JobSpec {
            source,
            files: own.files.into_iter().chain(base.files.iter().cloned()).collect(),
            archives: own
                .archives
                .into_iter()
                .chain(base.archives.iter().cloned())
                .collect(),
            uploads: own
                .uploads
                .into_iter()
                .chain(base.uploads.iter().cloned())
                .collect(),
            env: merged(&base.env, own.env),
            secrets: merged(&base.secrets, own.secrets),
            secret_files: merged(&base.secret_files, own.secret_files),
            egress: own
                .egress
                .into_iter()
                .chain(base.egress.iter().cloned())
                .collect(),
            labels: merged(&base.labels, own.labels),
            limits: own.limits.or(base.limits),
            runtime: own.runtime.or_else(|| base.runtime.clone()),
            retry: if asks_to_retry {
                own.retry
            } else {
                base.retry.clone()
            },
            ..own
        };
        Ok(Item { name, spec })
    }

    /// The program, in whichever way it is given: `source` as in a job spec, or as its text alone beside `language`; or
    /// `file`, whose name says the language where `language` does not.
    fn source(&self, fields: &mut Map<String, Value>, most: u64) -> Result<Option<Source>, String> {
        let language = fields.remove("language").map(Language::deserialize).transpose();
        let language = language.map_err(|error| format!("language: {error}"))?;
        match (fields.remove("source"), fields.remove("file")) {
            (Some(_), Some(_)) => Err("give `source` or `file`, not both".to_owned()),
            (None, None) if language.is_some() => {
                Err("language: there is no `source` and no `file` whose language it could be".to_owned())
            }
            (None, None) => Ok(None),
            (Some(source), None) if source.get("text").is_some() => match language {
                Some(_) => Err("language: belongs into `source` where that is an object".to_owned()),
                None => Source::deserialize(source)
                    .map(Some)
                    .map_err(|error| format!("source: {error}")),
            },
            (Some(source), None) => match Blob::deserialize(source) {
                Ok(text) => Ok(Some(Source {
                    language: language.unwrap_or_default(),
                    text,
                })),
                Err(_) => Err("source: expected text, or {\"base64\": \"…\"}".to_owned()),
            },
            (None, Some(Value::String(path))) => {
                let text = self.program(&path, most);
                Ok(Some(Source {
                    language: language
                        .or_else(|| language_of(Path::new(&path)))
                        .unwrap_or_default(),
                    text: Blob::from(text.map_err(|message| format!("file: {path}: {message}"))?),
                }))
            }
            (None, Some(_)) => Err("file: expected a path".to_owned()),
        }
    }

    /// The bytes of a program beside the lines. Who wrote the lines need not be who runs them, so that a path leads
    /// nowhere else.
    fn program(&self, path: &str, most: u64) -> Result<Vec<u8>, String> {
        let path = Path::new(path);
        let below = |part| matches!(part, Component::Normal(_) | Component::CurDir);
        if !path.components().all(below) {
            return Err("must lie below the folder of the input, without `..`".to_owned());
        }
        let mut whole = self.folder.clone();
        for part in path.components() {
            whole.push(part);
            if whole.is_symlink() {
                return Err("leads through a link, which may lead anywhere".to_owned());
            }
        }
        read(&whole, most)
    }
}

/// The next line. One that is too long is skipped to its end, and not held.
fn next_line(reader: &mut BufReader<&File>, line: &mut Vec<u8>) -> io::Result<Next> {
    line.clear();
    if reader.take(MAX_LINE).read_until(b'\n', line)? == 0 {
        return Ok(Next::End);
    }
    if line.ends_with(b"\n") || (line.len() as u64) < MAX_LINE {
        return Ok(Next::Line);
    }
    *line = Vec::new();
    reader.skip_until(b'\n')?;
    Ok(Next::TooLong)
}

fn merged<T: Clone>(base: &BTreeMap<String, T>, own: BTreeMap<String, T>) -> BTreeMap<String, T> {
    let mut all = base.clone();
    all.extend(own);
    all
}

/// An error of the parser without its own count of lines, which is always 1.
fn without_line(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((text, _)) => format!("{text} at column {}", error.column()),
        None => text,
    }
}

/// A JSON object, each of whose fields stands once: of two the parser would take the last without a word.
struct Fields(Map<String, Value>);

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Once;
        impl<'de> Visitor<'de> for Once {
            type Value = Fields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Map::new();
                while let Some((name, value)) = map.next_entry::<String, Value>()? {
                    if fields.contains_key(&name) {
                        return Err(de::Error::custom(format_args!("{name}: given twice")));
                    }
                    fields.insert(name, value);
                }
                Ok(Fields(fields))
            }
        }
        deserializer.deserialize_map(Once)
    }
}
