//! Clients that draw things out.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_handshake_that_comes_byte_by_byte_is_not_waited_for() {
    let mut scene = Scene::new();
    let started = Instant::now();
    for byte in handshake(true) {
        if scene.client.write_all(&[byte]).await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(scene.rest().await, b"");
    assert!(started.elapsed() < Duration::from_secs(50), "the server closed before it was whole");
    assert!(scene.core.try_recv().is_err(), "nothing was handed in");
    scene.served.await.expect("the connection has ended");
}

#[tokio::test(start_paused = true)]
async fn the_answer_to_a_word_that_nobody_reads_is_given_up() {
    let mut scene = Scene::with_socket_buffer(8);
    scene.send(b"cons").await;
    match scene.input().await {
        Input::Query(Query::Status(answer)) => {
            let status = Status { serving: true, ..Status::default() };
            answer.send(status).expect("it is waited for");
        }
        other => panic!("{other:?}"),
    }
    let ended = timeout(Duration::from_secs(30), scene.served).await;
    assert!(ended.is_ok_and(|ended| ended.is_ok()), "it goes on for ever");
}

/// Opened, with a session, and without the core hearing of anything else.
async fn established(scene: &mut Scene) -> (DuplexStream, Outbox) {
    let (mut client, _) = scene.another();
    client.write_all(&handshake(true)).await.expect("the server reads");
    let (_, outbox) = scene.connect().await;
    outbox.push(&mut vec![accepted()]);
    (client, outbox)
}

/// A setData with so much data.
fn set_data(xid: i32, bytes: usize) -> Vec<u8> {
    let length = |bytes: usize| i32::try_from(bytes).expect("it is short").to_be_bytes();
    let data = vec![0; bytes];
    let [xid, opcode, version] = [xid, 5, -1].map(i32::to_be_bytes);
    let body = [&xid[..], &opcode, &length(1), b"/", &length(bytes), &data, &version].concat();
    [&length(body.len())[..], &body].concat()
}

#[tokio::test(start_paused = true)]
async fn large_requests_wait_until_there_is_memory_and_small_ones_do_not() {
    let mut scene = Scene::with_request_bytes(20_000);
    let (mut first, _) = established(&mut scene).await;
    let (mut second, _) = established(&mut scene).await;
    let (mut third, _) = established(&mut scene).await;
    for (xid, client) in [(1, &mut first), (2, &mut second)] {
        client.write_all(&set_data(xid, 9000)).await.expect("the server reads");
    }
    let held = [scene.input().await, scene.input().await];
    third.write_all(&set_data(3, 9000)).await.expect("the server reads");
    scene.nothing_is_handed_in().await;
    first.write_all(&pings([4])).await.expect("the server reads");
    assert_eq!(scene.requests().await, [Xid(4)]);
    // The core is through with them, and one connection has ended.
    drop((held, first, second));
    let handed_in = loop {
        match scene.input().await {
            Input::Closed(_) => {}
            Input::Requests(_, requests) => break requests,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(handed_in.iter().map(|request| request.xid).collect::<Vec<_>>(), [Xid(3)]);
}

#[tokio::test(start_paused = true)]
async fn whoever_draws_out_a_large_request_gives_way() {
    let mut scene = Scene::with_request_bytes(10_000);
    let (mut slow, _) = established(&mut scene).await;
    let (mut other, _) = established(&mut scene).await;
    let request = set_data(1, 9000);
    slow.write_all(&request[..5000]).await.expect("the server reads");
    tokio::time::sleep(Duration::from_secs(60)).await;
    slow.write_all(&request[5000..6000]).await.expect("nobody else wants the memory");
    other.write_all(&set_data(2, 9000)).await.expect("the server reads");
    scene.closed().await;
    assert_eq!(scene.requests().await, [Xid(2)]);
}
