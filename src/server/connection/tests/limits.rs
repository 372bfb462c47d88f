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
