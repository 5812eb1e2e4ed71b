//! All literals at once (Aho and Corasick), one step per byte.
//!
//! Our own and not the crate `aho-corasick`, since what must be held back is the depth of a state, which that crate does
//! not tell.

use std::collections::VecDeque;

/// No state, no literal.
const NONE: u32 = u32::MAX;

/// The state in which no literal has begun.
pub(crate) const ROOT: u32 = 0;

/// One text to be found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Literal {
    pub(crate) text: Vec<u8>,
    /// A form of a secret, of which also a part matters at the end of a stream.
    pub(crate) secret: bool,
}

struct Node {
    /// The longest proper end of this node's text that begins a literal.
    fail: u32,
    /// The longest end of this node's text, itself included, that is a literal: its node.
    terminal: u32,
    literal: u32,
    edges: u32,
    edge_count: u16,
    secret: bool,
    depth: u32,
    /// The depth of the longest end of this node's text that may become more: its own, if it has edges.
    live: u32,
}

pub(crate) struct Automaton {
    nodes: Vec<Node>,
    edges: Vec<(u8, u32)>,
    from_root: Box<[u32; 256]>,
}

impl Automaton {
    /// Of literals that are sorted and differ. None is empty.
    pub(crate) fn new(literals: &[Literal]) -> Self {
        let mut made = Self {
            nodes: Vec::new(),
            edges: Vec::new(),
            from_root: Box::new([ROOT; 256]),
        };
        made.nodes.push(made.node(literals, (0, literals.len()), 0));
        // In the order of depth, so that every shorter text has its links when a longer one needs them.
        let mut open = VecDeque::from([(ROOT, (0, literals.len()))]);
        while let Some((node, range)) = open.pop_front() {
            made.branch(literals, node, range, &mut open);
        }
        made
    }

    /// The node of the text that the literals of a range share.
    fn node(&self, literals: &[Literal], (from, to): (usize, usize), depth: usize) -> Node {
        let ends = literals
            .get(from)
            .is_some_and(|literal| literal.text.len() == depth);
        Node {
            fail: ROOT,
            terminal: NONE,
            literal: if ends { index(from) } else { NONE },
            edges: index(self.edges.len()),
            edge_count: 0,
            secret: literals[from..to].iter().any(|literal| literal.secret),
            depth: index(depth),
            live: index(depth),
        }
    }

    fn branch(
        &mut self,
        literals: &[Literal],
        node: u32,
        (from, to): (usize, usize),
        open: &mut VecDeque<(u32, (usize, usize))>,
    ) {
        let depth = self.nodes[node as usize].depth as usize;
        let first_edge = self.edges.len();
        let mut at = from + usize::from(self.nodes[node as usize].literal != NONE);
        while at < to {
            let byte = literals[at].text[depth];
            let end = at + literals[at..to].partition_point(|literal| literal.text[depth] == byte);
            let child = index(self.nodes.len());
            let mut made = self.node(literals, (at, end), depth + 1);
            made.fail = if node == ROOT {
                ROOT
            } else {
                self.next(self.nodes[node as usize].fail, byte)
            };
            made.terminal = if made.literal == NONE {
                self.nodes[made.fail as usize].terminal
            } else {
                child
            };
            self.nodes.push(made);
            self.edges.push((byte, child));
            open.push_back((child, (at, end)));
            at = end;
        }
        let count = self.edges.len() - first_edge;
        let shorter = self.nodes[self.nodes[node as usize].fail as usize].live;
        let parent = &mut self.nodes[node as usize];
        parent.live = if count == 0 { shorter } else { parent.depth };
        parent.edges = index(first_edge);
        parent.edge_count = u16::try_from(count).expect("at most one edge for each value of a byte");
        if node == ROOT {
            for (byte, child) in &self.edges[first_edge..] {
                self.from_root[usize::from(*byte)] = *child;
            }
        }
    }

    /// The state after one more byte.
    pub(crate) fn next(&self, mut state: u32, byte: u8) -> u32 {
        while state != ROOT {
            let node = &self.nodes[state as usize];
            let edges = &self.edges[node.edges as usize..][..usize::from(node.edge_count)];
            if let Some((_, child)) = edges.iter().find(|(edge, _)| *edge == byte) {
                return *child;
            }
            state = node.fail;
        }
        self.from_root[usize::from(byte)]
    }

    /// How many of the last bytes begin a literal that has not ended, in bytes.
    pub(crate) fn live(&self, state: u32) -> usize {
        self.nodes[state as usize].live as usize
    }

    /// The literals that end here, the longest first, by their indices.
    pub(crate) fn ended(&self, state: u32) -> impl Iterator<Item = usize> + '_ {
        let mut next = self.nodes[state as usize].terminal;
        std::iter::from_fn(move || {
            let node = self.nodes.get(next as usize)?;
            next = self.nodes[node.fail as usize].terminal;
            Some(node.literal as usize)
        })
    }

    /// How many of the last bytes begin a form of a secret, in bytes.
    pub(crate) fn begun_secret(&self, mut state: u32) -> usize {
        while state != ROOT && !self.nodes[state as usize].secret {
            state = self.nodes[state as usize].fail;
        }
        self.nodes[state as usize].depth as usize
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("the limits on secrets keep all literals far below 4 GiB")
}
