//! What is asked for on the command line of one job, or of all jobs of a batch.

use clap::Args;
use mayfly_core::{
    image::ImageName,
    limits::LimitsAsked,
    units::{ByteSize, CpuShare, Span},
};

#[derive(Debug, Args)]
pub(crate) struct JobFlags {
    /// A name of `mayfly image list`, or `repository@sha256:…`.
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<ImageName>,

    /// Put a file into /work: `PATH`, or `PATH=NAME` for another name there. One of more than 4 MiB is uploaded before the job.
    /// May be given again.
    #[arg(long = "file", value_name = "PATH[=NAME]")]
    pub(crate) files: Vec<String>,

    /// Put the files of a zip, tar or tar.gz into /work: `PATH`, or `PATH=FOLDER` for a folder there. May be given again.
    #[arg(long = "archive", value_name = "PATH[=FOLDER]")]
    pub(crate) archives: Vec<String>,

    /// Put a file into /work that is uploaded already, under this name: see `mayfly upload`. May be given again.
    #[arg(long = "upload", value_name = "DIGEST=NAME")]
    pub(crate) uploads: Vec<String>,

    /// Keep files that it leaves in /work, by a glob such as `out/*.csv` or `**/*.png`. May be given again.
    #[arg(long, value_name = "GLOB")]
    pub(crate) artifact: Vec<String>,

    /// Keep them whatever its exit code, and also where its time ran out.
    #[arg(long, requires = "artifact")]
    pub(crate) artifacts_always: bool,

    /// Set an environment variable of the program. May be given again.
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,

    /// Set an environment variable to a secret, which is taken out of all that the program writes: to our own variable of
    /// that name, or to what a file has, without a line's end after it. May be given again.
    #[arg(long, value_name = "NAME[=FILE]")]
    pub(crate) secret: Vec<String>,

    /// Set an environment variable to a secret that the server keeps under a name (`mayfly secret set`). May be given again.
    #[arg(long, value_name = "VARIABLE=NAME")]
    pub(crate) named_secret: Vec<String>,

    /// Put a secret into a file below /work that only the program's user can read: what a file of ours has, without a line's end
    /// after it. May be given again.
    #[arg(long, value_name = "PATH=FILE")]
    pub(crate) secret_file: Vec<String>,

    /// The same with a secret that the server keeps. May be given again.
    #[arg(long, value_name = "PATH=NAME")]
    pub(crate) named_secret_file: Vec<String>,

    /// Let the program reach a host, by the proxy that its environment names: `pypi.org`, `*.example.com:8443`. The policy says
    /// what may be asked for (`policy.egress.allow`). May be given again.
    #[arg(long, value_name = "RULE")]
    pub(crate) allow_host: Vec<String>,

    /// Kill it after this long.
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,

    /// Memory, swap and file systems included.
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,

    /// CPUs, such as 0.5.
    #[arg(long, value_name = "CPUS")]
    pub(crate) cpus: Option<CpuShare>,

    /// Processes and threads at once.
    #[arg(long, value_name = "COUNT")]
    pub(crate) pids: Option<u32>,

    /// Size of /work.
    #[arg(long, value_name = "SIZE")]
    pub(crate) work: Option<ByteSize>,

    /// Size of /tmp.
    #[arg(long, value_name = "SIZE")]
    pub(crate) tmp: Option<ByteSize>,

    /// Size of /dev/shm.
    #[arg(long, value_name = "SIZE")]
    pub(crate) shm: Option<ByteSize>,

    /// How much of stdout is kept.
    #[arg(long, value_name = "SIZE")]
    pub(crate) stdout: Option<ByteSize>,

    /// How much of stderr is kept.
    #[arg(long, value_name = "SIZE")]
    pub(crate) stderr: Option<ByteSize>,

    /// Open file descriptors of a process.
    #[arg(long, value_name = "COUNT")]
    pub(crate) open_files: Option<u32>,

    /// OCI runtime: runc, crun or runsc. Refused where the engine hasn't got it.
    #[arg(long, value_name = "NAME")]
    pub(crate) runtime: Option<String>,

    /// A label of your own. May be given again.
    #[arg(long, value_name = "NAME=VALUE")]
    pub(crate) label: Vec<String>,

    /// How often it may be tried in all, where trouble of ours ends a try. With 1 it starts at most once.
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_attempts: Option<u32>,
}

impl JobFlags {
    /// The limits among them.
    pub(crate) const fn limits(&self) -> LimitsAsked {
        LimitsAsked {
            memory: self.memory,
            cpu: self.cpus,
            pids: self.pids,
            wall: self.timeout,
            work: self.work,
            tmp: self.tmp,
            shm: self.shm,
            stdout: self.stdout,
            stderr: self.stderr,
            open_files: self.open_files,
        }
    }
}
