//! The server: its ports, who may come in, and how it ends.

use std::fs;
use std::future::Future;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use arrow_flight::flight_service_server::FlightServiceServer;
use futures::future::join_all;
use lakemark_table::{Error, ErrorKind, Result, Stopwatch};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::{Router, TcpIncoming};
use tonic::transport::{Identity, Server as Transport, ServerTlsConfig};
use tonic::{Request, Status};

use crate::error::come_again;
use crate::http::HttpServer;
use crate::incoming::{CameBy, Incoming};
use crate::options::{Limits, ServeOptions, TlsFiles, invalid};
use crate::page::ServerPages;
use crate::planning::Planning;
use crate::running::CUT_OFF;
use crate::service::{Calls, Principal, Service, Shared};
use crate::statements::Statements;
use crate::tokens::Tokens;

/// What a message may have beside a statement or its parameters.
const AROUND_MESSAGE: usize = 1 << 20;
/// How often connections are asked whether somebody is there, and how long they have to answer.
const ALIVE_EVERY: Duration = Duration::from_secs(30);
const ALIVE_WITHIN: Duration = Duration::from_secs(20);
/// How long a client has to agree on the encryption.
const TLS_WITHIN: Duration = Duration::from_secs(10);
/// When a client whose connection was one too many may try again.
const CONNECT_AGAIN: Duration = Duration::from_secs(5);
/// How often what is old is forgotten, and queries are stopped that nobody reads.
const SWEEP_EVERY: Duration = Duration::from_secs(1);
/// How often queries are looked for that nobody reads while others wait, and how long nobody read them before they lend their turns.
const LEND_EVERY: Duration = Duration::from_millis(100);
/// How long the ends of stopped queries have to reach their clients.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A server that listens, and serves once it runs.
pub struct Server {
    shared: Arc<Shared>,
    incoming: Incoming,
    router: Router,
    url: String,
    http: Option<HttpServer>,
    is_ending: Arc<AtomicBool>,
}

impl Server {
    /// Opens the tables and the ports.
    ///
    /// # Errors
    /// Options do not go together, a table or a file cannot be read, or an address cannot be listened on.
    pub async fn bind(options: ServeOptions) -> Result<Self> {
        options.check()?;
        let tokens = options.token_file.as_deref().map(Tokens::read).transpose()?.map(Arc::new);
        let mut transport = Transport::builder()
            .http2_keepalive_interval(Some(ALIVE_EVERY))
            .http2_keepalive_timeout(Some(ALIVE_WITHIN));
        if let Some(files) = &options.tls {
            transport = with_tls(transport, files)?;
        }
        let incoming = TcpIncoming::bind(options.listen).map_err(|error| cannot_listen(options.listen, &error))?;
        let incoming = incoming.with_nodelay(Some(true)).with_keepalive(Some(ALIVE_EVERY));
        let address = incoming.local_addr().map_err(|error| cannot_listen(options.listen, &error))?;
        let incoming = Incoming::new(incoming, options.limits.connections);
        let scheme = if options.tls.is_some() { "grpc+tls" } else { "grpc" };
        let url = format!("{scheme}://{address}");

        let statements = Arc::new(Statements::open(&options, Planning::default()).await?);
        let limits = options.limits.clone();
        let most_bytes = limits.statement_bytes.max(limits.parameter_bytes).saturating_add(AROUND_MESSAGE);
        let shared = Shared::new(Arc::clone(&statements), limits)
            .map_err(|status| Error::new(ErrorKind::Internal, status.message()))?;
        let shared = Arc::new(shared);
        let service =
            FlightServiceServer::new(Calls(Service(Arc::clone(&shared)))).max_decoding_message_size(most_bytes);
        let router = transport.add_service(InterceptedService::new(service, Admission(tokens)));

        let is_ending = Arc::new(AtomicBool::new(false));
        let pages = ServerPages {
            statements,
            running: Arc::clone(&shared.running),
            turns: Arc::clone(&shared.turns),
            address: url.clone(),
            since: Stopwatch::start(),
            is_ending: Arc::clone(&is_ending),
        };
        let http = match options.http {
            None => None,
            Some(address) => {
                let listening = HttpServer::listen(address, Arc::new(pages)).await;
                Some(listening.map_err(|error| cannot_listen(address, &error))?)
            }
        };
        Ok(Self { shared, incoming, router, url, http, is_ending })
    }

    /// Where clients connect: `grpc://127.0.0.1:8815`, or `grpc+tls://…`.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where browsers and collectors look, if they may.
    #[must_use]
    pub fn http_address(&self) -> Option<SocketAddr> {
        self.http.as_ref().map(HttpServer::address)
    }

