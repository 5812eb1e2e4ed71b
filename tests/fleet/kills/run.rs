//! One run: clients that submit and wait, somebody who kills, and the history.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::{
    figures::{Figures, Trial},
    services::Trouble,
};
use crate::{
    history::{AUDIT_ROWS, Recorder, now_ms, program},
    support::{Api, Fleet, Role, SOON, wait_for},
};

/// A run in which nothing ends for so long goes no further.
const STANDS_STILL: Duration = Duration::from_secs(240);
/// A client that got no answer asks again after this.
const AGAIN: Duration = Duration::from_millis(500);

/// What a kill is called in the history.
pub const KILL: &str = "kill -9 of an executor";

pub struct Plan {
    pub jobs: usize,
    pub kill_every: Duration,
    /// Whether nobody is killed before the last victim is back, nor while the last quarter of the jobs ends: so that a slow
    /// machine comes to an end too.
    pub patient: bool,
    /// How long programs run, drawn at random.
    pub run_ms: RangeInclusive<u64>,
    /// Jobs that are submitted and not over, at most.
    pub clients: usize,
    /// After how many ended jobs which trouble begins.
    pub troubles: Vec<(usize, Trouble)>,
}

/// What clients share.
pub struct Clients {
    api: Api,
    pub recorder: Recorder,
    submitted: AtomicUsize,
    ended: AtomicUsize,
}

pub struct Run {
    pub fleet: Fleet,
    plan: Plan,
    pub clients: Arc<Clients>,
    tasks: JoinSet<()>,
    random: Random,
    /// When each executor was last killed.
    killed: BTreeMap<String, i64>,
    begun: Instant,
}

impl Run {
    /// A fleet with its clients at work; nothing where it can't be had here.
    pub async fn begin(executors: usize, slots: &str, plan: Plan) -> Option<Self> {
        let fleet = Fleet::start_with(executors, &[("MAYFLY_EXECUTOR__SLOTS", slots)]).await?;
        let recorder = Recorder::begin(&fleet.deployment);
        let clients = Arc::new(Clients {
            api: fleet.api().await,
            recorder,
            submitted: AtomicUsize::new(0),
            ended: AtomicUsize::new(0),
        });
        let mut random = Random::from_environment();
        let mut tasks = JoinSet::new();
        for _ in 0..plan.clients {
            let (clients, jobs) = (Arc::clone(&clients), plan.jobs);
            let (mut random, run_ms) = (random.another(), plan.run_ms.clone());
            tasks.spawn(async move {
                loop {
                    let number = clients.submitted.fetch_add(1, Ordering::Relaxed);
                    if number >= jobs {
                        return;
                    }
                    let run_ms = random.within(&run_ms);
                    clients
                        .job(
                            &format!("job-{number}"),
                            run_ms,
                            &json!({ "retry": { "max_attempts": 10 } }),
                        )
                        .await;
                }
            });
        }
        Some(Self {
            fleet,
            plan,
            clients,
            tasks,
            random,
            killed: BTreeMap::new(),
            begun: Instant::now(),
        })
    }

    /// Kills and troubles until every job has its result, or nothing moves any more; then the figures, which are printed.
    pub async fn finish(mut self) -> Figures {
        let mut trials = Vec::new();
        let mut troubles = std::mem::take(&mut self.plan.troubles).into_iter().peekable();
        let (mut moved, mut before) = (Instant::now(), 0);
        while !self.tasks.is_empty() && moved.elapsed() < STANDS_STILL {
            let ended = self.clients.ended.load(Ordering::Relaxed);
            if ended > before {
                (moved, before) = (Instant::now(), ended);
            }
            if let Some((_, trouble)) = troubles.next_if(|(after, _)| ended >= *after) {
                trials.push(self.suffer(trouble).await);
                moved = Instant::now();
                continue;
            }
            if self.plan.patient {
                self.all_are_back().await;
            }
            if !self.plan.patient || ended * 4 < self.plan.jobs * 3 {
                self.kill_one();
            }
            let next_kill = Instant::now() + self.plan.kill_every;
            while let Ok(Some(task)) = tokio::time::timeout_at(next_kill.into(), self.tasks.join_next()).await
            {
                task.expect("a client goes on to its end");
            }
        }
        assert_eq!(troubles.len(), 0, "the run was over before all was done to it");
        let took = self.begun.elapsed();
        self.tasks.abort_all();
        self.figures(trials, took).await
    }

    /// Kills an executor and starts it again, as whoever looks after it would.
    fn kill_one(&mut self) {
        // Whoever; or, every other time, whoever runs something: also one that has just begun is killed, and not too rarely
        // one that works.
        let mut ids: Vec<String> = self.fleet.executors.iter().map(id_of).collect();
        let running = self.clients.recorder.under_way();
        let at_work = |id: &String| running.iter().any(|start| start.executor == *id);
        if self.random.within(&(0..=1)) == 0 && ids.iter().any(at_work) {
            ids.retain(at_work);
        }
        let chosen = self.random.within(&(0..=ids.len() as u64 - 1));
        let id = ids.swap_remove(usize::try_from(chosen).expect("it is an index"));
        let executor = self.fleet.executors.iter_mut().find(|role| id_of(role) == id);
        let executor = executor.expect("it is one of them");
        assert!(
            executor.is_running(),
            "an executor has ended by itself: {}",
            executor.log()
        );
        self.clients.recorder.fault(KILL, Some(&id));
        executor.kill();
        executor.restart();
        self.killed.insert(id, now_ms());
    }

