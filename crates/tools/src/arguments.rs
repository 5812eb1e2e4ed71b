//! What a model has sent, read strictly, and refused in words that say what would be right.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_core::{
    id::JobId,
    job::{Blob, InputFile},
    units::Span,
};
use mayfly_wire::job::StreamName;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use crate::{answer::Answer, definition};

/// The arguments of `run_python`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PythonArguments {
    #[serde(alias = "code")]
    pub(crate) source: String,
    #[serde(default)]
    pub(crate) files: Vec<FileArgument>,
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    pub(crate) timeout_seconds: Option<Seconds>,
}

/// The arguments of `run_shell`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ShellArguments {
    #[serde(alias = "command")]
    pub(crate) script: String,
    #[serde(default)]
    pub(crate) files: Vec<FileArgument>,
    #[serde(default)]
    pub(crate) keep: Vec<String>,
    pub(crate) timeout_seconds: Option<Seconds>,
}

/// A file to put beside the program.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct FileArgument {
    path: String,
    text: Option<String>,
    base64: Option<String>,
}

/// The arguments of `wait`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct WaitArguments {
    pub(crate) job: JobId,
    pub(crate) timeout_seconds: Option<Seconds>,
}

/// The arguments of `read_output`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReadOutputArguments {
    pub(crate) job: JobId,
    #[serde(default = "stdout")]
    pub(crate) stream: StreamName,
    #[serde(default)]
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
}

/// The arguments of `get_artifact`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct GetArtifactArguments {
    pub(crate) job: JobId,
    #[serde(default)]
    pub(crate) index: u32,
    #[serde(default)]
    pub(crate) offset: u64,
    pub(crate) limit: Option<u64>,
}

/// The arguments of `cancel` and `list_artifacts`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct JobArguments {
    pub(crate) job: JobId,
}

const fn stdout() -> StreamName {
    StreamName::Stdout
}

/// A time in seconds, more than nothing and at most a day: the policy has the last word on it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(try_from = "f64")]
pub(crate) struct Seconds(Span);

impl TryFrom<f64> for Seconds {
    type Error = &'static str;

    fn try_from(seconds: f64) -> Result<Self, Self::Error> {
        if !(0.001..=86_400.0).contains(&seconds) {
            return Err("expected a number of seconds between 0.001 and 86400");
        }
        let millis = std::time::Duration::from_secs_f64(seconds).as_millis();
        Ok(Self(Span::millis(u64::try_from(millis).unwrap_or(u64::MAX))))
    }
}

impl From<Seconds> for Span {
    fn from(seconds: Seconds) -> Self {
        seconds.0
    }
}

/// Reads the arguments of a tool.
pub(crate) fn read<T: DeserializeOwned>(tool: &str, arguments: Map<String, Value>) -> Result<T, Box<Answer>> {
    serde_json::from_value(Value::Object(arguments)).map_err(|error| wrong(tool, &error.to_string()))
}

/// An answer to arguments that are wrong, with those that would be right.
pub(crate) fn wrong(tool: &str, why: &str) -> Box<Answer> {
    let text = format!(
        "This call was not carried out: the arguments of {tool} are wrong: {why}. Call it again with {}",
        definition::example(tool)
    );
    Box::new(Answer::failed(text, None))
}

impl FileArgument {
    /// The file of a job, `index` among those of its call.
    pub(crate) fn into_file(self, tool: &str, index: usize) -> Result<InputFile, Box<Answer>> {
        let content = match (self.text, self.base64) {
            (Some(text), None) => Blob::from(text.into_bytes()),
            (None, Some(base64)) => match STANDARD.decode(base64.trim()) {
                Ok(bytes) => Blob::from(bytes),
                Err(error) => {
                    return Err(wrong(
                        tool,
                        &format!("files[{index}].base64 is no base64: {error}"),
                    ));
                }
            },
            _ => {
                return Err(wrong(
                    tool,
                    &format!("files[{index}] needs its content: either `text` or `base64`"),
                ));
            }
        };
        Ok(InputFile {
            path: in_work(self.path),
            content,
            executable: false,
            mode: None,
        })
    }
}

/// A path below the folder that programs are started in, which models often name.
pub(crate) fn in_work(path: String) -> String {
    let relative = path.strip_prefix("/work/").or_else(|| path.strip_prefix("./"));
    relative.map_or_else(|| path.clone(), ToOwned::to_owned)
}

