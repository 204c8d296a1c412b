//! A command: the input is standard input, the answer is standard output.

use std::io::{Read, Write};

fn main() {
    let arguments = std::env::args().collect::<Vec<_>>();
    let mut input = String::new();
    std::io::stdin().read_to_string(&mut input).unwrap();
    match arguments[1].as_str() {
        "echo" => print!("{{\"program\":{:?},\"input\":{input}}}", arguments[0]),
        "fail" => {
            eprintln!("it is {}", input.trim_matches('"'));
            std::process::exit(3);
        }
        "quiet-fail" => std::process::exit(1),
        "succeed-early" => {
            print!("true");
            std::process::exit(0);
        }
        "large" => {
            let piece = [b'x'; 65_536];
            loop {
                std::io::stdout().write_all(&piece).unwrap();
            }
        }
        "random" => {
            use std::hash::{BuildHasher, RandomState};
            print!("{}", RandomState::new().hash_one(7) % 1_000);
        }
        "now" => print!("{}", std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis()),
        "file" => print!("{:?}", std::fs::read_to_string("/etc/hostname").map_err(|error| error.kind().to_string()).unwrap_err()),
        "environment" => print!("{}", std::env::vars().count()),
        "directory" => print!("{:?}", std::fs::read_dir(".").map(|_| ()).map_err(|error| error.kind().to_string()).unwrap_err()),
        other => panic!("{other}"),
    }
}
