//! The tables of a report, for a terminal and for a page.

use comfy_table::{ContentArrangement, Table, presets::NOTHING};

use super::{
    report::{Latency, Throughput, Way, WayTimes},
    stats::Times,
};

/// A table.
pub(crate) struct Grid {
    head: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Grid {
    pub(super) fn new(head: impl Into<Vec<&'static str>>) -> Self {
        Self {
            head: head.into(),
            rows: Vec::new(),
        }
    }

    #[cfg(feature = "fleet")]
    pub(super) fn add(&mut self, row: Vec<String>) {
        self.rows.push(row);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// For a terminal.
    pub(crate) fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(NOTHING);
        table.set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(self.head.iter().map(|name| name.to_uppercase()));
        for row in &self.rows {
            table.add_row(row);
        }
        format!("{}\n", table.trim_fmt())
    }

    /// For a page.
    pub(crate) fn markdown(&self) -> String {
        let line = |cells: Vec<String>| format!("| {} |\n", cells.join(" | "));
        let rule = |(n, _): (usize, _)| if n == 0 { "---" } else { "---:" }.to_owned();
        let mut table = line(self.head.iter().map(|&name| name.to_owned()).collect());
        table.push_str(&line(self.head.iter().enumerate().map(rule).collect()));
        for row in &self.rows {
            table.push_str(&line(row.clone()));
        }
        table
    }
}

/// Times of each way.
pub(crate) fn times(latency: &Latency) -> Grid {
    let mut grid = Grid::new(["ms", "n", "p50", "p90", "p99", "min", "max", "mean", "p99 by p50"]);
    let mut row = |name: String, ms: &Times| {
        let mut cells = vec![name, ms.n.to_string()];
        cells.extend([ms.p50, ms.p90, ms.p99, ms.min, ms.max, ms.mean].map(one));
        cells.push(one(ms.p99 / ms.p50));
        grid.rows.push(cells);
    };
    for way in &latency.ways {
        if let Some(ms) = &way.ms {
            row(way.way.name().to_owned(), ms);
        }
    }
    if let Some(missed) = &latency.missed {
        row("mayfly warm, missed".to_owned(), missed);
    }
    grid
}

/// How many times faster each way is than another: rows than columns.
pub(crate) fn ratios(latency: &Latency) -> Grid {
    let mut grid = Grid::new([
        "times faster, by p50",
        "than docker run",
        "than engine API",
        "than mayfly cold",
    ]);
    let found = |way, than| {
        let of_both = |ratio: &&super::report::Ratio| ratio.way == way && ratio.than == than;
        latency
            .ratios
            .iter()
            .find(of_both)
            .map(|ratio| ratio.times_faster)
    };
    for way in [Way::Engine, Way::Cold, Way::Warm, Way::Http] {
        let than = [Way::DockerRun, Way::Engine, Way::Cold].map(|than| found(way, than));
        if than.iter().any(Option::is_some) {
            let cells = than.map(|ratio| ratio.map_or_else(String::new, two));
            grid.rows
                .push([vec![way.name().to_owned()], cells.to_vec()].concat());
        }
    }
    grid
}

/// Where the time of a way goes.
pub(crate) fn parts(way: &WayTimes) -> Grid {
    let mut grid = Grid::new(["part, ms", "n", "p50"]);
    for part in &way.parts {
        grid.rows
            .push(vec![part.part.clone(), part.n.to_string(), one(part.p50_ms)]);
    }
    grid
}

/// Rates of each way.
pub(crate) fn rates(throughput: &Throughput) -> Grid {
    let mut grid = Grid::new([
        "jobs a second",
        "jobs",
        "seconds",
        "jobs/s",
        "slowest block",
        "fastest block",
        "our CPU ms a job",
        "from the pool",
    ]);
    for way in &throughput.ways {
        let Some(rate) = way.jobs_per_second else { continue };
        let blocks: Vec<f64> = way.blocks.iter().filter_map(super::report::Block::rate).collect();
        let jobs: usize = way.blocks.iter().map(|block| block.jobs).sum();
        let seconds: f64 = way.blocks.iter().map(|block| block.seconds).sum();
        grid.rows.push(vec![
            way.way.name().to_owned(),
            jobs.to_string(),
            one(seconds),
            two(rate),
            two(blocks.iter().copied().fold(f64::INFINITY, f64::min)),
            two(blocks.iter().copied().fold(0.0, f64::max)),
            way.cpu_ms_per_job.map_or_else(String::new, one),
            way.pool_hits.map_or_else(String::new, |hits| hits.to_string()),
        ]);
    }
    grid
}

pub(crate) fn one(number: f64) -> String {
    format!("{number:.1}")
}

pub(crate) fn two(number: f64) -> String {
    format!("{number:.2}")
}
