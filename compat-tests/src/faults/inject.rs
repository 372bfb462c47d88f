//! How each kind of fault is made and mended.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::differential::chance::Chance;
use crate::faults::admin::Admin;
use crate::faults::cluster::{
    COUNT, Cluster, Server, client_machine, member_machine, shim_machine,
};
use crate::faults::kind::Kind;
use crate::faults::network::{Link, Machine};
use crate::faults::restore::Backup;

/// A fault that has been made.
pub struct Fault {
    /// What it is.
    pub kind: Kind,
    /// Whom it has struck.
    pub victim: String,
    /// When it struck.
    pub at: Instant,
    mends: Vec<Mend>,
}

enum Mend {
    Network,
    StartShim(usize),
    StartMember(usize),
    ResumeShim(usize),
    ResumeMember(usize),
    FreeDisk {
        file: PathBuf,
        member: usize,
    },
    FreeDatabase {
        keys: usize,
    },
    AddMember {
        index: usize,
        name: String,
    },
    Restore(Backup),
    /// Until etcd is so far.
    Wait {
        revision: i64,
    },
}

const NONE: Link = Link { cut: true, loss_percent: 0, delay: Duration::ZERO };

/// Whom a fault may strike.
#[derive(Clone, Copy)]
struct Targets {
    some: usize,
    leader: usize,
    follower: usize,
}

type Made = Result<(String, Vec<Mend>)>;

/// Makes a fault; chance decides whom it strikes.
///
/// # Errors
/// It cannot be made.
pub fn make(
    cluster: &mut Cluster,
    admin: &Admin,
    kind: Kind,
    chance: &mut Chance,
) -> Result<Fault> {
    let leader = admin.leader()?;
    let follower = (leader + 1 + chance.below(COUNT - 1)) % COUNT;
    let targets = Targets { some: chance.below(COUNT), leader, follower };
    let begun = Instant::now();
    let (victim, mends) = match kind {
        Kind::ShimKill | Kind::ShimTerm | Kind::ShimPause => strike_shim(cluster, kind, targets)?,
        Kind::ShimPauseLong | Kind::CompactPaused => strike_shim(cluster, kind, targets)?,
        Kind::LeaderKill | Kind::FollowerKill | Kind::LeaderTerm => {
            strike_member(cluster, kind, targets)?
        }
        Kind::LeaderPause | Kind::FollowerPause => strike_member(cluster, kind, targets)?,
        Kind::MajorityKill => kill_majority(cluster, targets)?,
        Kind::ShimCut | Kind::ShimDeaf | Kind::ShimMute => cut_shim(cluster, kind, targets),
        Kind::ShimMemberCut | Kind::ShimLeaderCut => cut_shim(cluster, kind, targets),
        Kind::ClientCut | Kind::LeaderCut | Kind::FollowerCut => cut_others(cluster, kind, targets),
        Kind::Slow | Kind::Loss => spoil(cluster, kind, chance),
        Kind::LeaderMove => {
            admin.move_leader(follower)?;
            (format!("member {leader} to {follower}"), Vec::new())
        }
        Kind::Compact => (format!("at revision {}", admin.compact()?), Vec::new()),
        Kind::Defragment => {
            (0..COUNT).try_for_each(|index| admin.defragment(index))?;
            ("all members".to_owned(), Vec::new())
        }
        Kind::NoSpace => {
            let keys = fill_database(admin)?;
            ("all members".to_owned(), vec![Mend::FreeDatabase { keys }])
        }
        Kind::DiskFull => {
            let file = fill_disk(cluster, follower)?;
            (format!("member {follower}"), vec![Mend::FreeDisk { file, member: follower }])
        }
        Kind::MemberReplace => lose_member(cluster, admin, targets, chance)?,
        Kind::Restore | Kind::RestorePaused | Kind::RestoreBumped => {
            stop_all(cluster, admin, kind, targets)?
        }
    };
    // These take their time until they strike.
    let late = matches!(kind, Kind::DiskFull | Kind::NoSpace | Kind::MemberReplace);
    let late = late || kind.is_restore();
    let at = if late { Instant::now() } else { begun };
    Ok(Fault { kind, victim, at, mends })
}

fn strike_shim(cluster: &mut Cluster, kind: Kind, Targets { some, .. }: Targets) -> Made {
    let shim = &mut at(&mut cluster.shims, some)?.process;
    let mend = match kind {
        Kind::ShimKill => {
            shim.kill()?;
            Mend::StartShim(some)
        }
        Kind::ShimTerm => {
            shim.stop()?;
            Mend::StartShim(some)
        }
        _ => {
            shim.pause()?;
            Mend::ResumeShim(some)
        }
    };
    Ok((format!("shim {some}"), vec![mend]))
}

