//! The network between the machines of a world: a router in this process, which drops and delays
//! packets as it is told. It needs nothing of the kernel but TUN devices.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use tun_rs::{DeviceBuilder, SyncDevice};

use crate::differential::chance::Chance;
use crate::faults::namespace::Namespace;

/// The largest packet. Large ones keep the router's work small.
const MTU: u16 = 9000;
/// How many packets may wait for the router at each machine.
const QUEUE_PACKETS: u32 = 5000;
/// All machines are in 10.88.0.0/24.
const SUBNET: [u8; 3] = [10, 88, 0];

/// A machine by its number; its address ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Machine(pub u8);

impl Machine {
    /// Its address.
    #[must_use]
    pub fn address(self) -> Ipv4Addr {
        let [a, b, c] = SUBNET;
        Ipv4Addr::new(a, b, c, self.0)
    }

    fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// What happens to the packets from one machine to another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// None arrives.
    pub cut: bool,
    /// So many in a hundred are lost.
    pub loss_percent: u8,
    /// The rest arrives so much later.
    pub delay: Duration,
}

/// The network; it works as long as the process lives.
pub struct Network {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    late: Mutex<BinaryHeap<Reverse<Late>>>,
    /// Something came that is to arrive late.
    came: Condvar,
}

struct State {
    /// By the machine's number.
    devices: Vec<Option<Arc<SyncDevice>>>,
    /// By the sender's and the receiver's number.
    links: Vec<Link>,
    chance: Chance,
    /// Grows with each packet, so that those of one time keep their order.
    packets: u64,
}

/// A packet that arrives late.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Late {
    at: Instant,
    number: u64,
    to: Machine,
    packet: Vec<u8>,
}

impl Network {
    /// A network without machines. The seed decides which packets are lost.
    #[must_use]
    pub fn start(seed: u64) -> Self {
        let count = usize::from(u8::MAX) + 1;
        let state = State {
            devices: vec![None; count],
            links: vec![Link::default(); count * count],
            chance: Chance::new(seed),
            packets: 0,
        };
        let (state, late) = (Mutex::new(state), Mutex::new(BinaryHeap::new()));
        let shared = Arc::new(Shared { state, late, came: Condvar::new() });
        let courier = Arc::clone(&shared);
        thread::spawn(move || courier.deliver_late());
        Self { shared }
    }

    /// Connects the calling thread's network namespace as a machine.
    ///
    /// # Errors
    /// No TUN device can be made there.
    pub fn attach(&self, machine: Machine) -> Result<()> {
        let device = DeviceBuilder::new()
            .name("faults0")
            .ipv4(machine.address(), 24, None)
            .mtu(MTU)
            .tx_queue_len(QUEUE_PACKETS)
            .enable(true)
            .build_sync()
            .with_context(|| format!("make the device of {machine:?}"))?;
        let device = Arc::new(device);
        if let Some(place) = lock(&self.shared.state).devices.get_mut(machine.index()) {
            *place = Some(Arc::clone(&device));
        }
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || shared.carry(machine, &device));
        Ok(())
    }

    /// Makes a namespace that is a machine.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn machine(&self, machine: Machine) -> Result<Namespace> {
        let namespace = Namespace::make()?;
        namespace.within(|| self.attach(machine))?;
        Ok(namespace)
    }

    /// Sets what happens to packets from each of some machines to each of others.
    pub fn set(&self, from: &[Machine], to: &[Machine], link: Link) {
        let mut state = lock(&self.shared.state);
        for from in from {
            for to in to.iter().filter(|to| *to != from) {
                if let Some(place) = state.links.get_mut(pair(*from, *to)) {
                    *place = link;
                }
            }
        }
    }

    /// As [`Network::set`], in both directions.
    pub fn set_both(&self, some: &[Machine], others: &[Machine], link: Link) {
        self.set(some, others, link);
        self.set(others, some, link);
    }

    /// Makes every way whole again.
    pub fn mend(&self) {
        lock(&self.shared.state).links.fill(Link::default());
    }

    /// How many packets were carried.
    #[must_use]
    pub fn packets(&self) -> u64 {
        lock(&self.shared.state).packets
    }
}

