//! The connections of clients as they come: so many at a time, and with a pause where the system has none to give.
//!
//! A connection beyond the limit lives long enough to be told so: a status of gRPC answers a call, and a client calls after it has agreed on
//! the protocol and the encryption. Of those that hear it there are so many at a time, too. Beyond them, connections are closed as they
//! come.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Sleep;
use tonic::transport::server::{Connected, TcpIncoming};

/// Connections at a time that hear that there are too many.
const REFUSED: usize = 64;
/// How long each of them has to call, and to take the answer.
const HEARS_WITHIN: Duration = Duration::from_secs(10);
/// The time to breathe after the system had no connection to give, as where the process has no more files to open.
const AFTER_ERROR: Duration = Duration::from_millis(100);

/// Connections as they come.
pub(crate) struct Incoming {
    inner: TcpIncoming,
    /// How many there may be.
    most: usize,
    places: Arc<Semaphore>,
    refused: Arc<Semaphore>,
    hears_within: Duration,
    /// Until when nothing is taken.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Incoming {
    /// So many connections at a time.
    pub(crate) fn new(inner: TcpIncoming, most: usize) -> Self {
        let most = most.min(Semaphore::MAX_PERMITS);
        let [places, refused] = [most, REFUSED].map(|count| Arc::new(Semaphore::new(count)));
        Self { inner, most, places, refused, hears_within: HEARS_WITHIN, pause: None }
    }

    /// A connection with its place; none if there is no place even to refuse it.
    fn placed(&self, stream: TcpStream) -> Option<Connection> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(Connection { stream, beyond: None, _place: place });
        }
        let place = Arc::clone(&self.refused).try_acquire_owned().ok()?;
        let beyond = Beyond { most: self.most, until: Box::pin(tokio::time::sleep(self.hears_within)) };
        Some(Connection { stream, beyond: Some(beyond), _place: place })
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
            }
            match ready!(Pin::new(&mut this.inner).poll_next(context)) {
                None => return Poll::Ready(None),
                Some(Ok(stream)) => {
                    let connection = this.placed(stream);
                    if connection.as_ref().is_none_or(|connection| connection.beyond.is_some()) {
                        tracing::warn!("a connection was refused: there are {} already", this.most);
                    }
                    if let Some(connection) = connection {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(%error, "a connection cannot be taken");
                    this.pause = Some(Box::pin(tokio::time::sleep(AFTER_ERROR)));
                }
            }
        }
    }
}

/// A connection, which keeps its place as long as it lives.
pub(crate) struct Connection {
    stream: TcpStream,
    beyond: Option<Beyond>,
    _place: OwnedSemaphorePermit,
}

/// What a connection is told that is one too many.
struct Beyond {
    /// How many there may be.
    most: usize,
    /// Until when it has to hear it.
    until: Pin<Box<Sleep>>,
}

/// The connection that a call came by, among the extensions of the call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CameBy {
    /// The other end.
    pub(crate) address: Option<SocketAddr>,
    /// How many connections there may be, if this one is one too many.
    pub(crate) beyond: Option<usize>,
}

impl Connected for Connection {
    type ConnectInfo = CameBy;

    fn connect_info(&self) -> CameBy {
        CameBy { address: self.stream.peer_addr().ok(), beyond: self.beyond.as_ref().map(|beyond| beyond.most) }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(beyond) = &mut self.beyond
            && beyond.until.as_mut().poll(context).is_ready()
        {
            // As if the client had closed it, so that the server does.
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn connections_beyond_the_limit_hear_so_and_are_closed_and_a_closed_one_makes_room() {
        let listening = TcpIncoming::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listening.local_addr().unwrap();
        let one_place = Arc::new(Semaphore::new(1));
        let soon = Duration::from_millis(1);
        let mut incoming = Incoming { refused: one_place, hears_within: soon, ..Incoming::new(listening, 1) };
        let connect = async || TcpStream::connect(address).await.unwrap();
        let _one = connect().await;
        let first = incoming.next().await.unwrap().unwrap();
        assert!(first.connect_info().beyond.is_none() && first.connect_info().address.is_some());
        let silent = connect().await;
        let mut refused = incoming.next().await.unwrap().unwrap();
        assert_eq!(refused.connect_info().beyond, Some(1));
        // It says nothing, and is not waited for.
        assert_eq!(refused.read(&mut [0; 1]).await.unwrap(), 0);
        let taking = tokio::spawn(async move { incoming.next().await });
        let mut beyond = connect().await;
        assert_eq!(beyond.read(&mut [0; 1]).await.unwrap_or(0), 0);
        drop((first, silent));
        let _other = connect().await;
        let taken = taking.await.unwrap().unwrap().unwrap();
        assert!(taken.connect_info().beyond.is_none());
    }
}
