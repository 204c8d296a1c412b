//! Load on a server, by threads that each have a connection: as fast as answers come, at a steady pace, or as a flood that does not stop.
//!
//! Guarantees: every answer is waited for, and has the status that is expected or the measurement ends; a pace that is not kept shows in the
//! rate that was reached.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use crate::{processor, wire::Wire};

/// How much a server did.
#[derive(Debug, Clone, Copy)]
pub struct Reached {
    /// How often each second.
    pub per_second: f64,
    /// How long the server was on a processor, for each.
    pub server_time: Duration,
}

/// Has threads do something again and again for a while, each as soon as it is done. Each makes itself ready before the time counts.
pub fn as_fast_as_it_goes<W: FnMut()>(
    threads: usize,
    lasting: Duration,
    server: u32,
    ready: impl Fn(usize) -> W + Sync,
) -> Reached {
    let (barrier, ready) = (&Barrier::new(threads + 1), &ready);
    thread::scope(|scope| {
        let work = |number| {
            move || {
                let mut work = ready(number);
                barrier.wait();
                let (begun, mut done) = (Instant::now(), 0_u32);
                while begun.elapsed() < lasting {
                    work();
                    done += 1;
                }
                done
            }
        };
        let workers: Vec<_> = (0..threads).map(|number| scope.spawn(work(number))).collect();
        barrier.wait();
        let (begun, busy) = (Instant::now(), processor::time_of_process(server));
        let done: u32 = workers.into_iter().map(|worker| worker.join().expect("it works")).sum();
        let (took, busy) = (begun.elapsed(), processor::time_of_process(server).saturating_sub(busy));
        Reached { per_second: f64::from(done) / took.as_secs_f64(), server_time: busy / done.max(1) }
    })
}

/// How callers at a steady pace fared.
#[derive(Debug)]
pub struct Fared {
    /// How long each answer took, the shortest first.
    pub latencies: Vec<Duration>,
    /// How many answers there were each second.
    pub per_second: f64,
}

impl Fared {
    /// How long it took at most for so many of a hundred.
    #[must_use]
    pub fn percentile(&self, percent: usize) -> Duration {
        self.latencies.get(self.latencies.len() * percent / 100).copied().unwrap_or_default()
    }
}

/// Asks at a steady pace for a while: each request on a connection of its own, again and again, all of them shifted against each other.
#[must_use]
pub fn steadily(to: SocketAddr, requests: &[Vec<u8>], pace: Duration, lasting: Duration) -> Fared {
    let begun = Instant::now();
    let shift = pace / u32::try_from(requests.len()).unwrap_or(1);
    let caller = |number: u32, request: &[u8]| {
        let mut wire = Wire::plain(to);
        let (mut next, mut latencies) = (begun + shift * number, Vec::new());
        while next < begun + lasting {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            let asked = Instant::now();
            assert_eq!(wire.ask(request).status, 200);
            latencies.push(asked.elapsed());
            next += pace;
        }
        latencies
    };
    let (mut latencies, took) = thread::scope(|scope| {
        let callers = (0..).zip(requests).map(|(number, request)| scope.spawn(move || caller(number, request)));
        let callers: Vec<_> = callers.collect();
        let latencies = callers.into_iter().flat_map(|caller| caller.join().expect("it asks"));
        (latencies.collect::<Vec<_>>(), begun.elapsed())
    });
    latencies.sort_unstable();
    let count = u32::try_from(latencies.len()).unwrap_or(u32::MAX);
    Fared { latencies, per_second: f64::from(count) / took.as_secs_f64() }
}

/// Requests that come at a steady pace over a few connections, several behind each other, until it is told to end.
pub struct Flood {
    ends: Arc<AtomicBool>,
    thread: JoinHandle<Flooded>,
}

/// What came of a flood.
#[derive(Debug, Clone, Copy)]
pub struct Flooded {
    /// How many answers there were each second.
    pub per_second: f64,
    /// How much of a processor it took to send the requests and to read the answers.
    pub own_share: f64,
}

/// What a flood is made of.
#[derive(Clone)]
pub struct FloodPlan {
    /// Where it goes.
    pub to: SocketAddr,
    /// Requests in portions of [`PORTION`], one portion for each millisecond; from the beginning again when all were sent.
    pub portions: Arc<Vec<Vec<u8>>>,
    /// The status of every answer.
    pub expected: u16,
}

impl Flood {
    /// Begins one.
    #[must_use]
    pub fn begin(plan: FloodPlan) -> Self {
        let ends = Arc::<AtomicBool>::default();
        let told = Arc::clone(&ends);
        Self { ends, thread: thread::spawn(move || flood(&plan, &told)) }
    }

    /// Ends it, and says what came of it.
    #[must_use]
    pub fn end(self) -> Flooded {
        self.ends.store(true, Ordering::Relaxed);
        self.thread.join().expect("it floods")
    }
}

/// One thread, to cost little: it writes a portion on one connection after the other, and reads the answers to the portion before when it comes
/// round, by when they are there.
fn flood(plan: &FloodPlan, ends: &AtomicBool) -> Flooded {
    let mut wires: Vec<_> = (0..FLOOD_CONNECTIONS).map(|_| (Wire::plain(plan.to), 0)).collect();
    let (begun, busy) = (Instant::now(), processor::time_of_thread());
    let (mut next, mut answered) = (begun, 0_u32);
    for (number, portion) in plan.portions.iter().cycle().enumerate() {
        if ends.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(next.saturating_duration_since(Instant::now()));
        next += Duration::from_millis(1);
        let Some((wire, awaited)) = wires.get_mut(number % FLOOD_CONNECTIONS) else { break };
        answered += drain(wire, awaited, plan.expected);
        wire.send(portion);
        *awaited = PORTION;
    }
    for (wire, awaited) in &mut wires {
        answered += drain(wire, awaited, plan.expected);
    }
    let (took, busy) = (begun.elapsed().as_secs_f64(), processor::time_of_thread().saturating_sub(busy));
    Flooded { per_second: f64::from(answered) / took, own_share: busy.as_secs_f64() / took }
}

/// Reads all answers that are awaited, and says how many.
fn drain(wire: &mut Wire<std::net::TcpStream>, awaited: &mut u32, expected: u16) -> u32 {
    for _ in 0..*awaited {
        assert_eq!(wire.answer().status, expected);
    }
    std::mem::take(awaited)
}

/// How many requests of a flood are sent at once: one portion each millisecond makes 10 000 a second.
pub const PORTION: u32 = 10;

const FLOOD_CONNECTIONS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_of_those_that_there_are() {
        let latencies = (1..=200).map(Duration::from_micros).collect();
        let fared = Fared { latencies, per_second: 1.0 };
        assert_eq!([0, 50, 99].map(|percent| fared.percentile(percent).as_micros()), [1, 101, 199]);
        assert_eq!(Fared { latencies: Vec::new(), per_second: 0.0 }.percentile(50), Duration::ZERO);
    }
}
