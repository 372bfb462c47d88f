//! The whole core against a naive model of ZooKeeper: the same requests, the same answers, the
//! same events, and in the end the same tree on every shim.
//!
//! One client asks at a time and everything is delivered at once; what may be late or lost is
//! the scenarios' business. Sessions end in all ways, move, and shims load and start anew.

mod ask;
#[path = "../scenarios/show.rs"]
#[expect(dead_code, reason = "the scripts show more")]
mod show;
mod trial;
mod watchers;
#[path = "../scenarios/world.rs"]
#[expect(dead_code, reason = "the scripts hold and lose what is under way")]
mod world;
mod zookeeper;

use proptest::prelude::*;

use crate::ask::{Ask, ask};
use crate::trial::{CLIENTS, Trial};

/// `super:s`.
const SUPER: &str = "super:BDYfsKZtexvW+zRgsJ2N0pMNlLY=";

#[derive(Clone, Debug)]
enum Step {
    /// Requests that came in one read of a socket.
    Ask(usize, Vec<Ask>),
    Close(usize),
    EndLease(usize),
    Move(usize),
    Compact,
    Restart(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let client = || 0..CLIENTS;
    prop_oneof![
        30 => (client(), prop::collection::vec(ask(), 1..5))
            .prop_map(|(client, asks)| Step::Ask(client, asks)),
        1 => client().prop_map(Step::Close),
        1 => client().prop_map(Step::EndLease),
        1 => client().prop_map(Step::Move),
        1 => Just(Step::Compact),
        1 => (0..2_usize).prop_map(Step::Restart),
    ]
}

proptest! {
    #[test]
    fn the_core_answers_as_the_model_does(steps in prop::collection::vec(step(), 1..40)) {
        let mut trial = Trial::new(SUPER);
        for step in steps {
            match step {
                Step::Ask(client, asks) => trial.ask(client, &asks),
                Step::Close(client) => trial.close(client),
                Step::EndLease(client) => trial.end_lease(client),
                Step::Move(client) => trial.move_over(client),
                Step::Compact => trial.compact(),
                Step::Restart(shim) => trial.restart(shim, SUPER),
            }
            trial.check_trees();
        }
    }
}
