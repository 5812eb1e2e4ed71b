//! The tools that run programs as jobs, in a run.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use mayfly_tools::{Call, Progress, Toolbox};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{
    model::ToolSpec,
    tool::{Tool, ToolOutcome},
};

/// Tools that run a program, and so get the files of the run.
const PROGRAMS: [&str; 2] = ["run_python", "run_shell"];

/// A file that each program of a run finds in its working directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenFile {
    /// Relative to /work.
    pub path: String,
    /// What is in it.
    pub content: Vec<u8>,
}

/// The tools of a toolbox, whose programs find these files.
#[must_use]
pub fn tools(toolbox: &Toolbox, files: Vec<GivenFile>) -> Vec<Arc<dyn Tool>> {
    let files: Arc<[GivenFile]> = files.into();
    let told = told(&files);
    let tools = toolbox.definitions().into_iter().map(|definition| {
        let runs_programs = PROGRAMS.contains(&definition.name);
        let tool = ToolboxTool {
            toolbox: toolbox.clone(),
            files: if runs_programs {
                Arc::clone(&files)
            } else {
                Arc::default()
            },
            spec: ToolSpec {
                name: definition.name.to_owned(),
                description: if runs_programs {
                    definition.description + &told
                } else {
                    definition.description
                },
                parameters: definition.input_schema,
            },
        };
        Arc::new(tool) as Arc<dyn Tool>
    });
    tools.collect()
}

/// What a model is told of the files.
fn told(files: &[GivenFile]) -> String {
    if files.is_empty() {
        return String::new();
    }
    let list: Vec<String> = files
        .iter()
        .map(|file| format!("{:?} ({} bytes)", file.path, file.content.len()))
        .collect();
    format!(
        " The user's files are in /work of every program, without being passed: {}. Look at a file before you rely on what is \
         in it.",
        list.join(", ")
    )
}

struct ToolboxTool {
    toolbox: Toolbox,
    files: Arc<[GivenFile]>,
    spec: ToolSpec,
}

impl ToolboxTool {
    /// Puts the files of the run beside those of the call; of two with the same path the call's is the one.
    fn with_files(&self, mut arguments: Map<String, Value>) -> Map<String, Value> {
        if self.files.is_empty() {
            return arguments;
        }
        let list = arguments.entry("files").or_insert_with(|| json!([]));
        // What is no list is refused by the tool itself, in words for the model.
        if let Value::Array(list) = list {
            for file in self.files.iter() {
                let is_there = list.iter().any(|one| {
                    one["path"]
                        .as_str()
                        .map(|path| path.trim_start_matches("/work/").trim_start_matches("./"))
                        == Some(file.path.as_str())
                });
                if !is_there {
                    list.push(json!({"path": file.path, "base64": STANDARD.encode(&file.content)}));
                }
            }
        }
        arguments
    }
}

#[async_trait]
impl Tool for ToolboxTool {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn is_held(&self) -> bool {
        PROGRAMS.contains(&self.spec.name.as_str())
    }

    async fn call(&self, arguments: Map<String, Value>, stop: &CancellationToken) -> ToolOutcome {
        let call = Call {
            stop,
            progress: &|progress: Progress| {
                tracing::debug!(job.id = %progress.job, elapsed_s = progress.elapsed.as_secs(), "a tool's job goes on");
            },
        };
        let answer = self
            .toolbox
            .call(&self.spec.name, self.with_files(arguments), call)
            .await;
        ToolOutcome {
            text: answer.text,
            is_error: answer.is_error,
            job: answer.job,
        }
    }
}

/// How often a call that goes on says so.
pub const PROGRESS_EVERY: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use mayfly_client::{Client, ClientConfig, ServerUrl};
    use mayfly_tools::{Options, USUAL_CHARACTERS};

    use super::*;

    fn tool(files: Vec<GivenFile>) -> (Vec<Arc<dyn Tool>>, ToolboxTool) {
        let client = Client::new(ClientConfig {
            server: ServerUrl::parse("http://127.0.0.1:9", false).unwrap(),
            key: None,
            ca: None,
            timeout: Duration::from_secs(1),
            patience: Duration::ZERO,
            max_answer: 1,
        })
        .unwrap();
        let options = Options {
            image: "python".parse().unwrap(),
            shell: false,
            answer_within: Duration::from_secs(9),
            progress_every: PROGRESS_EVERY,
            characters: USUAL_CHARACTERS,
            egress: Vec::new(),
            labels: BTreeMap::new(),
        };
        let toolbox = Toolbox::new(client, options);
        let all = tools(&toolbox, files.clone());
        let one = ToolboxTool {
            spec: all[0].spec().clone(),
            toolbox,
            files: files.into(),
        };
        (all, one)
    }

    #[test]
    fn programs_get_the_files_of_the_run_and_the_model_is_told_so() {
        let given = GivenFile {
            path: "data.csv".to_owned(),
            content: b"a,b\xff".to_vec(),
        };
        let (all, one) = tool(vec![given]);
        for tool in &all {
            let spec = tool.spec();
            let is_told = spec.description.contains("\"data.csv\" (4 bytes)");
            assert_eq!(is_told, spec.name == "run_python", "{spec:?}");
            assert_eq!(tool.is_held(), spec.name == "run_python", "{spec:?}");
        }
        let with = |arguments: Value| {
            let Value::Object(arguments) = arguments else {
                panic!("an object")
            };
            Value::Object(one.with_files(arguments))["files"].clone()
        };
        let ours = json!({"path": "data.csv", "base64": "YSxi/w=="});
        assert_eq!(with(json!({"source": "1"})), json!([ours]));
        let theirs = json!({"path": "b", "text": "1"});
        assert_eq!(with(json!({"files": [theirs]})), json!([theirs, ours]));
        for same in ["data.csv", "/work/data.csv", "./data.csv"] {
            let own = json!([{"path": same, "text": "1"}]);
            assert_eq!(with(json!({"files": own})), own);
        }
        assert_eq!(with(json!({"files": "data.csv"})), json!("data.csv"));
        let (_, none) = tool(Vec::new());
        assert_eq!(none.with_files(Map::new()), Map::new());
    }
}
