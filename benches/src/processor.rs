//! How long processes and threads were on a processor, from what the kernel tells of them.

use std::{fs, time::Duration};

/// How long a process was on a processor, all of its threads together, to the hundredth of a second.
#[must_use]
pub fn time_of_process(pid: u32) -> Duration {
    told(&fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process"))
}

/// How long this thread was on a processor: to the nanosecond, because a thread may live for a moment only.
#[must_use]
pub fn time_of_thread() -> Duration {
    let told = fs::read_to_string("/proc/thread-self/schedstat").expect("a thread");
    let nanos = told.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
    Duration::from_nanos(nanos.expect("a count"))
}

/// The time in a line of `stat`: its 14th and 15th field, counted in hundredths of a second.
fn told(stat: &str) -> Duration {
    // The second field is a name in parentheses, which may hold anything.
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields).expect("a name");
    let ticks: u64 =
        fields.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<u64>().expect("a count")).sum();
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_on_a_processor_and_one_that_sleeps_is_not() {
        let before = time_of_thread();
        let begun = std::time::Instant::now();
        while time_of_thread() - before < Duration::from_millis(5) {
            assert!(begun.elapsed() < Duration::from_secs(20), "its time does not pass");
        }
        let before = time_of_thread();
        std::thread::sleep(Duration::from_millis(50));
        assert!(time_of_thread() - before < Duration::from_millis(25));
    }

    #[test]
    fn user_and_system_time_are_added_whatever_a_program_is_called() {
        let stat = "7 (a) b c) S 1 7 7 0 -1 4194304 10 11 12 13 250 30 4 5 20 0 1 0 99";
        assert_eq!(told(stat), Duration::from_millis(2_800));
    }
}
