//! A network between store and etcd that can be cut.

use std::net::{Ipv4Addr, SocketAddr};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Forwards connections while it is up; cutting it ends all of them and refuses new ones.
pub(crate) struct Proxy {
    address: SocketAddr,
    up: watch::Sender<bool>,
}

impl Proxy {
    pub(crate) async fn start(target: SocketAddr, is_up: bool) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("ports are free");
        let address = listener.local_addr().expect("it is bound");
        let (up, state) = watch::channel(is_up);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let state = state.clone();
                if *state.borrow() {
                    tokio::spawn(forward(client, target, state));
                }
            }
        });
        Self { address, up }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn cut(&self) {
        self.up.send_replace(false);
    }

    pub(crate) fn mend(&self) {
        self.up.send_replace(true);
    }
}

async fn forward(mut client: TcpStream, target: SocketAddr, mut state: watch::Receiver<bool>) {
    let Ok(mut server) = TcpStream::connect(target).await else { return };
    tokio::select! {
        _ = copy_bidirectional(&mut client, &mut server) => {}
        _ = state.wait_for(|up| !up) => {}
    }
}
