//! A network between store and etcd that can be cut, or swallow everything.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections while it is up; cutting it ends all of them and refuses new ones.
pub(crate) struct Proxy {
    address: SocketAddr,
    way: watch::Sender<Way>,
}

/// What becomes of connections.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Up,
    Cut,
    /// They stay, and new ones are taken, but nothing gets through; they end with it.
    Silent,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr, is_up: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("ports are free");
        let address = listener.local_addr().expect("it is bound");
        let (way, state) = watch::channel(if is_up { Way::Up } else { Way::Cut });
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = state.clone();
                if *state.borrow() != Way::Cut {
                    tokio::spawn(forward(client, target, state));
                }
            }
        });
        Self { address, way }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn cut(&self) {
        self.way.send_replace(Way::Cut);
    }

    pub(crate) fn silence(&self) {
        self.way.send_replace(Way::Silent);
    }

    pub(crate) fn mend(&self) {
        self.way.send_replace(Way::Up);
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut state: watch::Receiver<Way>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    if *state.borrow() == Way::Up {
        tokio::select! {
            _ = copy_bidirectional(&mut client, &mut server) => return,
            _ = state.wait_for(|way| *way != Way::Up) => {}
        }
    }
    // What was on its way is lost, so the connection cannot go on.
    let _ = state.wait_for(|way| *way != Way::Silent).await;
}
