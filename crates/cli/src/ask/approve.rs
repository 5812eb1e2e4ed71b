//! Asks the person at the terminal before a program runs.

use async_trait::async_trait;
use mayfly_agent::{
    model::ToolCall,
    tool::{Approval, Verdict},
};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader, Stdin},
    sync::Mutex,
};

use super::show;
use crate::terminal::say;

/// Longest answer that is read.
const LONGEST: u64 = 1024;

/// Asks on stderr, and reads a line of stdin.
pub(super) struct Asker(Mutex<BufReader<Stdin>>);

impl Default for Asker {
    fn default() -> Self {
        Self(Mutex::new(BufReader::new(tokio::io::stdin())))
    }
}

#[async_trait]
impl Approval for Asker {
    /// All of the program is shown: nobody says yes to what they have not seen.
    async fn asked(&self, call: &ToolCall) -> Verdict {
        say(&show::question(call));
        let mut stdin = self.0.lock().await;
        let mut line = String::new();
        let read = (&mut *stdin).take(LONGEST).read_line(&mut line).await;
        match (read, line.trim().to_ascii_lowercase().as_str()) {
            (Ok(_), "y" | "yes") => Verdict::Approved,
            // Nothing, or something else, is no yes.
            _ => Verdict::Refused,
        }
    }
}
