//! What a call costs does not depend on what the daemon holds in memory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

mod lab;

use std::time::{Duration, Instant};

use lab::Lab;

#[tokio::test]
async fn a_large_heap_makes_a_call_no_dearer() {
    let lab = Lab::new();
    let small = median(&lab).await;
    let heap = vec![1_u8; 500 << 20];
    let large = median(&lab).await;
    println!("small heap {small:?}, {} MB {large:?}", heap.len() >> 20);
    assert!(large < small * 3, "{small:?} became {large:?}");
}

async fn median(lab: &Lab) -> Duration {
    let plan = lab.plan("/bin/true", &[]);
    let mut times = Vec::new();
    for _ in 0..31 {
        let began = Instant::now();
        lab.run(&plan).await;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    times[times.len() / 2]
}
