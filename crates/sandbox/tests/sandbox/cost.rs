//! What a call costs does not depend on what the daemon holds in memory.

#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "a test stops at the first surprise")]

use std::time::{Duration, Instant};

use crate::lab::Lab;

/// Small and large take turns, and the best of each is compared: a neighbour that takes the processor away makes a round dearer,
/// never cheaper. A fork of such a heap costs some 30 ms, far more than the bound leaves room for.
#[tokio::test]
async fn a_large_heap_makes_a_call_no_dearer() {
    let lab = Lab::new();
    let (mut small, mut large) = (Duration::MAX, Duration::MAX);
    for _ in 0..6 {
        small = small.min(a_call(&lab).await);
        let heap = vec![1_u8; 500 << 20];
        large = large.min(a_call(&lab).await);
        drop(std::hint::black_box(heap));
    }
    println!("small heap {small:?}, 500 MB {large:?}");
    assert!(large < small * 3 + Duration::from_millis(5), "{small:?} became {large:?}");
}

/// What one call of several in a row costs. One alone may find an init that waits since the heap was another; all of them cannot.
async fn a_call(lab: &Lab) -> Duration {
    const IN_A_ROW: u32 = 10;
    let plan = lab.plan("/bin/true", &[]);
    let began = Instant::now();
    for _ in 0..IN_A_ROW {
        lab.run(&plan).await;
    }
    began.elapsed() / IN_A_ROW
}
