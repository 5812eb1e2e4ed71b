//! An error with its causes, in one line: errors here never print their source themselves.

use std::{error::Error, fmt};

/// Shows an error and all its causes, parted by colons. A cause whose text the line has already is left out, since some
/// libraries print theirs themselves.
pub struct Chain<'a>(pub &'a (dyn Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = self.0.to_string();
        let mut next = self.0.source();
        while let Some(cause) = next {
            let text = cause.to_string();
            if !line.contains(&text) {
                line.push_str(": ");
                line.push_str(&text);
            }
            next = cause.source();
        }
        f.write_str(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("{text}")]
    struct Link {
        text: &'static str,
        source: Option<Box<Link>>,
    }

    #[test]
    fn causes_follow_their_error_and_are_not_said_twice() {
        let deepest = Link {
            text: "refused",
            source: None,
        };
        let middle = Link {
            text: "connect: refused",
            source: Some(Box::new(deepest)),
        };
        let error = Link {
            text: "no engine answers",
            source: Some(Box::new(middle)),
        };
        assert_eq!(Chain(&error).to_string(), "no engine answers: connect: refused");
    }
}
