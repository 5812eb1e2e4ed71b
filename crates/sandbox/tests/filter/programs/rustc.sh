# Compiles with several threads, and runs copies, threads and processes.
cat > main.rs <<'R'
use std::{fs, io, os::unix::net::UnixStream, process::Command, thread};
use std::io::{Read, Write};
fn main() -> io::Result<()> {
    fs::write("a", vec![7u8; 1_000_000])?;
    assert_eq!(fs::copy("a", "b")?, 1_000_000);
    assert_eq!(io::copy(&mut fs::File::open("a")?, &mut fs::File::create("c")?)?, 1_000_000);
    let (mut one, mut two) = UnixStream::pair()?;
    let mut file = fs::File::open("a")?;
    let writer = thread::spawn(move || io::copy(&mut file, &mut one).unwrap());
    let mut got = Vec::new();
    two.read_to_end(&mut got)?;
    assert_eq!((writer.join().unwrap(), got.len()), (1_000_000, 1_000_000));
    let (mut from, mut to) = io::pipe()?;
    let mut file = fs::File::open("a")?;
    let writer = thread::spawn(move || { io::copy(&mut file, &mut to).unwrap(); to.flush().unwrap() });
    let mut count = 0;
    let mut buffer = [0; 4096];
    loop { match from.read(&mut buffer)? { 0 => break, n => count += n } }
    writer.join().unwrap();
    assert_eq!(count, 1_000_000);
    assert!(Command::new("true").status()?.success());
    Ok(())
}
R
rustc -C codegen-units=4 main.rs
./main
