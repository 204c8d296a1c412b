//! What the vault costs, in one run: a secret among many next to one among few; and a program in an enclosure that reaches a host with a secret
//! that it never sees, so that its TLS is terminated and everything it sends and gets is looked through, next to the same program and host
//! without one. A missed target ends the program with an error.
//!
//! Everything is as in life: real files, real enclosures, policy asked about each connection, each use of a secret in the journal.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    reason = "a measurement that cannot be set up ends"
)]

use std::{fs, path::Path, sync::Arc, time::Duration};

use palyra_benches::{
    judge, median, middle, millis,
    place::{Place, PlacePlan, directory},
    time,
};
use palyra_gate::{Output, safekeeping::VaultState};
use palyra_tests::{scripted::Names, site::Site};
use palyra_types::{HostName, Principal, SecretRef, clock::SystemClock, entropy::SystemEntropy};
use palyra_vault::{Belief, BindingTerms, Ground, NewSecret, SecretValue, Vault, VaultChange, backend::KeyFile};
use serde_json::json;
use tokio::runtime::Runtime;

fn main() -> std::process::ExitCode {
    let growth = lookups();
    let used = uses();
    judge(&[
        ("a secret among 10 000, 10 in use, is had in ≤ 1.2 times of one among 10", growth.some <= 1.2),
        ("a secret among 10 000, each in use, is had in ≤ 1.2 times of one among 10", growth.all <= 1.2),
        ("a request with a secret takes ≤ 0.5 ms more than one without", used.more <= 0.5),
        ("an answer to a request with a secret has ≥ 0.25 of the throughput of one without", used.share >= 0.25),
    ])
}

/// How much longer a secret takes to be had among many: when the same few are in use, and when all are in turn.
struct Growth {
    some: f64,
    all: f64,
}

fn lookups() -> Growth {
    let home = directory();
    let [few, many] = [FEW, MANY].map(|count| filled(&home.path().join(count.to_string()), count));
    // As many names in each case, so that reading them costs the same.
    let names = |vault: &Vault| -> Vec<SecretRef> { vault.list().into_iter().map(|one| one.secret).collect() };
    let repeated = |names: &[SecretRef]| -> Vec<_> { names.iter().take(FEW).cycle().take(MANY).cloned().collect() };
    let (few_names, many_names) = (names(&few), names(&many));
    let cases = [(&few, repeated(&few_names)), (&many, repeated(&many_names)), (&many, many_names)];
    let mut times: [Vec<Duration>; 3] = Default::default();
    for _ in 0..LOOKUP_ROUNDS {
        for ((vault, names), times) in cases.iter().zip(&mut times) {
            times.push(time(|| names.iter().for_each(|name| assert!(vault.get(name).is_ok()))));
        }
    }
    let [one, some, all] = times.map(|times| median(times).as_secs_f64() * 1e9 / MANY as f64);
    println!("a secret is had among {FEW:<19}{one:>9.0} ns");
    println!("  among {MANY}, {FEW} of them in use    {some:>9.0} ns   {:.2} times", some / one);
    println!("  among {MANY}, each of them in use  {all:>9.0} ns   {:.2} times", all / one);
    drop((few, many));
    for count in [FEW, MANY] {
        let ground = ground(&home.path().join(count.to_string()));
        let opening = || Vault::open(ground.clone(), Belief::File).expect("the vault");
        let opened = median((0..7).map(|_| time(opening)).collect());
        let vault = opening().vault;
        let putting = || add(&vault, 0..1);
        let put = median((0..51).map(|_| time(putting)).collect());
        println!(
            "a vault of {count:<6} opens in {:>7.2} ms, and takes a value in {:.2} ms",
            millis(opened),
            millis(put)
        );
    }
    Growth { some: some / one, all: all / one }
}

/// A vault of so many secrets, as it is after it was opened.
fn filled(directory: &Path, count: usize) -> Arc<Vault> {
    let vault = Vault::open(ground(directory), Belief::Journal(None)).expect("a vault").vault;
    add(&vault, 0..count);
    drop(vault);
    Vault::open(ground(directory), Belief::File).expect("the vault").vault
}

fn add(vault: &Arc<Vault>, numbers: std::ops::Range<usize>) {
    let secrets = numbers.map(|number| new(&format!("global/secret-{number}"), &format!("value-of-{number:032}")));
    let change = VaultChange::Add { secrets: secrets.collect(), bindings: Vec::new() };
    vault.stage(change).expect("a change").confirm();
}

fn new(name: &str, value: &str) -> NewSecret {
    let value = SecretValue::new(value.as_bytes().to_vec()).expect("a value");
    NewSecret { secret: secret(name), value, expires: None, rotate_after_days: None, note: None }
}

fn secret(name: &str) -> SecretRef {
    SecretRef::parse(name).expect("a name")
}

fn ground(directory: &Path) -> Ground {
    Ground {
        directory: directory.join("vault"),
        backend: Arc::new(KeyFile::new(directory.join("keys"))),
        clock: Arc::new(SystemClock::new()),
        entropy: Arc::new(SystemEntropy),
        keep_versions: 0,
    }
}

