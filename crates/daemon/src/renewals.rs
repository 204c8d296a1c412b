//! How often devices have their certificates renewed: each renewal is a write to the disk, so that a device gets only so many a minute.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use palyra_types::{Clock, DeviceId};

/// The renewals of the last minute.
#[derive(Default)]
pub struct Renewals(Mutex<HashMap<DeviceId, (u64, u32)>>);

impl Renewals {
    /// How many a device gets in a minute.
    pub const A_MINUTE: u32 = 10;

    /// Whether a device gets one more.
    #[must_use]
    pub fn takes(&self, device: &DeviceId, clock: &dyn Clock) -> bool {
        let minute = clock.boot().millis / 60_000;
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counted.retain(|_, (counted_in, _)| *counted_in == minute);
        let (_, count) = counted.entry(device.clone()).or_insert((minute, 0));
        *count += 1;
        *count <= Self::A_MINUTE
    }
}

#[cfg(test)]
mod tests {
    use palyra_types::{Timestamp, clock::ManualClock};

    use super::*;

    #[test]
    fn a_device_gets_so_many_a_minute_and_holds_up_no_other() {
        let (renewals, clock) = (Renewals::default(), ManualClock::at(Timestamp::from_unix_millis(0)));
        let [phone, laptop] = ["phone", "laptop"].map(|name| DeviceId::parse(name).unwrap());
        for _ in 0..Renewals::A_MINUTE {
            assert!(renewals.takes(&phone, &clock));
        }
        assert!(!renewals.takes(&phone, &clock));
        assert!(renewals.takes(&laptop, &clock));
        clock.advance(60_000);
        assert!(renewals.takes(&phone, &clock));
    }
}
