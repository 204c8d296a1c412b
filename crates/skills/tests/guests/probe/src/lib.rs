//! A skill of the world `palyra:skill@1.0.0` that does one thing for each tool. Its input is plain text in a JSON string, or in the
//! member `text` of an object, and its output is plain text in a JSON string.

wit_bindgen::generate!({ path: "../../../wit/v1", world: "skill" });

use palyra::skill::{clock, files, http, kv, log, random, secrets, types::Refusal};

struct Probe;

export!(Probe);

impl Guest for Probe {
    fn run(tool: String, input: String) -> Result<String, Failure> {
        // Callers of a daemon hand over objects.
        let object = input.strip_prefix("{\"text\":\"").and_then(|rest| rest.strip_suffix("\"}"));
        let text = object.unwrap_or_else(|| input.trim_matches('"')).to_owned();
        let (first, second) = text.split_once(' ').unwrap_or((text.as_str(), ""));
        match tool.as_str() {
            "echo" => Ok(input),
            "fail" => Err(Failure { code: "asked-to".to_owned(), message: text }),
            "not-json" => Ok(text),
            "large" => Ok(format!("\"{}\"", "x".repeat(text.parse().unwrap()))),
            "allocate" => {
                let bytes = vec![1_u8; text.parse().unwrap()];
                answer(std::hint::black_box(bytes).len())
            }
            "try-allocate" => {
                let mut bytes = Vec::<u8>::new();
                answer(bytes.try_reserve_exact(text.parse().unwrap()).is_ok())
            }
            "spin" => loop {
                std::hint::black_box(0);
            },
            "panic" => panic!("{text}"),
            "exit" => std::process::exit(text.parse().unwrap()),
            "log" => {
                log::write(log::Level::Warn, &text);
                answer("logged")
            }
            "log-storm" => loop {
                log::write(log::Level::Debug, &text);
            },
            "print" => {
                print!("{first}");
                println!(" {second}");
                eprintln!("{first}: {second}");
                answer("printed")
            }
            "print-storm" => loop {
                println!("{text}");
            },
            "now" => answer((clock::now(), clock::monotonic() > 0)),
            "wasi-now" => {
                let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
                answer(since.as_millis())
            }
            "sleep" => {
                let began = std::time::Instant::now();
                std::thread::sleep(std::time::Duration::from_millis(text.parse().unwrap()));
                answer(began.elapsed().as_millis() >= text.parse().unwrap())
            }
            "random" => answer(random::bytes(text.parse().unwrap())),
            "hash" => {
                use std::hash::{BuildHasher, RandomState};
                answer(RandomState::new().hash_one(7))
            }
            "fetch" => answer(http::fetch(&http::Request {
                method: first.to_owned(),
                url: second.to_owned(),
                headers: vec![("accept".to_owned(), "text/plain".to_owned())],
                body: Some(b"body".to_vec()),
                max_bytes: Some(100),
                timeout_ms: None,
                follow_redirects: true,
            })
            .map(|response| (response.status, response.url, response.headers, response.body, response.truncated))
            .map_err(say)),
            "send" => {
                let key = match secrets::handle(first) {
                    Ok(key) => key,
                    Err(refusal) => return answer(say(refusal)),
                };
                let request = http::Request {
                    method: "GET".to_owned(),
                    url: second.to_owned(),
                    headers: vec![("x-api-key".to_owned(), key)],
                    body: None,
                    max_bytes: None,
                    timeout_ms: None,
                    follow_redirects: false,
                };
                let told = |response: http::Response| (response.status, String::from_utf8_lossy(&response.body).into_owned());
                answer(http::fetch(&request).map(told).map_err(say))
            }
            "kv-get" => answer(kv::get(&text).map_err(say)),
            "kv-set" => answer(kv::set(first, second.as_bytes()).map_err(say)),
            "kv-set-large" => answer(kv::set("k", &vec![0; text.parse().unwrap()]).map_err(say)),
            "kv-delete" => answer(kv::delete(&text).map_err(say)),
            "kv-keys" => answer(kv::keys(&text).map_err(say)),
            "secret" => answer(secrets::handle(&text).map_err(say)),
            "file-read" => answer(files::read(&text).map_err(say)),
            "file-write" => answer(files::write(first, second.as_bytes()).map_err(say)),
            "file-list" => answer(files::list(&text).map(|all| all.iter().map(entry).collect::<Vec<_>>()).map_err(say)),
            "file-stat" => answer(files::stat(&text).map(|found| entry(&found)).map_err(say)),
            "file-delete" => answer(files::delete(&text).map_err(say)),
            "wasi-file" => answer(std::fs::read_to_string(&text).map_err(|error| error.kind().to_string())),
            "wasi-socket" => answer(std::net::TcpStream::connect(&text).map(|_| ()).map_err(|error| error.kind().to_string())),
            "environment" => answer((std::env::args().count(), std::env::vars().count())),
            _ => Err(Failure { code: "no-such-tool".to_owned(), message: tool }),
        }
    }
}

fn entry(entry: &files::Entry) -> (String, String, u64) {
    (entry.name.clone(), format!("{:?}", entry.kind), entry.size)
}

fn say(refusal: Refusal) -> String {
    match refusal {
        Refusal::Denied(why) => format!("denied: {why}"),
        Refusal::Absent(why) => format!("absent: {why}"),
        Refusal::TooLarge(why) => format!("too large: {why}"),
        Refusal::Invalid(why) => format!("invalid: {why}"),
        Refusal::Failed(why) => format!("failed: {why}"),
    }
}

/// Whatever it is, as its debug form in a JSON string.
fn answer(value: impl std::fmt::Debug) -> Result<String, Failure> {
    let text = format!("{value:?}");
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}