impl Shared {
    /// Carries what a machine sends.
    fn carry(&self, from: Machine, device: &SyncDevice) {
        let mut buffer = vec![0; usize::from(MTU)];
        while let Ok(length) = device.recv(&mut buffer) {
            let packet = buffer.get(..length).unwrap_or_default();
            if let Some(to) = receiver(packet) {
                self.route(from, to, packet);
            }
        }
    }

    fn route(&self, from: Machine, to: Machine, packet: &[u8]) {
        let mut state = lock(&self.state);
        let link = state.links.get(pair(from, to)).copied().unwrap_or_default();
        let lost = link.cut
            || (link.loss_percent > 0 && state.chance.percent(usize::from(link.loss_percent)));
        if lost {
            return;
        }
        state.packets += 1;
        if link.delay.is_zero() {
            let device = state.devices.get(to.index()).and_then(Clone::clone);
            drop(state);
            send(device.as_deref(), packet);
            return;
        }
        let number = state.packets;
        drop(state);
        let late = Late { at: Instant::now() + link.delay, number, to, packet: packet.to_vec() };
        lock(&self.late).push(Reverse(late));
        self.came.notify_one();
    }

    fn deliver_late(&self) {
        let mut late = lock(&self.late);
        loop {
            let now = Instant::now();
            let due = late.peek().map(|Reverse(first)| first.at);
            late = match due {
                Some(at) if at <= now => {
                    if let Some(Reverse(Late { to, packet, .. })) = late.pop() {
                        let device = lock(&self.state).devices.get(to.index()).cloned().flatten();
                        send(device.as_deref(), &packet);
                    }
                    late
                }
                Some(at) => {
                    let waited = self.came.wait_timeout(late, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.came.wait(late).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn send(device: Option<&SyncDevice>, packet: &[u8]) {
    if let Some(device) = device {
        // A machine that has gone loses what is sent to it, as anywhere.
        let _ = device.send(packet);
    }
}

/// The machine that an IPv4 packet is for.
fn receiver(packet: &[u8]) -> Option<Machine> {
    let [a, b, c] = SUBNET;
    match (packet.first()? >> 4, packet.get(16..20)?) {
        (4, [w, x, y, last]) if [*w, *x, *y] == [a, b, c] => Some(Machine(*last)),
        _ => None,
    }
}

fn pair(from: Machine, to: Machine) -> usize {
    from.index() * (usize::from(u8::MAX) + 1) + to.index()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_for_the_machine_that_its_address_ends_with() {
        let mut packet = [0_u8; 20];
        packet[0] = 0x45;
        packet[16..].copy_from_slice(&Machine(7).address().octets());
        assert_eq!(receiver(&packet), Some(Machine(7)));
        packet[16] = 9;
        assert_eq!(receiver(&packet), None);
        assert_eq!(receiver(&packet[..10]), None);
        packet[0] = 0x60;
        assert_eq!(receiver(&packet), None);
    }

    #[test]
    fn ways_are_cut_in_one_direction_or_in_both_and_mended() {
        let network = Network::start(1);
        let link = |from, to| {
            let state = lock(&network.shared.state);
            state.links[pair(Machine(from), Machine(to))]
        };
        let cut = Link { cut: true, ..Link::default() };
        network.set(&[Machine(1)], &[Machine(1), Machine(2), Machine(3)], cut);
        assert_eq!((link(1, 1), link(1, 2), link(2, 1)), (Link::default(), cut, Link::default()));
        network.set_both(&[Machine(4)], &[Machine(5)], cut);
        assert_eq!((link(4, 5), link(5, 4)), (cut, cut));
        network.mend();
        assert_eq!((link(1, 3), link(5, 4)), (Link::default(), Link::default()));
    }
}
