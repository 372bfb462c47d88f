//! What is counted of a client.

use super::*;

#[tokio::test(start_paused = true)]
async fn figures_show_what_was_asked_and_answered() {
    let mut scene = Scene::new();
    let outbox = scene.established().await;
    scene.send(&pings([8, 9])).await;
    scene.requests().await;
    tokio::time::sleep(Duration::from_millis(30)).await;
    outbox.push(&mut vec![reply(8)]);
    scene.frame().await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let all = scene.shared.registry.all();
    let (_, figures) = all.first().expect("it is connected");
    let shown = figures.shown(false);
    assert_eq!((shown.received, shown.sent, shown.queued), (3, 2, 1));
    let session = shown.session.expect("there is one");
    assert_eq!((session.session, session.timeout_ms), (SessionId(0x77), 10_000));
    assert_eq!((session.last_operation, session.last_xid), ("PING", Some(8)));
    assert_eq!((session.last_zxid, session.last_latency_ms), (Zxid(5), 30));
    assert_eq!(scene.shared.outstanding.requests(), 1);
}
