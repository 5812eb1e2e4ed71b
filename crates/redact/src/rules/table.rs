//! The rules themselves. A new one needs a published source, an entry here, and
//! `MAYFLY_TEST_WRITE_DOCS=1 cargo nextest run -p mayfly-redact document`; samples are made of its patterns by the tests.
//!
//! No token stands here, nor anything that a scanner would take for one.

use super::pattern;
use crate::{
    bytes::ByteSet,
    machine::{End, Left, Shape},
};

mod cloud;
mod code;
mod generic;
mod services;

/// All rules, in their order.
pub(super) const ENTRIES: [&[Entry]; 4] =
    [generic::ENTRIES, code::ENTRIES, cloud::ENTRIES, services::ENTRIES];

/// One rule.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(super) name: &'static str,
    pub(super) source: &'static str,
    pub(super) shapes: &'static [Source],
}

/// One shape as it is written here.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Source {
    anchors: &'static [&'static str],
    /// None: the anchor is part of the token.
    kept: Option<&'static str>,
    body: &'static str,
    left: From,
    until: Until,
}

#[derive(Debug, PartialEq, Eq)]
enum From {
    Anywhere,
    Word,
    /// Also not inside what the first segment is made of.
    FirstSet,
}

#[derive(Debug, PartialEq, Eq)]
enum Until {
    /// As far as it goes; of a bounded length it is one only if no word and nothing of its last segment follows.
    Itself,
    /// One of these follows.
    Before(&'static str),
    PemLine,
}

/// A token that begins with its anchor, where a word begins.
const fn token(anchors: &'static [&'static str], body: &'static str) -> Source {
    Source {
        anchors,
        kept: None,
        body,
        left: From::Word,
        until: Until::Itself,
    }
}

/// A secret behind an anchor and more that stay.
const fn after(anchors: &'static [&'static str], kept: &'static str, body: &'static str) -> Source {
    Source {
        anchors,
        kept: Some(kept),
        body,
        left: From::Anywhere,
        until: Until::Itself,
    }
}

impl Source {
    const fn from(mut self, left: From) -> Self {
        self.left = left;
        self
    }

    const fn until(mut self, until: Until) -> Self {
        self.until = until;
        self
    }

    /// See [`RuleInfo::patterns`](super::RuleInfo::patterns).
    pub(super) fn pattern(&self) -> String {
        let escape = |anchor: &&str| -> String {
            let one = |byte: char| match byte {
                byte if byte.is_ascii_alphanumeric() || " _:/=-\"'~!%@,;<>".contains(byte) => vec![byte],
                byte => vec!['\\', byte],
            };
            anchor.chars().flat_map(one).collect()
        };
        let anchors: Vec<String> = self.anchors.iter().map(escape).collect();
        let anchors = if anchors.len() == 1 {
            anchors.concat()
        } else {
            format!("(?:{})", anchors.join("|"))
        };
        let kept = self.kept.map_or(String::new(), |kept| format!("{kept}\\K"));
        let all = format!("{}{}", self.kept.unwrap_or(""), self.body);
        let (first, last) = (pattern::text_of_first(&all), pattern::text_of_last(&all));
        let left = match self.left {
            From::Anywhere => String::new(),
            From::Word => "(?<!\\w)".to_owned(),
            From::FirstSet => format!("(?<![\\w{first}])"),
        };
        let until = match &self.until {
            Until::PemLine => "[^]*?-----[^]*?-----".to_owned(),
            Until::Before(set) => format!("(?=[{set}])"),
            Until::Itself if all.ends_with(",}") => String::new(),
            Until::Itself => format!("(?![\\w{last}])"),
        };
        format!("{left}{anchors}{kept}{}{until}", self.body)
    }

    pub(super) fn compile(&self, rule: usize) -> Shape {
        let kept = self.kept.map(pattern::segments);
        let kept_segments = kept.as_ref().map(Vec::len);
        let all = format!("{}{}", self.kept.unwrap_or(""), self.body);
        let segments = pattern::segments(&all);
        let word = ByteSet::word();
        let (first, last) = (&segments[0], &segments[segments.len() - 1]);
        let left = match self.left {
            From::Anywhere => Left::Any,
            From::Word => Left::Not(word),
            From::FirstSet => Left::Not(word.union(first.set)),
        };
        let end = match (&self.until, last.most) {
            (Until::PemLine, _) => End::PemLine,
            (Until::Before(set), _) => End::Before(pattern::of_any(set)),
            (Until::Itself, None) => End::Open,
            (Until::Itself, Some(_)) => End::NotBefore(word.union(last.set)),
        };
        let anchors = self
            .anchors
            .iter()
            .map(|anchor| anchor.as_bytes().to_vec())
            .collect();
        Shape {
            rule,
            anchors,
            left,
            kept: kept_segments,
            segments,
            end,
        }
    }
}