/// A program's text without what a model has put around it: a Markdown fence, and an indentation that all of its lines
/// have. Whatever is valid as it stands is left as it stands.
pub(crate) fn unwrapped(text: &str) -> String {
    let text = without_fence(text);
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let first = lines.next().unwrap_or_default();
    let margin = lines.fold(indentation(first), |margin, line| {
        common(margin, indentation(line))
    });
    if margin.is_empty() {
        return text.to_owned();
    }
    let mut dedented: String = text
        .lines()
        .map(|line| line.strip_prefix(margin).unwrap_or_else(|| line.trim_start()))
        .collect::<Vec<_>>()
        .join("\n");
    if text.ends_with('\n') {
        dedented.push('\n');
    }
    dedented
}

/// The text within a fence that is around all of it.
fn without_fence(text: &str) -> &str {
    let fenced = || {
        let (opening, rest) = text.trim().strip_prefix("```")?.split_once('\n')?;
        let is_word = opening.trim().bytes().all(|byte| byte.is_ascii_alphanumeric());
        let inner = rest.trim_end().strip_suffix("```")?;
        (is_word && !inner.contains("\n```")).then_some(inner)
    };
    fenced().unwrap_or(text)
}

fn indentation(line: &str) -> &str {
    &line[..line.len() - line.trim_start_matches([' ', '\t']).len()]
}

fn common<'a>(one: &'a str, other: &str) -> &'a str {
    let length = one
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count();
    &one[..length]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read_from<T: DeserializeOwned>(tool: &str, arguments: Value) -> Result<T, String> {
        let Value::Object(arguments) = arguments else {
            panic!("arguments are an object")
        };
        read(tool, arguments).map_err(|answer| answer.text)
    }

    #[test]
    fn what_is_common_to_all_lines_is_no_part_of_the_program() {
        for (text, program) in [
            (
                "    x = 1\n    if x:\n        y = 2\n",
                "x = 1\nif x:\n    y = 2\n",
            ),
            ("\n\tx\n\n\t\ty", "\nx\n\n\ty"),
            ("  x\n y\n", " x\ny\n"),
            ("x\n    y\n", "x\n    y\n"),
            ("```python\nprint(1)\n```", "print(1)\n"),
            ("```\nprint(1)\n```\n", "print(1)\n"),
            ("s = '''\n```\n'''", "s = '''\n```\n'''"),
            (
                "```python\nprint('''\n```\n''')\n```",
                "```python\nprint('''\n```\n''')\n```",
            ),
            ("", ""),
            ("   \n", "   \n"),
        ] {
            assert_eq!(unwrapped(text), program, "{text:?}");
        }
    }

    #[test]
    fn arguments_that_are_wrong_are_told_what_would_be_right() {
        for (arguments, why) in [
            (json!({}), "missing field `source`"),
            (json!({"source": 1}), "expected a string"),
            (
                json!({"source": "1", "language": "c"}),
                "unknown field `language`",
            ),
            (
                json!({"source": "1", "timeout_seconds": 0}),
                "between 0.001 and 86400",
            ),
            (json!({"source": "1", "timeout_seconds": "30s"}), "expected f64"),
            (json!({"source": "1", "files": {"a": "b"}}), "expected a sequence"),
        ] {
            let text = read_from::<PythonArguments>("run_python", arguments).unwrap_err();
            assert!(text.contains(why), "{text}");
            assert!(text.contains(r#"{"source":"#), "{text}");
        }
        let text = read_from::<WaitArguments>("wait", json!({"job": "7"})).unwrap_err();
        assert!(
            text.contains("not carried out") && text.contains(r#"{"job":"#),
            "{text}"
        );
    }

    #[test]
    fn a_file_has_one_content_and_lies_below_work() {
        let file = |path: &str, text: Option<&str>, base64: Option<&str>| {
            let file = FileArgument {
                path: path.to_owned(),
                text: text.map(ToOwned::to_owned),
                base64: base64.map(ToOwned::to_owned),
            };
            file.into_file("run_python", 2).map_err(|answer| answer.text)
        };
        assert_eq!(file("/work/a.csv", Some("1"), None).unwrap().path, "a.csv");
        assert_eq!(file("./a.csv", Some("1"), None).unwrap().path, "a.csv");
        let bytes = file("b", None, Some("/w==")).unwrap().content;
        assert_eq!(bytes.as_bytes(), b"\xff");
        for wrong in [
            file("b", None, None),
            file("b", Some(""), Some("")),
            file("b", None, Some("?")),
        ] {
            assert!(wrong.unwrap_err().contains("files[2]"));
        }
    }
}
