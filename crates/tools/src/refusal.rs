//! What is said where a call can't be carried out: by the server's words, for a model that can repair some of it.

use std::fmt::Write as _;

use mayfly_client::ClientError;
use mayfly_core::id::JobId;
use mayfly_wire::{job::State, problem::Code};

use crate::{answer::Answer, definition::Definition};

/// A tool that nobody has.
pub(crate) fn no_such_tool(tool: &str, definitions: &[Definition]) -> Box<Answer> {
    let names: Vec<_> = definitions.iter().map(|tool| tool.name).collect();
    let tool: String = tool.escape_debug().take(80).collect();
    let text = format!("There is no tool `{tool}`. There are: {}.", names.join(", "));
    Box::new(Answer::failed(text, None))
}

/// A program that was not accepted.
pub(crate) fn not_submitted(error: &ClientError) -> Box<Answer> {
    let mut text = "Nothing was run: ".to_owned();
    let problem = error.refusal().and_then(|refusal| refusal.problem.as_ref());
    match (error.code(), problem) {
        (Some(Code::InvalidJob | Code::InvalidBody), Some(problem)) => {
            text.push_str("the call breaks rules of this service.");
            for fault in &problem.faults {
                let path = argument(&fault.path);
                let about = if path.is_empty() { "" } else { ": " };
                write!(text, "\n- {path}{about}{}", fault.message).expect("a string takes what it is given");
            }
            text.push_str("\nChange that and call the tool again.");
        }
        _ => {
            write!(text, "{error}.{}", advice(error)).expect("a string takes what it is given");
        }
    }
    Box::new(Answer::failed(text, None))
}

/// Whether a program was refused for nothing but the files that it asks to keep.
pub(crate) fn is_about_files_to_keep(error: &ClientError) -> bool {
    let problem = error.refusal().and_then(|refusal| refusal.problem.as_ref());
    problem.is_some_and(|problem| {
        problem.code == Code::InvalidJob
            && !problem.faults.is_empty()
            && problem
                .faults
                .iter()
                .all(|fault| fault.path.starts_with("artifacts"))
    })
}

/// A call about a job that was not answered.
pub(crate) fn not_answered(job: JobId, error: &ClientError) -> Box<Answer> {
    let text = match error.code() {
        Some(Code::NotFound) => {
            let detail = error
                .refusal()
                .and_then(|refusal| refusal.problem.as_ref()?.detail.as_deref());
            format!(
                "{}. Take the id from the result of run_python; output is there once the job has ended.",
                detail.unwrap_or("There is no such job")
            )
        }
        Some(Code::RangeNotSatisfiable) => {
            format!("Nothing is kept of job {job} from this offset on: take a smaller one.")
        }
        _ => format!(
            "{error}. Job {job} goes on without this call: call wait with it.{}",
            advice(error)
        ),
    };
    Box::new(Answer::failed(text, Some(job)))
}

fn advice(error: &ClientError) -> &'static str {
    match error.code() {
        Some(Code::RateLimited | Code::OverQuota | Code::Unavailable | Code::Overloaded) | None => {
            " The call itself is in order: try the same again later."
        }
        Some(_) => " Another call does not help: tell the user.",
    }
}

/// The name that the field of a job has among a tool's arguments.
fn argument(path: &str) -> String {
    match path {
        "limits.wall" => "timeout_seconds".to_owned(),
        "source.text" | "source" => "the program".to_owned(),
        path => path.replace(".content", "").replace("artifacts", "keep"),
    }
}

/// The word for a state.
pub(crate) fn word(state: State) -> String {
    match serde_json::to_value(state) {
        Ok(serde_json::Value::String(word)) => word,
        other => unreachable!("a state is a word: {other:?}"),
    }
}