    /// Serves until `stop` is there. Then it takes nothing new, and waits for what runs as long as the limits say.
    ///
    /// # Errors
    /// The port cannot be served any more.
    pub async fn run(self, stop: impl Future<Output = ()>) -> Result<()> {
        let Self { shared, incoming, router, http, is_ending, .. } = self;
        let _sweeping = Sweeping::begin(&shared);
        let (tell, told) = oneshot::channel();
        let ending = Arc::clone(&is_ending);
        let stopped = async move {
            stop.await;
            ending.store(true, Ordering::Relaxed);
            // Nobody listens any more if the port failed meanwhile.
            let _ = tell.send(());
        };
        let serving = router.serve_with_incoming_shutdown(incoming, stopped);
        tokio::pin!(serving);
        let ended = tokio::select! {
            ended = &mut serving => ended,
            _ = told => {
                let Limits { grace, .. } = shared.limits;
                match tokio::time::timeout(grace, &mut serving).await {
                    Ok(ended) => ended,
                    Err(_) => {
                        // First, since those that are stopped would give their turns to those that wait.
                        shared.turns.close();
                        shared.running.stop_all(&Status::unavailable(CUT_OFF));
                        // Who does not take even this goes without.
                        tokio::time::timeout(LAST_WORDS, &mut serving).await.unwrap_or(Ok(()))
                    }
                }
            }
        };
        // The process ends with the server: migrations that changes began would end, too.
        let tables = shared.statements.tables().list();
        join_all(tables.iter().map(|served| served.table.wait_for_migration())).await;
        drop(http);
        ended.map_err(|error| Error::new(ErrorKind::Io, format!("the port cannot be served any more: {error}")))
    }
}

fn cannot_listen(address: SocketAddr, error: &std::io::Error) -> Error {
    Error::new(ErrorKind::Io, format!("{address} cannot be listened on: {error}; give another port, or 0 for any"))
}

fn with_tls(transport: Transport, files: &TlsFiles) -> Result<Transport> {
    let read = |path: &Path| {
        fs::read(path).map_err(|error| Error::new(ErrorKind::Io, format!("{} cannot be read: {error}", path.display())))
    };
    let identity = Identity::from_pem(read(&files.certificate)?, read(&files.key)?);
    // Packages below bring two providers, and none of them is the one by itself. It is one already where others of this process chose.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let tls = ServerTlsConfig::new().identity(identity).timeout(TLS_WITHIN);
    transport.tls_config(tls).map_err(|error| {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        invalid(format!(
            "{} and {} are no certificate with its key, as PEM{cause}",
            files.certificate.display(),
            files.key.display()
        ))
    })
}

/// Lets in who has a token, or everybody where there are none; nobody whose connection is one too many.
#[derive(Clone)]
struct Admission(Option<Arc<Tokens>>);

impl Interceptor for Admission {
    fn call(&mut self, mut request: Request<()>) -> std::result::Result<Request<()>, Status> {
        if let Some(most) = request.extensions().get::<CameBy>().and_then(|came| came.beyond) {
            let message = format!(
                "the server is busy: there are {most} connections already; close some or try again, or raise the limit connections"
            );
            return Err(come_again(message, CONNECT_AGAIN));
        }
        let Some(tokens) = &self.0 else { return Ok(request) };
        let given = request.metadata().get("authorization").and_then(|value| value.to_str().ok());
        match given.and_then(|given| tokens.owner_of(given)) {
            Some(owner) => {
                request.extensions_mut().insert(Principal(owner));
                Ok(request)
            }
            None => Err(Status::unauthenticated(
                "the token is missing or is none of the server's: give it as the header `authorization: Bearer TOKEN`, or as the password",
            )),
        }
    }
}

/// Forgets what is old, has queries that nobody reads lend their turns, and stops them in the end; as long as it lives.
struct Sweeping([JoinHandle<()>; 2]);

impl Sweeping {
    fn begin(shared: &Arc<Shared>) -> Self {
        Self([tokio::spawn(sweep(Arc::clone(shared))), tokio::spawn(lend(Arc::clone(shared)))])
    }
}

async fn sweep(shared: Arc<Shared>) {
    let Limits { stalled, wait, .. } = shared.limits;
    loop {
        tokio::time::sleep(SWEEP_EVERY).await;
        shared.plans.sweep();
        shared.prepared.sweep();
        // What a query holds besides its turn, such as memory, is not kept from those that wait for as long as from nobody.
        let is_busy = shared.turns.load().waiting > 0;
        shared.running.stop_stalled(if is_busy { stalled.min(wait / 2) } else { stalled });
    }
}

async fn lend(shared: Arc<Shared>) {
    loop {
        tokio::time::sleep(LEND_EVERY).await;
        if shared.turns.load().waiting > 0 {
            shared.running.lend_stalled(LEND_EVERY);
        }
    }
}

impl Drop for Sweeping {
    fn drop(&mut self) {
        let Self(tasks) = self;
        tasks.iter().for_each(JoinHandle::abort);
    }
}
