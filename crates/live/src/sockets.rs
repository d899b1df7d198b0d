//! Sockets for the clients of functions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;

/// A listening socket.
pub struct LiveSocket {
    listener: UnixListener,
    /// Its file, as long as that is there.
    file: Option<PathBuf>,
}

impl LiveSocket {
    /// Listens at a path.
    ///
    /// # Errors
    /// If the path is too long, or somebody else listens there. What a server that was killed left behind is replaced.
    pub fn bind(path: PathBuf) -> io::Result<Self> {
        let listener = bind_file(&path)?;
        listener.set_nonblocking(true)?;
        Ok(Self { listener, file: Some(path) })
    }

    /// Removes its file: nobody else can come.
    pub fn remove(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = std::fs::remove_file(file);
        }
    }

    /// A client that has connected, if one has. Clients of other users are turned away.
    pub fn accept(&self) -> Option<UnixStream> {
        let (stream, _) = self.listener.accept().ok()?;
        let peer = socket_peercred(&stream).ok()?;
        stream.set_nonblocking(false).ok()?;
        (peer.uid == geteuid() || peer.uid.is_root()).then_some(stream)
    }
}

fn bind_file(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(taken) if taken.kind() == io::ErrorKind::AddrInUse => {
            let refused =
                UnixStream::connect(path).is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused);
            if !refused {
                return Err(taken);
            }
            std::fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        done => done,
    }
}

impl AsFd for LiveSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

impl Drop for LiveSocket {
    fn drop(&mut self) {
        self.remove();
    }
}
