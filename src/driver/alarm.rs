//! When the core wants to be woken: tokio's timer where a millisecond does not matter, and one of
//! the system's for less.

use crate::driver::clock::Clock;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// tokio counts milliseconds and rounds up: what is sooner is left to the system.
const FINE_BELOW: Duration = Duration::from_millis(3);

/// One deadline at a time; one that is too early costs a look at the clock.
#[derive(Debug)]
pub(super) struct Alarm {
    coarse: Pin<Box<Sleep>>,
    /// `None`: there is none, or the clock is not the system's.
    fine: Option<fine::Timer>,
    armed: bool,
}

impl Alarm {
    /// For a clock of this kind. Called inside of a runtime.
    pub(super) fn new(clock: Clock) -> Self {
        let fine = match clock {
            Clock::Boot => fine::Timer::new(),
            Clock::Runtime(_) => None,
        };
        Self { coarse: Box::pin(sleep(Duration::ZERO)), fine, armed: false }
    }

    /// Goes off after this time; `None`: never. A timer that goes off too early is left as it is,
    /// since setting it costs as much as being woken.
    pub(super) fn set(&mut self, after: Option<Duration>) {
        self.armed = after.is_some();
        let Some(after) = after else { return };
        if let Some(fine) = self.fine.as_mut().filter(|_| after < FINE_BELOW) {
            fine.set(after);
            return;
        }
        let deadline = Instant::now() + after;
        if self.coarse.is_elapsed() || self.coarse.deadline() > deadline {
            self.coarse.as_mut().reset(deadline);
        }
    }

    /// Waits until it goes off. Safe to cancel.
    pub(super) async fn gone_off(&mut self) {
        if !self.armed {
            std::future::pending::<()>().await;
        }
        match &mut self.fine {
            Some(fine) => tokio::select! {
                biased;
                () = fine.gone_off() => {}
                () = self.coarse.as_mut(), if !self.coarse.is_elapsed() => {}
            },
            None => self.coarse.as_mut().await,
        }
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod fine {
    use rustix::fd::AsFd;
    use rustix::time::{
        Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
        timerfd_settime,
    };
    use std::time::Duration;
    use tokio::net::unix::pipe::Receiver;

    /// A `timerfd(2)`. It is read like a pipe, which tokio can wait for.
    #[derive(Debug)]
    pub(super) struct Timer(Receiver);

    impl Timer {
        pub(super) fn new() -> Option<Self> {
            let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
            let timer = timerfd_create(TimerfdClockId::Monotonic, flags).ok()?;
            Receiver::from_owned_fd_unchecked(timer).ok().map(Self)
        }

        pub(super) fn set(&mut self, after: Duration) {
            // Zero would switch it off.
            let after = after.max(Duration::from_nanos(1));
            let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
            let value = Timespec::try_from(after).unwrap_or(zero);
            let spec = Itimerspec { it_interval: zero, it_value: value };
            // It fails for wrong arguments only; and the coarse one goes off at last.
            let _ = timerfd_settime(self.0.as_fd(), TimerfdTimerFlags::empty(), &spec);
        }

        pub(super) async fn gone_off(&mut self) {
            let mut times = [0; 8];
            loop {
                if self.0.readable().await.is_err() {
                    // The runtime ends.
                    std::future::pending::<()>().await;
                }
                // It fails if the timer was set anew meanwhile.
                if self.0.try_read(&mut times).is_ok() {
                    return;
                }
            }
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod fine {
    use std::time::Duration;

    /// There is none.
    #[derive(Debug)]
    pub(super) enum Timer {}

    impl Timer {
        pub(super) fn new() -> Option<Self> {
            None
        }

        pub(super) fn set(&mut self, _after: Duration) {
            match *self {}
        }

        pub(super) async fn gone_off(&mut self) {
            match *self {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn it_goes_off_when_it_was_set_and_not_before() {
        for clock in [Clock::Boot, Clock::Runtime(Instant::now())] {
            let mut alarm = Alarm::new(clock);
            for after in [Duration::from_micros(200), Duration::from_millis(5)] {
                let begun = Instant::now();
                while begun.elapsed() < after {
                    alarm.set(Some(after.saturating_sub(begun.elapsed())));
                    let rang = tokio::time::timeout(Duration::from_secs(10), alarm.gone_off());
                    assert!(rang.await.is_ok(), "{clock:?} {after:?}");
                }
            }
        }
    }

    #[tokio::test]
    async fn it_keeps_still_when_it_is_not_set() {
        let mut alarm = Alarm::new(Clock::Boot);
        alarm.set(Some(Duration::from_micros(1)));
        alarm.set(None);
        let rang = tokio::time::timeout(Duration::from_millis(20), alarm.gone_off()).await;
        assert!(rang.is_err());
    }
}
