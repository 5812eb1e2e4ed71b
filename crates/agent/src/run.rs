//! One run: the model answers, its calls are carried out, it reads what came of them, until it is done or a bound is
//! reached.
//!
//! ```text
//! Agent::run
//! └── calls of one turn, a few beside each other, in the order of the turn
//! ```
//!
//! Decided: the steps are counted in answers of the model; with the last results before the end of them it is told to
//! answer. A bound of tokens or money is looked at after each answer, since nobody knows before what it will take, and
//! calls of an answer that passes one are not carried out. When the time is over, running jobs are canceled and waited for.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::{StreamExt as _, stream};
use mayfly_core::chain::Chain;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

use crate::{
    bounds::{Bounds, Price},
    model::{Arguments, Message, ModelClient, Reply, Request, Stop, ToolCall, ToolResult, ToolSpec, Usage},
    prompt,
    record::{Call, End, Run, Step},
    tool::{Approval, Tool, ToolOutcome, Verdict},
};

/// Most bytes of a call's arguments. No model writes more in one answer but by mistake.
const MOST_ARGUMENTS: usize = 256 << 10;
/// Most calls of one answer.
const MOST_CALLS: usize = 16;
/// How long tools that were asked to stop are waited for.
const STOP_LIMIT: Duration = Duration::from_secs(20);

/// Asks a model, and does what it calls for.
pub struct Agent {
    /// Who is asked.
    pub model: Arc<dyn ModelClient>,
    /// What may be called.
    pub tools: Vec<Arc<dyn Tool>>,
    /// How far it may go.
    pub bounds: Bounds,
    /// What the model costs, where its provider does not say so.
    pub price: Option<Price>,
    /// Who is asked before a program runs; nobody where it is none.
    pub approval: Option<Arc<dyn Approval>>,
}

/// What happens in a run, as it does.
#[derive(Debug)]
pub enum Event<'a> {
    /// The model is asked.
    Asking {
        /// The step, counted from 1.
        step: u32,
    },
    /// It has answered.
    Said {
        /// Its words; there may be none beside calls.
        text: &'a str,
        /// Its calls.
        calls: &'a [ToolCall],
    },
    /// A call has come to its end.
    Called(&'a Call),
}

