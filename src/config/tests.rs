//! Flags: which values are taken, and what is said of others.

use super::*;

fn config(flags: &[&str]) -> Result<Config, ConfigError> {
    let cli = Cli::try_parse_from(["zkshim", "serve"].iter().chain(flags)).expect("it parses");
    let Command::Serve(args) = cli.command;
    Config::check(&args, [0; 32])
}

fn check_refused(flags: &[&str], expect: &str) {
    let error = config(flags).expect_err("it is refused");
    assert!(error.to_string().contains(expect), "{error}");
    assert!(!error.to_string().contains('\n'), "one sentence");
}

#[test]
fn the_flags_are_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_flag_has_a_variable_and_help() {
    let command = Cli::command();
    let serve = command.find_subcommand("serve").expect("it is there");
    let flags = serve.get_arguments().filter(|flag| flag.get_long() != Some("help"));
    for flag in flags {
        let name = flag.get_long().expect("all have a long form");
        let variable = format!("ZKSHIM_{}", name.replace('-', "_").to_uppercase());
        assert_eq!(flag.get_env().and_then(|name| name.to_str()), Some(variable.as_str()));
        assert!(flag.get_help().is_some(), "{name}");
    }
}

#[test]
fn without_flags_it_is_a_single_zookeeper() {
    let config = config(&[]).expect("it is right");
    assert_eq!(config.listen, "0.0.0.0:2181");
    assert!(matches!(config.store, store::StoreOptions::Embedded(_)));
    assert!(config.keeper.sole);
    assert_eq!(config.keeper.session_timeout_min, Duration::from_secs(4));
    assert_eq!(config.keeper.session_timeout_max, Duration::from_secs(40));
    assert_eq!(config.server.frame_bytes_max, 0xF_FFFF);
    assert_eq!(config.server.connections_per_address_max, 60);
}

#[test]
fn session_timeouts_follow_the_tick_unless_given() {
    let config = config(&["--tick-time=100", "--max-session-timeout=90000"]).expect("it is right");
    assert_eq!(config.keeper.session_timeout_min, Duration::from_millis(200));
    assert_eq!(config.keeper.session_timeout_max, Duration::from_secs(90));
    check_refused(&["--min-session-timeout=50000"], "must not be above");
    check_refused(&["--tick-time=0"], "--tick-time is 0");
}

#[test]
fn endpoints_choose_etcd() {
    let config = config(&["--etcd-endpoints=http://a:2379, b:2379", "--prefix=/zk"]);
    let store::StoreOptions::Etcd(options) = config.expect("it is right").store else {
        panic!("not etcd")
    };
    assert_eq!(options.endpoints, ["http://a:2379", "http://b:2379"]);
    assert_eq!(options.prefix, "/zk/");
}

#[test]
fn a_user_of_etcd_has_a_password_that_is_not_shown() {
    let flags = ["--etcd-endpoints=a:1", "--etcd-user=zk", "--etcd-password=secret"];
    let config = config(&flags).expect("it is right");
    let store::StoreOptions::Etcd(options) = &config.store else { panic!("not etcd") };
    let user = options.user.as_ref().expect("there is one");
    assert_eq!((user.name.as_str(), user.password.as_str()), ("zk", "secret"));
    assert!(!format!("{config:?}").contains("secret"));
    for alone in [&flags[..2], &[flags[0], flags[2]]] {
        assert!(Cli::try_parse_from(["zkshim", "serve"].iter().chain(alone)).is_err());
    }
}

#[test]
fn a_store_that_cannot_work_is_refused() {
    check_refused(&["--store=etcd"], "needs --etcd-endpoints");
    check_refused(&["--store=embedded", "--etcd-endpoints=a:1"], "does not use them");
    check_refused(&["--etcd-endpoints=https://a:1"], "TLS");
    check_refused(&["--etcd-endpoints=http://a"], "a host and a port");
    check_refused(&["--etcd-endpoints=a:1", "--prefix=/"], "--prefix");
}

#[test]
fn other_values_that_make_no_sense_are_refused() {
    check_refused(&["--listen=2181"], "an address and a port");
    check_refused(&["--listen=host:port"], "an address and a port");
    check_refused(&["--four-letter-words=ruok,rouk"], "\"rouk\" is not");
    check_refused(&["--jute-max-buffer=5"], "from 64");
    check_refused(&["--max-connections=0"], "from 1");
}

#[test]
fn a_super_digest_is_one_that_somebody_can_have() {
    let known = "super:D/InIHSb7yEEbrWz8b9l71RjZJU=";
    let config = config(&["--super-digest", known]).expect("it is right");
    assert_eq!(config.keeper.super_digest.as_deref(), Some(known));
    for wrong in [
        "secret",
        "x:",
        "super:test",
        "super:D/InIHSb7yEEbrWz8b9l71RjZJU",
        "super:D/InIHSb7yEEbrWz8b9l71RjZJV=",
        "super:D/InIHSb7yEEbrWz8b9l71RjZJU=\n",
        "a:super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
    ] {
        check_refused(&["--super-digest", wrong], "a colon and the base64");
    }
}

#[test]
fn the_version_is_in_the_form_that_tools_parse() {
    let version = version();
    let (number, rest) = version.split_once('-').expect("a dash");
    assert_eq!(number.split('.').filter(|part| part.parse::<u32>().is_ok()).count(), 3);
    assert!(rest.starts_with("zkshim-"), "{version}");
    let (_, built) = rest.split_once(", built on ").expect("a date");
    assert_eq!((built.len(), built.ends_with(" UTC")), (20, true), "{version}");
}

#[test]
fn the_memory_for_clients_is_shared_out_in_thirds() {
    let config = config(&["--client-memory-mib=48"]).expect("it is right");
    assert_eq!(config.keeper.kept_bytes_max, 16 << 20);
    check_refused(&["--client-memory-mib=15"], "must be from 16");
}

#[test]
fn without_a_word_clients_get_some_of_the_memory() {
    let kept = config(&[]).expect("it is right").keeper.kept_bytes_max;
    assert!(((32 << 20) / 3..=(4096 << 20) / 3).contains(&kept), "{kept}");
}
