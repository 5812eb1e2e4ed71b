//! Redaction as it is defined, of a whole text: every match of every rule at every place, by the crate `regex`; their
//! union; a marker for each part of it.

use std::{collections::BTreeMap, ops::Range};

use mayfly_redact::Rules;
use regex::bytes::{Regex, RegexBuilder};

/// One shape, read back from what the documentation says of it.
pub(crate) struct Shape {
    pub(crate) rule: &'static str,
    order: usize,
    /// What is kept is its group 1.
    regex: Regex,
    not_after: Option<Regex>,
    not_before: Option<Regex>,
    before: Option<Regex>,
    pem: bool,
}

const PEM: &str = "[^]*?-----[^]*?-----";

fn compiled(pattern: &str) -> Regex {
    RegexBuilder::new(pattern)
        .unicode(false)
        .size_limit(64 << 20)
        .dfa_size_limit(64 << 20)
        .build()
        .expect(pattern)
}

impl Shape {
    fn new(rule: &'static str, order: usize, pattern: &str) -> Self {
        let (mut rest, mut not_after) = (pattern, None);
        if let Some((set, behind)) = rest.strip_prefix("(?<!").and_then(|rest| rest.split_once(')')) {
            (rest, not_after) = (behind, Some(compiled(&format!("\\A{set}\\z"))));
        }
        let (mut not_before, mut before) = (None, None);
        if let Some((body, set)) = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once("(?!")) {
            (rest, not_before) = (body, Some(compiled(&format!("\\A{set}"))));
        } else if let Some((body, set)) = rest.strip_suffix(')').and_then(|rest| rest.rsplit_once("(?=")) {
            (rest, before) = (body, Some(compiled(&format!("\\A{set}"))));
        }
        let body = rest.strip_suffix(PEM).unwrap_or(rest);
        let regex = match body.split_once("\\K") {
            Some((kept, secret)) => compiled(&format!("({kept}){secret}")),
            None => compiled(&format!("(){body}")),
        };
        Self {
            rule,
            order,
            regex,
            not_after,
            not_before,
            before,
            pem: body != rest,
        }
    }

    fn spans(&self, text: &[u8], escape: &Regex) -> Vec<Range<usize>> {
        let (mut spans, mut from) = (Vec::new(), 0);
        while let Some(found) = self.regex.captures_at(text, from) {
            let (all, kept) = (found.get(0).unwrap(), found.get(1).unwrap());
            from = all.start() + 1;
            let behind = &text[all.start().saturating_sub(16)..all.start()];
            let in_word = |word: &Regex| {
                word.is_match(&behind[behind.len().saturating_sub(1)..]) && !escape.is_match(behind)
            };
            let after = &text[all.end()..];
            if self.not_after.as_ref().is_some_and(in_word)
                || self.not_before.as_ref().is_some_and(|set| set.is_match(after))
                || self.before.as_ref().is_some_and(|set| !set.is_match(after))
            {
                continue;
            }
            let start = if self.is_kept() { kept.end() } else { all.start() };
            let end = if self.pem {
                pem_end(text, found.get(0).unwrap().range())
            } else {
                Some(all.end())
            };
            spans.extend(end.map(|end| start..end));
        }
        spans
    }

    fn is_kept(&self) -> bool {
        !self.regex.as_str().starts_with("()")
    }
}

/// Where a private key ends of which at least 48 bytes of body are at `found`: at its END line, which is none within these,
/// or after 32 KiB, or with the text.
fn pem_end(text: &[u8], found: Range<usize>) -> Option<usize> {
    const MOST: usize = 32 * 1024;
    let dashes = |from: usize| {
        from + text[from..]
            .windows(5)
            .position(|run| run == b"-----")
            .expect("a first line")
            + 5
    };
    let line = dashes(found.start);
    let runs = compiled("-----+");
    let mut ends = runs.find_iter(&text[line..]).map(|run| run.start() + 5);
    match ends.nth(1) {
        Some(end) if end <= MOST => (end > 48).then_some(line + end),
        _ => Some(text.len().min(line + MOST)),
    }
}

/// What the whole text becomes, and the counts.
pub(crate) struct Oracle {
    shapes: Vec<Shape>,
    escape: Regex,
}

impl Oracle {
    pub(crate) fn new() -> Self {
        let known = Rules::known().enumerate();
        let shapes = known.flat_map(|(order, rule)| {
            rule.patterns()
                .into_iter()
                .map(move |pattern| Shape::new(rule.name, order + 1, &pattern))
        });
        let escape = r"(?x) (?: \\[nrtbfv0] | (?:%|\\x)[0-9A-Fa-f]{2} | \\u[0-9A-Fa-f]{4} | [\x1bbB3e]\[[0-9;]*[A-Za-z] )\z";
        Self {
            shapes: shapes.collect(),
            escape: compiled(escape),
        }
    }

    /// `forms` are the texts of the secrets, in all their forms.
    pub(crate) fn redact(&self, text: &[u8], forms: &[Vec<u8>]) -> (Vec<u8>, BTreeMap<&'static str, u64>) {
        let mut spans: Vec<(usize, usize, usize, &'static str)> = Vec::new();
        for shape in &self.shapes {
            let found = shape.spans(text, &self.escape).into_iter();
            spans.extend(found.map(|span| (span.start, shape.order, span.end, shape.rule)));
        }
        for form in forms {
            let starts = text
                .windows(form.len())
                .enumerate()
                .filter(|(_, window)| window == form);
            spans.extend(starts.map(|(start, _)| (start, 0, start + form.len(), "secret")));
            for begun in 8..form.len().min(text.len() + 1) {
                if text.ends_with(&form[..begun]) {
                    spans.push((text.len() - begun, 0, text.len(), "secret"));
                }
            }
        }
        spans.sort_unstable();
        let (mut out, mut counts, mut done) = (Vec::new(), BTreeMap::new(), 0);
        for (start, _, end, rule) in spans {
            if start >= done {
                out.extend_from_slice(&text[done..start]);
                out.extend_from_slice(format!("[redacted:{rule}]").as_bytes());
                *counts.entry(rule).or_default() += 1;
            }
            done = done.max(end);
        }
        out.extend_from_slice(&text[done..]);
        (out, counts)
    }
}
