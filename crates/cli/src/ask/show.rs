//! A run for a person to watch: on stderr, each line that is a model's or a program's with a bar before it.

use std::{
    fmt::Write as _,
    sync::atomic::{AtomicU32, Ordering},
};

use mayfly_agent::{
    model::{Arguments, ToolCall},
    record::{Call, Run},
    run::Event,
};
use serde_json::Value;

use crate::terminal::say;

/// Most lines that are shown of a program, or of what came of it.
const MOST_LINES: usize = 30;
/// Most characters of a line.
const MOST_CHARACTERS: usize = 160;

/// Arguments that are a program.
const TEXTS: [&str; 4] = ["source", "code", "script", "command"];

/// Shows steps as they are taken.
pub(super) struct Steps {
    quiet: bool,
    step: AtomicU32,
}

impl Steps {
    pub(super) const fn new(quiet: bool) -> Self {
        Self {
            quiet,
            step: AtomicU32::new(0),
        }
    }

    pub(super) fn show(&self, event: Event<'_>) {
        if self.quiet {
            return;
        }
        match event {
            Event::Asking { step } => self.step.store(step, Ordering::Relaxed),
            // Without calls the words are the answer, which is shown at the end.
            Event::Said { calls: [], .. } => {}
            Event::Said { text, calls } => {
                let step = self.step.load(Ordering::Relaxed);
                let mut shown = barred(text);
                for call in calls {
                    write!(
                        shown,
                        "mayfly: step {step}: {}\n{}",
                        word(&call.name),
                        barred(&program(call))
                    )
                    .expect("a string takes what it is given");
                }
                say(shown.trim_end_matches('\n'));
            }
            Event::Called(call) => {
                let step = self.step.load(Ordering::Relaxed);
                let (first, rest) = of_result(call);
                let shown = format!(
                    "mayfly: step {step}: {}: {first}\n{}",
                    word(&call.tool),
                    barred(rest)
                );
                say(shown.trim_end_matches('\n'));
            }
        }
    }
}

/// A whole program, and whether it may run.
pub(super) fn question(call: &ToolCall) -> String {
    let mut shown = format!("mayfly: the model wants to run this with {}:\n", word(&call.name));
    for line in program(call).lines() {
        writeln!(shown, "  | {line}").expect("a string takes what it is given");
    }
    if let Arguments::Object(object) = &call.arguments {
        let others: Vec<String> = object
            .keys()
            .filter(|name| !TEXTS.contains(&name.as_str()))
            .map(|name| word(&format!("{name}: {}", object[name])))
            .collect();
        if !others.is_empty() {
            writeln!(shown, "mayfly: with {}", others.join(", ")).expect("a string takes what it is given");
        }
    }
    shown + "mayfly: may it? y or n"
}

/// The line of a run that has ended.
pub(super) fn summary(run: &Run) -> String {
    let usage = &run.usage;
    let jobs = run.jobs().count();
    let mut line = format!(
        "mayfly: {} in {:.1} s: {}, {}, {} tokens read and {} written",
        if run.answer.is_some() { "answered" } else { "ended" },
        run.elapsed.as_secs_f64(),
        counted(run.steps.len(), "step"),
        counted(jobs, "job"),
        usage.input_tokens,
        usage.output_tokens,
    );
    if let Some(cost) = usage.cost {
        write!(line, ", {cost}").expect("a string takes what it is given");
    }
    line
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// What a call runs, where that is one text; else its arguments.
fn program(call: &ToolCall) -> String {
    match &call.arguments {
        Arguments::Malformed { text, .. } => text.clone(),
        Arguments::Object(object) => {
            let program = ["source", "code", "script"]
                .iter()
                .find_map(|name| object.get(*name)?.as_str());
            program.map_or_else(|| Value::Object(object.clone()).to_string(), ToOwned::to_owned)
        }
    }
}

/// The first line of a result, which is ours, and the others.
fn of_result(call: &Call) -> (String, &str) {
    let (first, rest) = call.result.split_once('\n').unwrap_or((&call.result, ""));
    (word(first), rest)
}

/// Words of a model on a line of ours.
fn word(text: &str) -> String {
    cut(&crate::terminal::shown(text))
}

fn cut(line: &str) -> String {
    match line.char_indices().nth(MOST_CHARACTERS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line.to_owned(),
    }
}

/// Lines with a bar before each, so that none looks like one of ours.
fn barred(text: &str) -> String {
    let text = text.trim_matches('\n');
    let mut shown = String::new();
    for line in text.lines().take(MOST_LINES) {
        writeln!(shown, "  | {}", cut(line)).expect("a string takes what it is given");
    }
    let more = text.lines().count().saturating_sub(MOST_LINES);
    if more > 0 {
        writeln!(shown, "  | … {more} more lines").expect("a string takes what it is given");
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_line_of_a_program_or_a_model_looks_like_one_of_ours() {
        let shown = barred("mayfly: error: forged\n\nx\rmayfly: y\n");
        assert_eq!(shown, "  | mayfly: error: forged\n  | \n  | x\rmayfly: y\n");
        // A carriage return is shown by the way out.
        assert!(!crate::terminal::harmless(&shown).contains('\r'));
        assert_eq!(word("run\nmayfly: x"), "run\\nmayfly: x");
        let long = barred(&"x\n".repeat(50));
        assert!(long.ends_with("  | … 20 more lines\n"), "{long}");
        assert!(barred(&"y".repeat(1000)).chars().count() < 200);
        assert_eq!(barred(""), "");
    }
}
