//! The binary `mayfly`. All of it is in the library, where tests reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    mayfly_cli::main()
}