    /// Waits until whoever was killed is back: what their last lives ran is over and on record.
    pub async fn all_are_back(&self) {
        for (executor, killed) in &self.killed {
            let back = format!(
                "SELECT count(*) FROM sessions WHERE executor_id = '{executor}' AND ended IS NULL \
                 AND opened_at > to_timestamp({killed} / 1000.0)"
            );
            wait_for(SOON, "an executor to be back", async || {
                (self.fleet.services.count(&back) > 0).then_some(())
            })
            .await;
        }
    }

    /// Submits a job that runs for so long, at once and once only, and waits until it is heard.
    pub async fn witness(&mut self, token: &str, run_ms: u64) {
        let clients = Arc::clone(&self.clients);
        let more = json!({
            "retry": { "max_attempts": 1 }, "priority": 100, "limits": { "wall": format!("{}ms", run_ms + 120_000) },
        });
        let own = token.to_owned();
        self.tasks
            .spawn(async move { clients.job(&own, run_ms, &more).await });
        wait_for(2 * SOON, "a witness to run", async || {
            let running = self.clients.recorder.under_way();
            running.iter().any(|start| start.token == token).then_some(())
        })
        .await;
    }

    /// Reads every job that the server has once more, and judges.
    async fn figures(self, trials: Vec<Trial>, took: Duration) -> Figures {
        let recorder = &self.clients.recorder;
        for job in self.clients.listed().await {
            let (_, document) = self.clients.get(&format!("/v1/jobs/{job}")).await;
            recorder.read(&document);
        }
        let patience = Instant::now();
        while self.fleet.containers() > 0 && patience.elapsed() < 3 * SOON {
            tokio::time::sleep(AGAIN).await;
        }
        let audit = self.fleet.services.ask(AUDIT_ROWS);
        let figures = Figures {
            counts: recorder.history(&audit, self.fleet.containers()).check(),
            denied_starts: self.denied_starts(),
            trials,
            took,
        };
        eprintln!("{}", figures.table());
        if let Some(file) = std::env::var_os("MAYFLY_TEST_FIGURES") {
            std::fs::write(file, figures.table()).expect("the figures are written");
        }
        self.fleet.every_job_has_one_result();
        figures
    }

    /// Asks that a server denied, by its log; one that is repeated counts once.
    fn denied_starts(&self) -> usize {
        let logs: Vec<String> = self.fleet.servers.iter().map(|server| server.log()).collect();
        let denied: BTreeSet<&str> = logs
            .iter()
            .flat_map(|log| log.lines())
            .filter_map(|line| Some(line.split_once("a start is denied")?.1))
            .collect();
        denied.len()
    }
}

impl Clients {
    /// Submits a job and waits for its result, however often it has to ask.
    async fn job(&self, token: &str, run_ms: u64, more: &Value) {
        let mut body =
            json!({ "image": "python", "source": { "language": "python", "text": program(token, run_ms) } });
        let fields = body.as_object_mut().expect("it is an object");
        fields.extend(more.as_object().expect("it is an object").clone());
        let job = loop {
            match self.api.try_submit(token, &body).await {
                Some((200 | 202, answer)) => break answer["job"].as_str().expect("it has an id").to_owned(),
                Some((429 | 500.., _)) | None => tokio::time::sleep(AGAIN).await,
                Some((status, answer)) => panic!("{token} is refused with {status}: {answer}"),
            }
        };
        self.recorder.accepted(token, &job);
        loop {
            let (_, document) = self.get(&format!("/v1/jobs/{job}?wait=20s")).await;
            if self.recorder.read(&document) {
                break;
            }
        }
        self.ended.fetch_add(1, Ordering::Relaxed);
    }

    /// Asks until there is an answer.
    async fn get(&self, path: &str) -> (u16, Value) {
        loop {
            match self.api.try_get(path).await {
                Some((200, answer)) => return (200, answer),
                Some((429 | 500.., _)) | None => tokio::time::sleep(AGAIN).await,
                Some((status, answer)) => panic!("{path} is refused with {status}: {answer}"),
            }
        }
    }

    /// Every job of the tenant's that the server has, whoever submitted it.
    async fn listed(&self) -> Vec<String> {
        let (mut jobs, mut page) = (Vec::new(), "/v1/jobs?limit=1000".to_owned());
        loop {
            let (_, answer) = self.get(&page).await;
            let of_page = answer["jobs"].as_array().expect("it is a list");
            jobs.extend(
                of_page
                    .iter()
                    .map(|job| job["job"].as_str().expect("it has an id").to_owned()),
            );
            match answer["next"].as_str() {
                Some(next) => page = format!("/v1/jobs?limit=1000&cursor={next}"),
                None => return jobs,
            }
        }
    }
}

fn id_of(executor: &Role) -> String {
    executor.settings()["MAYFLY_EXECUTOR__ID"].clone()
}

/// Numbers at random (SplitMix64), the same for the same seed.
struct Random(u64);

impl Random {
    /// By `MAYFLY_TEST_SEED`, else one that is printed.
    fn from_environment() -> Self {
        let given = std::env::var_os("MAYFLY_TEST_SEED");
        let seed = given.map_or_else(
            || now_ms().unsigned_abs(),
            |seed| seed.to_string_lossy().parse().expect("a seed is a number"),
        );
        eprintln!("MAYFLY_TEST_SEED={seed}");
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    fn another(&mut self) -> Self {
        Self(self.next())
    }

    fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        range.start() + self.next() % (range.end() - range.start() + 1)
    }
}