/// Hears what happens.
pub type Listener<'a> = &'a (dyn Fn(Event<'_>) + Send + Sync);

/// A run under way.
struct Under {
    messages: Vec<Message>,
    steps: Vec<Step>,
    usage: Option<Usage>,
    /// An answer was empty, and the model has been told.
    is_nudged: bool,
}

/// Why a call that was refused by whoever was asked is not carried out.
const NOT_APPROVED: &str = "whoever watches this run has refused it. Do not call it again unchanged: take another way, or \
                            answer with what you know.";

/// What a step led to.
enum Next {
    Go,
    End(End, Option<String>),
}

impl Agent {
    /// Puts a task through. It always comes to an end, which the record names.
    ///
    /// # Cancel safety
    /// Dropping it leaves jobs running; to end them too, cancel `stop` and await.
    pub async fn run(&self, task: &str, stop: &CancellationToken, listener: Listener<'_>) -> Run {
        let begun = Instant::now();
        let deadline = tokio::time::Instant::now() + self.bounds.wall;
        let system = prompt::system(&self.bounds);
        let mut under = Under {
            messages: vec![Message::User(task.to_owned())],
            steps: Vec::new(),
            usage: None,
            is_nudged: false,
        };
        let (end, answer) = self.ended(&system, &mut under, stop, deadline, listener).await;
        Run {
            model: self.model.name().to_owned(),
            task: task.to_owned(),
            system,
            steps: under.steps,
            end,
            answer,
            usage: under.usage.unwrap_or_default(),
            elapsed: begun.elapsed(),
        }
    }

    /// The steps to their end, or to the end that somebody asked for or that the time has.
    async fn ended(
        &self,
        system: &str,
        under: &mut Under,
        stop: &CancellationToken,
        deadline: tokio::time::Instant,
        listener: Listener<'_>,
    ) -> (End, Option<String>) {
        // What runs is ended by it, whoever asked for the end.
        let halt = stop.child_token();
        let steps = self.steps(system, under, &halt, listener);
        let mut steps = std::pin::pin!(steps);
        tokio::select! {
            biased;
            ended = &mut steps => ended,
            () = stop.cancelled() => halted(steps, &halt, End::Stopped).await,
            () = tokio::time::sleep_until(deadline) => {
                let limit_ms = u64::try_from(self.bounds.wall.as_millis()).unwrap_or(u64::MAX);
                halted(steps, &halt, End::OutOfTime { limit_ms }).await
            }
        }
    }

    async fn steps(
        &self,
        system: &str,
        under: &mut Under,
        halt: &CancellationToken,
        listener: Listener<'_>,
    ) -> (End, Option<String>) {
        let specs: Vec<ToolSpec> = self.tools.iter().map(|tool| tool.spec().clone()).collect();
        for number in 1..=self.bounds.steps {
            listener(Event::Asking { step: number });
            let begun = Instant::now();
            let spent = under.usage.map_or(0, |usage| usage.tokens());
            let left = self.bounds.tokens.saturating_sub(spent);
            let request = Request {
                system,
                messages: &under.messages,
                tools: &specs,
                max_tokens: self
                    .bounds
                    .answer_tokens
                    .min(u32::try_from(left).unwrap_or(u32::MAX))
                    .max(1),
            };
            let reply = tokio::select! {
                reply = self.model.next(&request) => reply,
                () = halt.cancelled() => return (End::Stopped, None),
            };
            let reply = match reply {
                Ok(reply) => reply,
                Err(error) => {
                    let error = Chain(&error).to_string();
                    return (End::ModelFailed { error }, None);
                }
            };
            let usage = self.usage(&request, &reply);
            under.usage = Some(under.usage.map_or(usage, |before| before.and(usage)));
            listener(Event::Said {
                text: &reply.turn.text,
                calls: &reply.turn.calls,
            });
            under.steps.push(Step {
                number,
                text: reply.turn.text.clone(),
                calls: Vec::new(),
                usage,
                elapsed: begun.elapsed(),
            });
            match self.step(under, reply, number, halt, listener).await {
                Next::Go => {}
                Next::End(end, answer) => return (end, answer),
            }
        }
        let limit = self.bounds.steps;
        (End::OutOfSteps { limit }, None)
    }

    /// What an answer took. A server that counts nothing is not for free: four characters are a token then.
    fn usage(&self, request: &Request<'_>, reply: &Reply) -> Usage {
        let mut usage = reply.usage;
        if usage.tokens() == 0 {
            let characters = |text: &str| text.chars().count() as u64;
            let read: u64 = request
                .messages
                .iter()
                .map(|message| match message {
                    Message::User(text) => characters(text),
                    Message::Model(turn) => characters(&turn.raw.to_string()),
                    Message::Results(results) => results.iter().map(|one| characters(&one.text)).sum(),
                })
                .sum();
            usage.input_tokens = (characters(request.system) + read).div_ceil(4);
            usage.output_tokens = characters(&reply.turn.raw.to_string()).div_ceil(4);
        }
        usage.cost = usage.cost.or_else(|| self.price.map(|price| price.of(&usage)));
        usage
    }

    /// What follows from an answer.
    async fn step(
        &self,
        under: &mut Under,
        reply: Reply,
        number: u32,
        halt: &CancellationToken,
        listener: Listener<'_>,
    ) -> Next {
        let Reply { turn, stop, .. } = reply;
        let text = turn.text.trim().to_owned();
        let answer = (!text.is_empty()).then_some(text);
        let is_over = match &stop {
            Stop::Declined(words) => {
                let words = words.clone().or_else(|| answer.clone());
                Some(End::Declined { words })
            }
            Stop::ContextFull => Some(End::ContextFull),
            Stop::Length if turn.calls.is_empty() => Some(End::CutOff {
                limit: self.bounds.answer_tokens,
            }),
            Stop::Done | Stop::Other(_) if turn.calls.is_empty() && answer.is_some() => Some(End::Answered),
            _ => None,
        };
        if let Some(end) = is_over {
            return Next::End(end, answer);
        }
        if turn.calls.is_empty() && stop != Stop::Paused {
            let why = match stop {
                Stop::Other(word) => Some(word),
                _ => None,
            };
            if std::mem::replace(&mut under.is_nudged, true) {
                return Next::End(End::Empty { why }, None);
            }
            // The empty turn itself is left out: providers refuse it on its way back.
            under.messages.push(Message::User(prompt::NOTHING.to_owned()));
            return self.spent(under).map_or(Next::Go, |end| Next::End(end, None));
        }
        under.is_nudged = false;
        if let Some(end) = self.spent(under) {
            return Next::End(end, None);
        }
        if number == self.bounds.steps {
            let limit = self.bounds.steps;
            return Next::End(End::OutOfSteps { limit }, None);
        }
        let calls = turn.calls.clone();
        under.messages.push(Message::Model(turn));
        if calls.is_empty() {
            return Next::Go;
        }
        let was_cut = stop == Stop::Length;
        let asking = &Mutex::new(());
        let done: Vec<(ToolResult, Call)> = stream::iter(calls.into_iter().enumerate())
            .map(|(index, call)| async move {
                let done = self.carried_out(index, call, was_cut, asking, halt).await;
                listener(Event::Called(&done.1));
                done
            })
            .buffered(self.bounds.parallel_calls.max(1))
            .collect()
            .await;
        let (mut results, calls): (Vec<_>, Vec<_>) = done.into_iter().unzip();
        if let Some(step) = under.steps.last_mut() {
            step.calls = calls;
        }
        if halt.is_cancelled() {
            return Next::End(End::Stopped, None);
        }
        if number + 1 == self.bounds.steps
            && let Some(last) = results.last_mut()
        {
            last.text.push_str(prompt::LAST);
        }
        under.messages.push(Message::Results(results));
        Next::Go
    }

    /// The bound that has been passed.
    fn spent(&self, under: &Under) -> Option<End> {
        let usage = under.usage.unwrap_or_default();
        if usage.tokens() >= self.bounds.tokens {
            let limit = self.bounds.tokens;
            return Some(End::OutOfTokens { limit });
        }
        let limit = self.bounds.cost?;
        match usage.cost {
            None => Some(End::CostUnknown),
            Some(cost) if cost >= limit => Some(End::OutOfMoney { limit }),
            Some(_) => None,
        }
    }

    /// What came of a call: for the model, and for the record.
    async fn carried_out(
        &self,
        index: usize,
        call: ToolCall,
        was_cut: bool,
        asking: &Mutex<()>,
        halt: &CancellationToken,
    ) -> (ToolResult, Call) {
        let begun = Instant::now();
        let refused = self.refused(index, &call, was_cut);
        let verdict = match refused {
            None => self.verdict(&call, asking, halt).await,
            Some(_) => None,
        };
        let refused =
            refused.or_else(|| (verdict == Some(Verdict::Refused)).then(|| NOT_APPROVED.to_owned()));
        let outcome = match refused {
            Some(why) => ToolOutcome {
                text: format!("This call was not carried out: {why}"),
                is_error: true,
                job: None,
            },
            None => self.called(&call, halt).await,
        };
        let record = Call {
            tool: call.name.clone(),
            arguments: match call.arguments {
                Arguments::Object(object) => Value::Object(object),
                Arguments::Malformed { text, .. } => Value::String(text),
            },
            verdict,
            job: outcome.job,
            is_error: outcome.is_error,
            result: outcome.text.clone(),
            elapsed: begun.elapsed(),
        };
        let result = ToolResult {
            id: call.id,
            name: call.name,
            text: outcome.text,
            is_error: outcome.is_error,
        };
        (result, record)
    }

    /// What is said to a call, where somebody has to be asked: one call after the other, and no longer than the run.
    async fn verdict(
        &self,
        call: &ToolCall,
        asking: &Mutex<()>,
        halt: &CancellationToken,
    ) -> Option<Verdict> {
        let approval = self.approval.as_ref()?;
        if !self.tool(&call.name)?.is_held() {
            return None;
        }
        let asked = async {
            let _turn = asking.lock().await;
            approval.asked(call).await
        };
        tokio::select! {
            verdict = asked => Some(verdict),
            () = halt.cancelled() => Some(Verdict::Refused),
        }
    }

    /// Why a call is not carried out, in words from which a model can mend it.
    fn refused(&self, index: usize, call: &ToolCall, was_cut: bool) -> Option<String> {
        if was_cut {
            return Some(format!(
                "your answer reached the {} tokens that one may have before it was whole. Write a shorter program, or take \
                 several steps.",
                self.bounds.answer_tokens
            ));
        }
        if index >= MOST_CALLS {
            return Some(format!(
                "one answer may hold {MOST_CALLS} calls, and this is one more. Call it in your next answer."
            ));
        }
        if self.tool(&call.name).is_none() {
            let name: String = call.name.escape_debug().take(80).collect();
            let names: Vec<&str> = self.tools.iter().map(|tool| tool.spec().name.as_str()).collect();
            return Some(match names.as_slice() {
                [] => format!("there is no tool `{name}`, and no other. Answer without one."),
                names => format!("there is no tool `{name}`. There are: {}.", names.join(", ")),
            });
        }
        match &call.arguments {
            Arguments::Malformed { why, .. } => Some(format!(
                "its arguments can't be read: {why}. Call it again with a JSON object as the tool's schema describes it; line \
                 breaks in a string are written as \\n."
            )),
            Arguments::Object(object) => {
                let bytes = Value::Object(object.clone()).to_string().len();
                (bytes > MOST_ARGUMENTS).then(|| {
                    format!(
                        "its arguments have {bytes} bytes, and at most {MOST_ARGUMENTS} are taken. Write a program that makes \
                         its data, instead of one that holds it."
                    )
                })
            }
        }
    }

    fn tool(&self, name: &str) -> Option<&Arc<dyn Tool>> {
        self.tools.iter().find(|tool| tool.spec().name == name)
    }

    async fn called(&self, call: &ToolCall, halt: &CancellationToken) -> ToolOutcome {
        let (Some(tool), Arguments::Object(arguments)) = (self.tool(&call.name), &call.arguments) else {
            unreachable!("it was refused before")
        };
        tool.call(arguments.clone(), halt).await
    }
}

/// Lets what runs come to its end, and ends so, unless an answer came in that moment.
async fn halted(
    steps: impl Future<Output = (End, Option<String>)>,
    halt: &CancellationToken,
    end: End,
) -> (End, Option<String>) {
    halt.cancel();
    match tokio::time::timeout(STOP_LIMIT, steps).await {
        Ok((End::Answered, answer)) => (End::Answered, answer),
        Ok(_) => (end, None),
        Err(_) => {
            tracing::warn!(
                "a tool did not end in {} s after it was asked to",
                STOP_LIMIT.as_secs()
            );
            (end, None)
        }
    }
}
