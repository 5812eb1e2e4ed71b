use chrono::{DateTime, Utc};
use mayfly_core::{
    id::{BatchId, JobId},
    image::ImageName,
    state::JobState,
};

use super::JobRecord;

/// Which jobs of a tenant. What is left out is any.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JobFilter {
    /// Those that stand there.
    pub state: Option<JobState>,
    /// Those with this label: its name and its value.
    pub label: Option<(String, String)>,
    /// Those of this batch.
    pub batch: Option<BatchId>,
    /// Those that named this image so.
    pub image: Option<ImageName>,
    /// Those that were accepted then or later.
    pub submitted_from: Option<DateTime<Utc>>,
    /// Those that were accepted before then.
    pub submitted_before: Option<DateTime<Utc>>,
}

/// Some of the jobs that a filter lets through.
#[derive(Debug, Clone, PartialEq)]
pub struct JobPage {
    /// The jobs, newest first.
    pub jobs: Vec<JobRecord>,
    /// Where the list goes on: the next page is of those before this job. None where there are no others.
    pub next: Option<JobId>,
}

/// What jobs are found by; the rest of a filter is looked at job by job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lead<'a> {
    /// The tenant alone.
    Tenant,
    /// A batch.
    Batch(BatchId),
    /// A label's name and value.
    Label(&'a str, &'a str),
    /// Where they stand.
    State(JobState),
    /// An image.
    Image(&'a ImageName),
}

impl JobFilter {
    /// The part of it that leaves the fewest jobs, as a rule.
    #[must_use]
    pub fn lead(&self) -> Lead<'_> {
        if let Some(batch) = self.batch {
            Lead::Batch(batch)
        } else if let Some((name, value)) = &self.label {
            Lead::Label(name, value)
        } else if let Some(state) = self.state {
            Lead::State(state)
        } else if let Some(image) = &self.image {
            Lead::Image(image)
        } else {
            Lead::Tenant
        }
    }

    /// Whether there is more to it than that, and times.
    #[must_use]
    pub fn has_more_than_lead(&self) -> bool {
        let parts = [
            self.state.is_some(),
            self.label.is_some(),
            self.batch.is_some(),
            self.image.is_some(),
        ];
        parts.into_iter().filter(|part| *part).count() > 1
    }

    /// Whether it lets a job through.
    #[must_use]
    pub fn lets_through(&self, job: &JobRecord) -> bool {
        let label = |(name, value): &(String, String)| job.labels.get(name) == Some(value);
        self.state.is_none_or(|state| state == job.state)
            && self.label.as_ref().is_none_or(label)
            && self.batch.is_none_or(|batch| job.batch == Some(batch))
            && self.image.as_ref().is_none_or(|image| *image == job.image)
            && self.submitted_from.is_none_or(|from| job.submitted_at >= from)
            && self
                .submitted_before
                .is_none_or(|before| job.submitted_at < before)
    }
}