/// What a secret costs whoever uses it.
struct Cost {
    /// Milliseconds that a request takes longer on a connection that is kept.
    more: f64,
    /// How much of the throughput is left.
    share: f64,
}

fn uses() -> Cost {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    let home = directory();
    let files = home.path().join("files");
    fs::create_dir(&files).expect("a directory");
    fs::write(files.join("small"), "small").expect("a file");
    fs::write(files.join("large"), text(LARGE)).expect("a file");
    let site = runtime.block_on(Site::start_with_key(&[NAME], &files, VALUE));
    let place = place(&runtime, home.path(), &site);
    let url = |path: &str| format!("https://{NAME}:{}{path}", site.port());
    let (one, kept, large) = (url("/small"), url("/small?n=[1-100]"), url("/large"));
    let figure = |with_secret: bool, shown: &str, url: &str| {
        let script = format!("curl -sS -o /dev/null -w '%{{{shown}}}\\n' -H \"Authorization: Bearer $KEY\" '{url}'");
        let mut args = json!({ "command": ["sh", "-c", script] });
        if with_secret {
            args["secrets"] = json!({ "KEY": "global/key" });
        }
        let done = runtime.block_on(place.call("process.run", args));
        let Output::Process { stdout, stderr, .. } = &done.output else { unreachable!("a program ran") };
        let said = String::from_utf8_lossy(&stdout.bytes);
        let told: Vec<f64> = said.lines().filter_map(|line| line.trim().parse().ok()).collect();
        assert!(!told.is_empty(), "{said} {}", String::from_utf8_lossy(&stderr.bytes));
        middle(told)
    };
    // Interleaved, so that a busy moment of the machine meets both alike.
    let mut figures: [[Vec<f64>; 3]; 2] = Default::default();
    for _ in 0..ROUNDS {
        for (with_secret, [first, next, throughput]) in [false, true].into_iter().zip(&mut figures) {
            first.push(figure(with_secret, "time_total", &one) * 1e3);
            next.push(figure(with_secret, "time_total", &kept) * 1e3);
            throughput.push(figure(with_secret, "speed_download", &large) / f64::from(1 << 20));
        }
    }
    let [without, with] = figures.map(|figures| figures.map(middle));
    println!("\n{:<26}{:>18}{:>18}{:>18}", "a program in an enclosure", "first request", "the next", "a large answer");
    for (name, [first, next, throughput]) in [("without a secret", without), ("with one", with)] {
        println!("{name:<26}{first:>15.3} ms{next:>15.3} ms{throughput:>12.0} MiB/s");
    }
    let ([first, next, throughput], [first_with, next_with, throughput_with]) = (without, with);
    let cost = Cost { more: next_with - next, share: throughput_with / throughput };
    let more_first = first_with - first;
    println!("{:<26}{more_first:>15.3} ms{:>15.3} ms{:>12.2} of it", "it costs, or leaves", cost.more, cost.share);
    cost
}

/// A gate with a vault and a secret for the site.
fn place(runtime: &Runtime, home: &Path, site: &Site) -> Place {
    let authority = home.join("authority.pem");
    fs::write(&authority, site.certificate()).expect("a file");
    let config = format!(
        "[sandbox]\nplans = [{{ tier = \"c\", egress = \"strict\" }}]\n\
         [egress]\ntrust = [\"{}\"]\n\
         [[egress.host]]\nhost = \"{NAME}\"\nports = [{}]\nallow_private = true\n",
        authority.display(),
        site.port()
    );
    runtime.block_on(async {
        let net = Some(Names::default().with(NAME, "127.0.0.1").connector());
        let place =
            Place::open(PlacePlan { directory: &home.join("place"), journal: None, config: &config, net }).await;
        let gate = &place.opened.gate;
        gate.open_vault(ground(home), None).await.expect("a vault");
        assert!(matches!(&*gate.vault(), VaultState::Open(_)));
        let host = HostName::parse(NAME).expect("a name");
        let terms = BindingTerms { port: site.port(), ..BindingTerms::usual(secret("global/key"), host) };
        let change = VaultChange::Add { secrets: vec![new("global/key", VALUE)], bindings: vec![terms] };
        let owner = Principal::parse("user:owner@owner").expect("an owner");
        gate.change_vault(change, &owner).await.expect("a secret");
        place
    })
}

/// Text as a host might send it.
fn text(length: usize) -> Vec<u8> {
    let words = "{\"name\":\"a value like any other\",\"count\":12345,\"kept\":true},\n";
    words.bytes().cycle().take(length).collect()
}

const FEW: usize = 10;
const MANY: usize = 10_000;
const LOOKUP_ROUNDS: usize = 31;

const ROUNDS: usize = 7;
const LARGE: usize = 64 << 20;
const NAME: &str = "host.bench.test";
const VALUE: &str = "s3cr3t-K3y-of-the-host-0123456789";
