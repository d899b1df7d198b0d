//! Sockets for the clients of functions.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileTypeExt as _;
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
            // Connecting to what is no socket is refused as well.
            if !path.symlink_metadata()?.file_type().is_socket() {
                return Err(io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "there is a file, and it is no socket",
                ));
            }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        drop(UnixListener::bind(at("left")).unwrap());
        std::fs::write(at("file"), "mine").unwrap();
        std::os::unix::fs::symlink("left", at("link")).unwrap();
        let first = LiveSocket::bind(at("left")).unwrap();
        assert!(LiveSocket::bind(at("left")).is_err());
        drop(first);
        assert!(!at("left").exists());
        drop(UnixListener::bind(at("left")).unwrap());
        for name in ["file", "link"] {
            assert!(LiveSocket::bind(at(name)).is_err(), "{name}");
        }
        assert_eq!(std::fs::read(at("file")).unwrap(), b"mine");
        assert!(at("link").is_symlink());
    }
}
