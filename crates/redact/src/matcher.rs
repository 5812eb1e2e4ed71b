//! Rules and secrets together, ready for any number of streams.

use std::{collections::BTreeMap, fmt, sync::Arc};

use crate::{
    automaton::{Automaton, Literal},
    counts::Counts,
    filter::{Filter, GRAM},
    left::{LOOK_BEHIND, word_goes_on},
    machine::{Left, Shape},
    redactor::Redactor,
    rules::{Rules, SECRET},
    secrets::Secrets,
};

/// What is looked for in the streams of one job. Cheap to clone. `Debug` shows no secret.
#[derive(Clone)]
pub struct Matcher(Arc<Compiled>);

/// What a literal that was found is.
pub(crate) enum Target {
    Secret,
    /// The anchor of a shape.
    Anchor(usize),
}

pub(crate) struct Compiled {
    pub(crate) filter: Filter,
    pub(crate) automaton: Automaton,
    /// Of each literal: its length, what it is.
    pub(crate) literals: Vec<(usize, Vec<Target>)>,
    pub(crate) shapes: Vec<Shape>,
    /// Of a secret, then of each rule: its name.
    names: Vec<&'static str>,
    most_held: usize,
}

impl Matcher {
    /// Of these rules and secrets. Costs up to some ten milliseconds and megabytes, with secrets as long as they may be: one
    /// for a job, not for each stream.
    pub fn new(rules: &Rules, secrets: &Secrets) -> Self {
        let mut targets: BTreeMap<&[u8], Vec<Target>> = BTreeMap::new();
        for form in secrets.forms() {
            targets.entry(form).or_default().push(Target::Secret);
        }
        for (index, shape) in rules.shapes().iter().enumerate() {
            for anchor in &shape.anchors {
                targets.entry(anchor).or_default().push(Target::Anchor(index));
            }
        }
        let is_secret = |target: &Target| matches!(target, Target::Secret);
        let literals: Vec<Literal> = targets
            .iter()
            .map(|(text, targets)| Literal {
                text: text.to_vec(),
                secret: targets.iter().any(is_secret),
            })
            .collect();
        assert!(
            literals.iter().all(|literal| literal.text.len() >= GRAM),
            "anchors and secrets are longer"
        );
        let longest = literals
            .iter()
            .map(|literal| literal.text.len())
            .max()
            .unwrap_or(0);
        Self(Arc::new(Compiled {
            filter: Filter::new(literals.iter().map(|literal| &*literal.text)),
            automaton: Automaton::new(&literals),
            literals: targets
                .into_iter()
                .map(|(text, targets)| (text.len(), targets))
                .collect(),
            most_held: rules
                .shapes()
                .iter()
                .map(Shape::most_held)
                .max()
                .unwrap_or(0)
                .max(longest),
            shapes: rules.shapes().to_vec(),
            names: [SECRET]
                .into_iter()
                .chain(rules.names().iter().copied())
                .collect(),
        }))
    }

    /// Most bytes of a stream that are held back at any time: the longest form of a secret, or of a rule until it is
    /// certain.
    pub fn most_held_bytes(&self) -> usize {
        self.0.most_held
    }

    /// A text that is here as a whole: a name, the reason of an error.
    pub fn redact(&self, text: &[u8]) -> (Vec<u8>, Counts) {
        let (mut redactor, mut out) = (Redactor::new(self), Vec::with_capacity(text.len()));
        redactor.push(text, &mut out);
        let counts = redactor.finish(&mut out);
        (out, counts)
    }

    pub(crate) fn compiled(&self) -> Arc<Compiled> {
        Arc::clone(&self.0)
    }
}

impl Compiled {
    /// The name of a secret (0) or of a rule (its index and 1).
    pub(crate) fn name(&self, label: usize) -> &'static str {
        self.names[label]
    }

    /// Whether a shape may begin after these bytes.
    pub(crate) fn may_begin(shape: &Shape, behind: &[u8]) -> bool {
        match &shape.left {
            Left::Any => true,
            Left::Not(word) => !word_goes_on(&behind[behind.len().saturating_sub(LOOK_BEHIND)..], word),
        }
    }
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Matcher")
            .field("rules", &(self.0.names.len() - 1))
            .field("literals", &self.0.literals.len())
            .finish()
    }
}