fn strike_member(cluster: &mut Cluster, kind: Kind, targets: Targets) -> Made {
    let index = match kind {
        Kind::FollowerKill | Kind::FollowerPause => targets.follower,
        _ => targets.leader,
    };
    let member = &mut at(&mut cluster.members, index)?.process;
    let mend = match kind {
        Kind::LeaderKill | Kind::FollowerKill => {
            member.kill()?;
            Mend::StartMember(index)
        }
        Kind::LeaderTerm => {
            member.stop()?;
            Mend::StartMember(index)
        }
        _ => {
            member.pause()?;
            Mend::ResumeMember(index)
        }
    };
    Ok((format!("member {index}"), vec![mend]))
}

impl Fault {
    /// The last revision that is kept, if etcd is going to be set back.
    #[must_use]
    pub fn keeps(&self) -> Option<i64> {
        self.mends.iter().find_map(|mend| match mend {
            Mend::Restore(backup) => Some(backup.revision),
            _ => None,
        })
    }
}

/// Takes a snapshot, lets the clients write more, and ends all members.
fn stop_all(cluster: &mut Cluster, admin: &Admin, kind: Kind, targets: Targets) -> Made {
    let backup = Backup::take(admin, kind == Kind::RestoreBumped)?;
    let kept = backup.revision;
    std::thread::sleep(LOST_AFTER_BACKUP);
    let (mut mends, mut whom) = (vec![Mend::Restore(backup)], format!("to revision {kept}"));
    if kind == Kind::RestorePaused {
        // Those that etcd itself writes are few.
        let revision = admin.revision()? + 20;
        at(&mut cluster.shims, targets.some)?.process.pause()?;
        mends.extend([Mend::Wait { revision }, Mend::ResumeShim(targets.some)]);
        whom = format!("shim {}, {whom}", targets.some);
    }
    cluster.members.iter_mut().try_for_each(|member| member.process.kill())?;
    Ok((whom, mends))
}

/// One that may lead stays.
fn kill_majority(cluster: &mut Cluster, Targets { follower, .. }: Targets) -> Made {
    let lost = [follower, (follower + 1) % COUNT];
    for member in lost {
        at(&mut cluster.members, member)?.process.kill()?;
    }
    Ok((format!("members {lost:?}"), lost.map(Mend::StartMember).into()))
}

fn lose_member(
    cluster: &mut Cluster,
    admin: &Admin,
    Targets { follower, .. }: Targets,
    chance: &mut Chance,
) -> Made {
    let id = admin.status(follower)?.id;
    at(&mut cluster.members, follower)?.process.kill()?;
    admin.replace(follower, id)?;
    let name = format!("m{follower}-{}", chance.below(1_000_000));
    Ok((format!("member {follower}"), vec![Mend::AddMember { index: follower, name }]))
}

fn cut_others(cluster: &Cluster, kind: Kind, targets: Targets) -> (String, Vec<Mend>) {
    let all: Vec<_> = (0..COUNT).map(member_machine).collect();
    let index = match kind {
        Kind::ClientCut => targets.some,
        Kind::LeaderCut => targets.leader,
        _ => targets.follower,
    };
    let victim = if kind == Kind::ClientCut {
        cluster.network.set_both(&[client_machine(index)], &[shim_machine(index)], NONE);
        format!("clients {index}")
    } else {
        cluster.network.set_both(&[member_machine(index)], &all, NONE);
        format!("member {index}")
    };
    (victim, vec![Mend::Network])
}

fn spoil(cluster: &Cluster, kind: Kind, chance: &mut Chance) -> (String, Vec<Mend>) {
    let all = machines();
    let (link, what) = match kind {
        Kind::Slow => {
            let delay = Duration::from_millis(20) + Duration::from_millis(chance.bits() % 80);
            (Link { delay, ..Link::default() }, format!("{} ms", delay.as_millis()))
        }
        _ => {
            let loss_percent = u8::try_from(2 + chance.below(9)).unwrap_or(5);
            (Link { loss_percent, ..Link::default() }, format!("{loss_percent} %"))
        }
    };
    cluster.network.set_both(&all, &all, link);
    (what, vec![Mend::Network])
}

