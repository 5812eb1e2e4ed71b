//! How far a run may go.

use std::{str::FromStr, time::Duration};

use crate::model::{Cost, Usage};

/// How far a run may go. Whichever bound is reached first ends it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Most answers of the model.
    pub steps: u32,
    /// Most tokens, read and written, over all steps.
    pub tokens: u64,
    /// Longest time from the task to the end, waiting included.
    pub wall: Duration,
    /// Most money; the step that passes it is the last.
    pub cost: Option<Cost>,
    /// Most tokens of one answer, thoughts included.
    pub answer_tokens: u32,
    /// Most calls of tools that run beside each other; the others of a turn wait.
    pub parallel_calls: usize,
}

/// What a model's tokens cost, in billionths of a US dollar each: the same number as thousandths of a dollar for a
/// million.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Of one that is read.
    pub input: Cost,
    /// Of one that is written.
    pub output: Cost,
}

/// Text that is no price.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected two prices in US dollars for a million tokens, read and written, such as 2,10")]
pub struct PriceError;

impl FromStr for Price {
    type Err = PriceError;

    fn from_str(text: &str) -> Result<Self, PriceError> {
        let of_one = |text: &str| {
            let million: f64 = text.trim().parse().map_err(|_| PriceError)?;
            Cost::dollars(million / 1e6).ok_or(PriceError)
        };
        let (input, output) = text.split_once(',').ok_or(PriceError)?;
        Ok(Self {
            input: of_one(input)?,
            output: of_one(output)?,
        })
    }
}

impl Price {
    /// What a use of a model costs.
    #[must_use]
    pub const fn of(self, usage: &Usage) -> Cost {
        let input = self.input.0.saturating_mul(usage.input_tokens);
        Cost(input).and(Cost(self.output.0.saturating_mul(usage.output_tokens)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_price_is_two_numbers_for_a_million_tokens() {
        let price: Price = "2,10".parse().unwrap();
        let usage = Usage {
            input_tokens: 1_000_000,
            output_tokens: 500_000,
            cost: None,
        };
        assert_eq!(price.of(&usage).to_string(), "$7.0000");
        for text in ["", "2", "2,", "a,b", "-1,2", "1,inf"] {
            assert!(text.parse::<Price>().is_err(), "{text}");
        }
    }
}