/// Mends it; what was struck may need a while to serve again.
///
/// # Errors
/// It cannot be mended.
pub fn mend(cluster: &mut Cluster, admin: &Admin, fault: &Fault) -> Result<()> {
    if fault.kind == Kind::CompactPaused {
        admin.compact()?;
    }
    for mend in &fault.mends {
        match mend {
            Mend::Network => cluster.network.mend(),
            Mend::StartShim(index) => at(&mut cluster.shims, *index)?.spawn_again()?,
            Mend::StartMember(index) => at(&mut cluster.members, *index)?.spawn_again()?,
            Mend::ResumeShim(index) => at(&mut cluster.shims, *index)?.process.resume()?,
            Mend::ResumeMember(index) => at(&mut cluster.members, *index)?.process.resume()?,
            Mend::FreeDisk { file, member } => {
                fs::remove_file(file).context("free the disk")?;
                let member = at(&mut cluster.members, *member)?;
                // etcd ends itself when it cannot write; one that has not is left as it is.
                if member.process.poll_exit()?.is_some() {
                    member.spawn_again()?;
                }
            }
            Mend::FreeDatabase { keys } => free_database(admin, *keys)?,
            Mend::AddMember { index, name } => cluster.replace_member(*index, name)?,
            Mend::Restore(backup) => cluster.restore(backup)?,
            Mend::Wait { revision } => wait_for(admin, *revision)?,
        }
    }
    Ok(())
}

fn at(servers: &mut [Server], index: usize) -> Result<&mut Server> {
    servers.get_mut(index).context("there are three of each")
}

fn machines() -> Vec<Machine> {
    let each = [member_machine, shim_machine, client_machine];
    each.iter().flat_map(|machine| (0..COUNT).map(machine)).collect()
}

fn cut_shim(cluster: &Cluster, kind: Kind, targets: Targets) -> (String, Vec<Mend>) {
    let shim = targets.some;
    let (shims, members) = ([shim_machine(shim)], [0, 1, 2].map(member_machine));
    match kind {
        Kind::ShimDeaf => cluster.network.set(&members, &shims, NONE),
        Kind::ShimMute => cluster.network.set(&shims, &members, NONE),
        Kind::ShimMemberCut => {
            let member = cluster.member_of(shim).unwrap_or(shim);
            cluster.network.set_both(&shims, &[member_machine(member)], NONE);
        }
        Kind::ShimLeaderCut => {
            cluster.network.set_both(&shims, &[member_machine(targets.leader)], NONE);
        }
        _ => cluster.network.set_both(&shims, &members, NONE),
    }
    (format!("shim {shim}"), vec![Mend::Network])
}

/// How long clients write what is going to be lost.
const LOST_AFTER_BACKUP: Duration = Duration::from_secs(4);
/// How long etcd may take to get as far as it was: clients have to begin new sessions first.
const OVERTAKEN_MAX: Duration = Duration::from_secs(120);

fn wait_for(admin: &Admin, revision: i64) -> Result<()> {
    let until = Instant::now() + OVERTAKEN_MAX;
    // Right after a start no member may lead.
    while admin.revision().unwrap_or(0) < revision {
        ensure!(Instant::now() < until, "etcd does not get to revision {revision}");
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}

const FILLER_BYTES: usize = 1 << 20;
const FILLERS_MAX: usize = 4096;

fn filler(number: usize) -> String {
    format!("/filler/{number}")
}

/// Writes until etcd refuses for want of space; gives how many keys.
fn fill_database(admin: &Admin) -> Result<usize> {
    for number in 0..FILLERS_MAX {
        if let Err(error) = admin.put(&filler(number), FILLER_BYTES) {
            let text = format!("{error:#}");
            ensure!(text.contains("space"), "fill etcd's database: {text}");
            return Ok(number);
        }
    }
    bail!("etcd's database is never full: start it with a quota")
}

/// What an administrator does: delete, compact, defragment, clear the alarm.
fn free_database(admin: &Admin, keys: usize) -> Result<()> {
    (0..keys).try_for_each(|number| admin.delete(&filler(number)))?;
    admin.compact()?;
    (0..COUNT).try_for_each(|index| admin.defragment(index))?;
    admin.disarm()
}

/// Fills the disk of a member and waits until it feels it.
fn fill_disk(cluster: &mut Cluster, index: usize) -> Result<PathBuf> {
    let data = cluster.member_data(index)?;
    let file = data.with_file_name("filler");
    let mut output = File::create(&file).context("create a file to fill a disk")?;
    // The copy ends with "no space left", which is what is wanted.
    let _ = std::io::copy(&mut std::io::repeat(b'x'), &mut output);
    let until = Instant::now() + Duration::from_secs(4);
    let member = at(&mut cluster.members, index)?;
    while Instant::now() < until && member.process.poll_exit()?.is_none() {
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(file)
}
